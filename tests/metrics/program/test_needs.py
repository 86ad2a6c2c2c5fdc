"""What a fix needs is there, is not, or is not known: three answers, and the third is never one of the others."""

from __future__ import annotations

import made_programs as made
import pytest
from builders import draw
from msgspec.structs import replace

from perfdoctor.hardware.generations import abilities
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.needs import every, state
from perfdoctor.model.timeline import Device, UserValues
from perfdoctor.vocabulary.needs import NEEDS, in_words, is_need, lacking, unknown, version_of


def of(drawn, need):
    return state(prepare(drawn), need)


@pytest.mark.parametrize(
    ("gpu", "has", "lacks"),
    [
        (
            "NVIDIA GeForce GTX 1080 Ti",
            {"graphs", "nvidia"},
            {"half", "compile", "bf16", "tf32", "fp8", "tensor-cores"},
        ),
        ("Tesla P100-PCIE-16GB", {"half"}, {"compile", "bf16", "tensor-cores"}),
        (made.GTX1660, {"compile"}, {"half", "bf16", "tf32", "tensor-cores"}),
        (made.T4, {"half", "compile", "tensor-cores"}, {"bf16", "tf32", "fp8"}),
        (made.A100, {"half", "compile", "bf16", "tf32", "tensor-cores"}, {"fp8"}),
        ("NVIDIA L40S", {"fp8"}, set()),
        ("NVIDIA H100 80GB HBM3", set(abilities()) | {"nvidia"}, set()),
        ("AMD Instinct MI300X", {"half", "compile", "bf16", "fp8", "graphs", "tensor-cores"}, {"tf32", "nvidia"}),
        ("AMD Instinct MI210", {"bf16"}, {"fp8", "nvidia"}),
        ("Intel(R) Data Center GPU Max 1550", {"compile", "bf16"}, {"graphs", "nvidia", "tf32"}),
    ],
)
def test_a_gpu_has_what_its_generation_has(gpu, has, lacks):
    run = prepare(made.program(gpu=gpu))
    assert {need for need in has if not state(run, need)} == set()
    assert {need for need in lacks if state(run, need) is not False} == set()


def test_of_a_gpu_without_a_name_nothing_is_known_but_whose_it_is():
    run = prepare(made.program(gpu=""))
    assert {need: state(run, need) for need in ("bf16", "tf32", "fp8", "compile", "half")} == dict.fromkeys(
        ("bf16", "tf32", "fp8", "compile", "half")
    )
    assert state(run, "nvidia") is True, "it is launched by CUDA"


def test_a_gpu_nobody_knows_is_looked_up_by_its_recorded_capability():
    drawn = made.program(gpu="NVIDIA Something New")
    assert of(drawn, "bf16") is None
    for capability, has in (((9, 0), True), ((7, 5), False)):
        device = Device(0, 0, "NVIDIA Something New", compute_capability=capability)
        assert of(replace(drawn, devices=(device,)), "bf16") is has


def test_a_kernel_that_was_built_for_a_generation_shows_that_the_gpu_is_no_older():
    run = prepare(made.program(gpu="", kernel_names={"#": "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"}))
    assert {need: state(run, need) for need in ("compile", "bf16", "tf32", "fp8")} == {
        "compile": True, "bf16": True, "tf32": True, "fp8": None,
    }  # fmt: skip


def test_the_capability_that_rocm_writes_is_none_of_nvidias():
    device = Device(0, 0, "AMD Radeon Pro W6800", compute_capability=(10, 3))
    assert of(replace(made.program(), devices=(device,)), "bf16") is None


def test_the_gpu_that_the_user_names_counts():
    assert of(replace(made.program(gpu=""), user_values=UserValues(gpu="T4")), "bf16") is False


def test_one_gpu_that_lacks_it_is_enough():
    assert every([True, None, False]) is False
    assert every([True, None]) is None
    assert every([True, True]) is True


