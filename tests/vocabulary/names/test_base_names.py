"""Do names of one kernel from several tools have one base name, and those of two kernels two?"""

from __future__ import annotations

import pytest

from perfdoctor.vocabulary.names.base_names import are_alike, plain_name, without_numbers

NSYS = "void at::native::<unnamed>::softmax_kernel<float, (int)4, (bool)1, (unsigned int)32>(T1 *, const T1 *, long)"
KINETO = "void at::native::(anonymous namespace)::softmax_kernel<float, 4, true, 32u>(float*, float const*, long)"


def test_casts_of_numbers_unnamed_spaces_and_parameters_do_not_count():
    plain = "at::native::(anonymousnamespace)::softmax_kernel<float,4,1,32>"
    assert plain_name(NSYS) == plain
    assert plain_name(KINETO) == plain


def test_lambdas_are_the_same_in_both_ways_to_write_them():
    theirs = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::silu_kernel(at::TensorIteratorBase &)::[lambda() (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)"
    ours = "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2ul> >(int, at::native::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2ul>)"
    assert plain_name(theirs) == plain_name(ours)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("k<float>(int)", "k<double>(int)"),
        ("k<(int)4>(int)", "k<(int)8>(int)"),
        ("void a::add<F>(int)", "void b::add<F>(int)"),
        ("k_1", "k_2"),
        ("sm80_xmma_gemm_f16f16", "sm80_xmma_gemm_f32f32"),
    ],
)
def test_other_kernels_have_other_names(one, other):
    assert plain_name(one) != plain_name(other)


@pytest.mark.parametrize("name", ["", ")", "(((", "k)", "<script>[/]", "a" * 10_000, "lambda() (instance 1)]", "()()"])
def test_a_text_that_is_no_name_stays_one(name):
    assert isinstance(plain_name(name), str)
    assert plain_name(plain_name(name)) == plain_name(name)


def test_a_bare_name_is_like_all_of_its_kind_and_a_whole_one_is_like_most_of_its_words():
    add = "vectorized_elementwise_kernel<4,at::native::AddFunctor<float>,std::array<char*,2>>"
    other = "vectorized_elementwise_kernel<4,at::native::CUDAFunctor_other<c10::Half>,Words::of::AnotherKind>"
    assert are_alike("vectorized_elementwise_kernel", add)
    assert are_alike(add, add.replace("array", "Array"))
    assert not are_alike(add, other)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ProfilerStep#3", "ProfilerStep#"),
        ("ProfilerStep#12", "ProfilerStep#"),
        ("layer 1 of 24", "layer # of #"),
        ("forward", "forward"),
        ("C# in #", "C# in #"),
        ("", ""),
    ],
)
def test_a_number_and_the_sign_before_it_are_one_sign(name, given):
    assert without_numbers(name) == given
