"""Whoever asks for a table or column as another tool calls it is shown ours."""

import pytest

from perfdoctor.vocabulary.nearest import near
from perfdoctor.vocabulary.spellings import column_hint, spellings, table_hint
from perfdoctor.vocabulary.tables import tables, views

KNOWN = {name: list(each.columns) for name, each in {**tables(), **views()}.items()}
COLUMNS = {column for columns in KNOWN.values() for column in columns}


def test_every_spelling_is_of_a_table_or_column_that_there_is() -> None:
    assert set(spellings("tables")) <= set(KNOWN)
    assert set(spellings("columns")) <= COLUMNS


def test_no_table_is_called_elsewhere_as_another_one_is_here() -> None:
    words = [word for each in spellings("tables").values() for word in each]
    assert len(set(words)) == len(words)
    assert not set(words) & set(KNOWN)
    assert all(
        word == word.lower() for kind in ("tables", "columns") for each in spellings(kind).values() for word in each
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("memcpy", "Here it is called copies."), ("NVTX", "Here it is called ranges."),
        ("nccl", "Here it is called collectives."), ("iterations", "Here it is called steps."),
        ("kernal", "Did you mean kernels"), ("stpes", "Did you mean steps"),
    ],
)  # fmt: skip
def test_a_table_is_found_by_its_name_elsewhere_else_by_its_letters(name: str, hint: str) -> None:
    assert table_hint(name, KNOWN).startswith(hint)


@pytest.mark.parametrize(
    ("table", "name", "hint"),
    [
        ("kernels", "dur", "Here it is called duration_ns."),
        ("kernels", "correlationId", "Here it is called correlation."),
        ("kernels", "step_number", "Here it is called step_id."),
        ("steps", "iteration", "Did you mean "),  # it has no step_id
        ("ops", "shape", "Here it is called input_shapes."),
        ("kernels", "shape", "A column input_shapes is in ops. kernels has: id, rank"),
        ("kernels", "module_id", "A column module_id is in calls, launches"),
        ("steps", "name", "Did you mean number? steps has: id, rank"),  # nearly every other table has it
        ("findings", "qqqq", "findings has: id, rule"),
    ],
)
def test_a_column_is_found_by_its_name_elsewhere_then_in_other_tables_then_by_its_letters(
    table: str, name: str, hint: str
) -> None:
    assert column_hint(name, {table: KNOWN[table]}, KNOWN).startswith(hint)


def test_a_name_like_none_is_answered_with_all_and_one_far_behind_the_best_is_not_shown() -> None:
    assert near("qqqq", ["input-wait", "host-syncs"]) == "There are: input-wait, host-syncs."
    assert near("qqqq", ["input-wait"], "See docs.") == "See docs."
    assert near("input-wiat", ["peer-waits", "input-wait"]) == "Did you mean input-wait?"
    assert near("kernel_totls", ["range_totals", "kernel_totals"]) == "Did you mean kernel_totals, range_totals?"
