"""Names of ops are found once for each op and its shapes, not once for each number that an op has of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.readers.nsys.frames import _op_parts, _without_numbers

PIECES = st.sampled_from([
    "aten::add", "aten::mm", "AddBackward0", "mine", "", ", seq = 7", ", seq = 8", ", op_id = 12", ", op_id = 1x",
    ", sizes = [[2, 3], []]", ", sizes = []", ", input_op_ids = [(3,0), (4,0)]", ", foo = 1", " ", "seq = 5", "é",
])  # fmt: skip


@given(st.lists(st.lists(PIECES, max_size=5).map("".join), max_size=8))
def test_without_their_numbers_texts_name_the_same_ops(texts):
    found, text_of = _without_numbers(texts)
    assert [_op_parts(found[row]) for row in text_of.tolist()[: len(texts)]] == [_op_parts(text) for text in texts]


def test_a_thousand_ops_of_two_kinds_are_two_texts():
    texts = [
        f"aten::{'add' if row % 2 else 'mm'}, seq = {row}, op_id = {row + 9}, sizes = [[4]]" for row in range(1_000)
    ]
    assert _without_numbers(texts)[0] == ["aten::mm, sizes = [[4]]", "aten::add, sizes = [[4]]"]


def test_a_text_that_holds_the_separator_is_left_as_it_is():
    texts = ["aten::add, seq = 1", "a\x00b"]
    assert _without_numbers(texts)[0] == texts
