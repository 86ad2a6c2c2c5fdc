"""Is it said in words how a saving was computed?"""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from report.samples import DERIVATION, INPUT_BOUND
from rich.console import Console

from perfdoctor.records.savings import Bound, DerivedInput, Saving
from perfdoctor.report import html, markdown, terminal
from perfdoctor.report.words import derivations
from perfdoctor.vocabulary.derivations import BOUNDS


@pytest.mark.parametrize(
    ("value", "unit", "source", "said"),
    [
        (9.6, "ms", "recording", "9.60 ms"),
        (110.0, "µs", "recording", "110 µs"),
        (25.25, "GB/s", "data-sheet", "25.2 GB/s"),
        (312.0, "TFLOP/s", "data-sheet", "312 TFLOP/s"),
        (45.0, "%", "recording", "45 %"),
        (250.5, "MB", "recording", "250 MB"),
        (12_000, "count", "recording", "12,000"),
        (0.33, "fraction of the time that it takes", "rule", "0.33"),
        (None, "ms", "recording", "–"),
    ],
)
def test_a_number_has_its_unit(value, unit, source, said):
    assert derivations.amount(DerivedInput("x", value, unit, source, "what it is")) == said


def test_a_document_stands_behind_what_the_number_is():
    given = DerivedInput("x", 1.0, "GB/s", "data-sheet", "the link to the host", "NVIDIA H100: data sheet")
    assert derivations.source(given) == "data sheet"
    assert derivations.about(given) == "the link to the host. NVIDIA H100: data sheet"
    assert derivations.about(replace(given, document="")) == "the link to the host"


def test_each_limit_says_what_it_left():
    ms = 1_000_000
    limited = replace(DERIVATION, bounds=tuple(Bound(by, Saving(ms, 2 * ms, 3 * ms)) for by in BOUNDS))
    said = derivations.limits(limited)
    assert len(said) == len(BOUNDS)
    assert all(each.endswith(": 2.00 ms (1.00 ms to 3.00 ms).") for each in said)
    assert derivations.limits(replace(DERIVATION, bounds=())) == []


def test_page_and_markdown_have_it_folded_and_a_terminal_is_short():
    page = html.render(INPUT_BOUND)
    console = Console(file=io.StringIO(), width=80)
    terminal.render(INPUT_BOUND, console)
    assert "<summary>How the saving was computed</summary>" in page
    assert "<code>exposed_ms × (1 − 1 ÷ pinned_speedup)</code> = 5.76\u00a0ms" in page
    assert "How the saving was computed" not in console.file.getvalue()
    of_a_cause = replace(INPUT_BOUND.findings[0], derivation=DERIVATION)
    text = markdown.render(replace(INPUT_BOUND, findings=(of_a_cause,)))
    assert "<details><summary>How the saving was computed</summary>\n\n- likely: exposed\\_ms × (1 − 1 ÷ pinned" in text
    assert "- link\\_gb\\_per\\_second = – (data sheet): the link to the host. NVIDIA H100: data sheet" in text
