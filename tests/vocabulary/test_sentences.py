"""A part of a sentence stands where what it names is known."""

from __future__ import annotations

import pytest

from perfdoctor.vocabulary.sentences import filled

CLAUSES = {"line": " in `{line}`{ms_clause}", "ms": " for {ms:.1f} ms"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"line": "a.py(1)", "ms": 2.04}, "It waits in `a.py(1)` for 2.0 ms."),
        ({"line": "a.py(1)", "ms": 0.0}, "It waits in `a.py(1)`."),
        ({"line": "", "ms": 2.0}, "It waits."),
        ({"line": "{ms} {0}", "ms": 0}, "It waits in `{ms} {0}`."),  # a name from a recording is text
    ],
)
def test_parts_that_are_known_are_said(values, said):
    assert filled("It waits{line_clause}.", values, CLAUSES) == said


@pytest.mark.parametrize("template", ["{nobody_knows}", "{ms_clause}", "{other_clause}"])
def test_what_is_missing_is_an_error(template):
    with pytest.raises(KeyError):
        filled(template, {"line": ""}, CLAUSES)


@pytest.mark.parametrize(
    ("us", "said"), [(999.4, "999 µs each"), (4903.0, "4.9 ms each"), (1_234_567.0, "1,235 ms each")]
)
def test_a_thousand_microseconds_are_told_in_milliseconds(us, said):
    assert filled("{us:,.0f} µs each", {"us": us}, {}) == said
    assert filled("`read 5000 bytes`, {us:.0f} ops", {"us": 3.0}, {}) == "`read 5000 bytes`, 3 ops"