def test_a_processor_compiles_and_has_nothing_of_a_gpu():
    run = prepare(made.on_a_processor())
    assert {need: state(run, need) for need in ("compile", "bf16", "half", "tf32", "graphs", "gpu")} == {
        "compile": True, "bf16": None, "half": False, "tf32": False, "graphs": False, "gpu": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "known"),
    [("2.4.1+cu121", True), ("2.13.0a0", True), ("2.3.0", False), ("1.13", False), ("", None), ("odd", None)],
)
def test_a_version_is_compared_number_by_number(version, known):
    assert of(made.with_torch(made.program(), version), "torch 2.4") is known


def test_a_fused_optimizer_needs_a_later_torch_on_a_processor():
    assert of(made.with_torch(made.program(), "2.2"), "fused") is True
    assert of(made.with_torch(made.on_a_processor(), "2.2"), "fused") is False
    assert of(made.with_torch(made.on_a_processor(), "2.4"), "fused") is True


def test_compiled_code_shows_torch_2_at_least():
    compiled = made.program(kernel_names={"#": "triton_poi_fused_add_0"})
    assert (of(compiled, "torch 2.0"), of(compiled, "torch 2.1")) == (True, None)


@pytest.mark.parametrize(("every", "fits"), [(1, False), (8, False), (12, False), (24, True)])
def test_kernels_between_two_reads_of_a_value_fit_into_a_graph_if_they_are_many(every, fits):
    assert of(made.reading(every), "no-data-syncs") is fits


@pytest.mark.parametrize(("every", "fits"), [(8, False), (12, False), (24, True)])
def test_a_step_is_one_piece_if_no_value_is_read_in_its_middle(every, fits):
    assert of(made.reading(every), "one-piece") is fits


def test_without_launches_nobody_knows_what_the_host_waits_for():
    assert of(made.program(launched_us_before=None), "no-data-syncs") is None


@pytest.mark.parametrize(
    ("drawn", "known"),
    [(made.program, True), (made.few_shapes, True), (made.changing_shapes, False)],
)
def test_shapes_repeat_or_do_not(drawn, known):
    assert of(drawn(), "steady-shapes") is known


def test_two_steps_do_not_show_whether_shapes_repeat():
    assert of(draw(kernels="## ", launched_us_before=50, repeat=3), "steady-shapes") is None


def test_what_is_not_known_stays_so_behind_not():
    run = prepare(made.program(gpu=""))
    assert (state(run, "not bf16"), state(run, "not gpu"), state(run, "gpu A40")) == (None, False, None)


def test_a_name_is_a_whole_word_of_the_gpus_name():
    assert of(made.program(gpu="NVIDIA A40"), "gpu A40") is True
    assert of(made.program(gpu="NVIDIA A4000"), "gpu A40") is False


def test_every_need_can_be_asked_of_a_recording():
    run = prepare(made.program())
    assert {need for need in NEEDS if state(run, need) not in (True, False, None)} == set()


def test_words_say_what_is_missing_and_why_it_is_not_known():
    assert unknown([]) == ""
    assert unknown(["torch 2.0", "bf16", "tf32"]) == (
        "needs torch 2.0; needs a GPU that computes in bfloat16 (compute capability 8.0) and a GPU with TF32 (compute "
        "capability 8.0): the recording does not say which GPU it was"
    )
    assert lacking("torch 2.4") == "needs torch 2.4, and this torch is older"
    assert lacking("tf32") == "needs a GPU with TF32 (compute capability 8.0), and this GPU has none"
    assert in_words("torch 2.4") == "torch 2.4"


def test_a_need_is_a_known_name_or_a_version():
    assert [name for name in ("bf16", "torch 2.4", "torch", "torch x", "bf61") if is_need(name)] == [
        "bf16",
        "torch 2.4",
    ]
    assert version_of("torch 2.10") == (2, 10)
