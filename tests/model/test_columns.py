"""Is each different text of a column classified once, and are numbers found alike with a table and by sorting?"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.model import columns
from perfdoctor.model.columns import Text, distinct, firsts, numbered, places

ASKED: list[str] = []


def is_short(value: str) -> bool:
    ASKED.append(value)
    return len(value) < 3


def first_letter(value: str) -> str:
    ASKED.append(value)
    return value[:1]


def length(value: str) -> int:
    ASKED.append(value)
    return len(value)


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    ASKED.clear()


def names() -> Text:
    return Text.of(["ab", "b", "ab", "abc", "c"])


def test_a_function_is_asked_once_for_each_different_text():
    text = names()
    assert text.where(is_short).tolist() == text.where(is_short).tolist() == [True, True, True, False, True]
    assert sorted(ASKED) == ["ab", "abc", "b", "c"]


def test_columns_that_share_texts_share_the_answers():
    text = names()
    part = text.take(np.array([0, 3]))
    assert part.where(is_short).tolist() == [True, False]
    assert sorted(ASKED) == ["ab", "abc"], "values without a row are not asked about"
    assert text.where(is_short).tolist() == [True, True, True, False, True]
    assert sorted(ASKED) == ["ab", "abc", "b", "c"]
    assert text.take(text.equals("c")).where(is_short).tolist() == [True]
    assert len(ASKED) == 4


DIGITS = ["a", "7", "07", "17", "x1", "b", "\u0663", " "]
PATTERNS = ["a", r"\d", r"^\d+$", r"a\d\d", r"\bb", "7", "[0-6]", r"(?P<it>\d)(?P=it)", r"\d{2}", r"\N{DIGIT SEVEN}", "[+-;]7?",
            "[/-:]", r"\w\W", "(?<!a)x"]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(DIGITS), max_size=4).map("".join), max_size=30), st.sampled_from(PATTERNS))
def test_texts_that_differ_in_digits_alone_are_asked_once_where_the_pattern_knows_no_digit(values, pattern):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "_MANY_VALUES", 1)
        text = Text.of(values).take(np.arange(len(values))[::-1])
        assert text.matches(re.compile(pattern)).tolist() == [bool(re.search(pattern, v)) for v in reversed(values)]


def test_a_thousand_numbered_texts_are_one_text_for_a_pattern():
    asked: list[str] = []

    class Pattern:
        pattern = "^op"

        def search(self, value: str) -> bool | None:
            asked.append(value)
            return value.startswith("op") or None

    assert Text.of([f"op {row}" for row in range(1_000, 2_000)]).matches(Pattern()).all()  # type: ignore[arg-type]
    assert asked == ["op 0000"]


def test_classes_and_numbers_are_kept_as_well():
    text = names()
    for _ in range(2):
        assert list(text.mapped(first_letter)) == ["a", "b", "a", "a", "c"]
        assert text.take(np.array([3])).numbers(length).tolist() == [3]
    assert text.has(length, 1, 3).tolist() == [False, True, False, True, True]
    assert text.classified(first_letter) == ["a", "b", "a", "c"], "one a text, not one a row"
    assert len(ASKED) == 8, "four texts, once for each of the two functions"
    assert text.mapped(first_letter).values is text.take(np.array([1])).mapped(first_letter).values


def test_amounts_are_summed_over_the_rows_of_each_text_that_occurs():
    text = Text.of(["a", "b", "a", "c"]).take(np.array([0, 2, 3]))
    assert text.sums(np.array([1, 2, 4]), np.array([0.5, 0.5, 0.0])) == [("a", 2, 3, 1.0), ("c", 1, 4, 0.0)]
    assert text.take(np.zeros(3, dtype=bool)).sums(np.empty(0)) == []


def test_one_function_may_answer_several_kinds_of_question():
    text = Text.of(["ab", ""])
    assert text.where(length).tolist() == [True, False]
    assert text.numbers(length).tolist() == [2, 0]


def test_a_pattern_is_searched_once_for_each_different_text(monkeypatch):
    text, pattern = names(), re.compile("^a")
    assert text.matches(pattern).tolist() == [True, False, True, True, False]
    monkeypatch.setattr(text, "values", ["changed"] * len(text.values))
    assert text.matches(re.compile("^a")).tolist() == [True, False, True, True, False], "an equal pattern is the same"
    assert not text.matches(re.compile("^a", re.IGNORECASE)).any(), "another one is asked"


def test_equality_may_be_with_any_of_several():
    text = names()
    assert text.equals("c", "ab").tolist() == [True, False, True, False, True]
    assert text.take(np.array([1, 4])).equals("c", "ab").tolist() == [False, True]
    assert (
        Text.of([]).equals("c").tolist()
        == Text.of([]).has(length, 1).tolist()
        == Text.of([]).numbers(length).tolist()
        == []
    )


def test_a_lambda_is_asked_again():
    text = names()
    for wanted in ("a", "b"):
        assert text.where(lambda value: value == wanted).tolist() == text.equals(wanted).tolist()  # noqa: B023
        assert text.mapped(lambda value: value + wanted)[0] == "ab" + wanted  # noqa: B023


def test_a_method_is_asked_again():
    class Wanted:
        value = "b"

        def is_it(self, value: str) -> bool:
            return value == self.value

    wanted, text = Wanted(), names()
    assert text.where(wanted.is_it).sum() == 1
    wanted.value = "ab"
    assert text.where(wanted.is_it).sum() == 2


def test_what_is_answered_may_be_changed_by_those_who_asked():
    text = names()
    for _ in range(2):
        answers: Any = text.where(is_short)
        assert answers.tolist() == [True, True, True, False, True]
        answers[:] = False


def test_texts_that_were_joined_are_asked_about_anew():
    text = names()
    text.where(is_short)
    joined = Text.join([text, Text.of(["zzz"])])
    assert joined.where(is_short).tolist() == [True, True, True, False, True, False]


_NUMBERS = st.lists(st.integers(-5, 40) | st.integers(-(1 << 60), 1 << 60), min_size=1, max_size=30)


@given(known=_NUMBERS, wanted=_NUMBERS)
def test_numbers_are_found_alike_with_a_table_and_by_sorting(known, wanted):
    column = np.array(known, np.int64)
    unique, codes = numbered(column)
    assert unique.tolist() == distinct(column).tolist() == sorted(set(known))
    assert unique[codes].tolist() == known
    assert firsts(codes).tolist() == [known.index(value) for value in sorted(set(known))]
    places_of = places(column, np.array(wanted, np.int64)).tolist()
    assert places_of == [known.index(value) if value in known else -1 for value in wanted]
