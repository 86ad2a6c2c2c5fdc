"""Does every report of a comparison show the same numbers, with text from recordings escaped?"""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from builders import draw_steps
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.report.comparison import html, json_report, markdown, terminal, words
from perfdoctor.report.words.foreign_text import names_apart
from perfdoctor.views.pages import timeline
from perfdoctor.vocabulary.rulebook import load_rules

POISON = "</script><img src=x onerror=alert(1)>[red]\x1b[31m\u202e" + "k" * 5000


def in_terminal(comparison, _):
    console = Console(file=io.StringIO(), width=80)
    terminal.render(comparison, console, show_all=True)
    return console.file.getvalue()


REPORTS = {
    "terminal": in_terminal,
    "markdown": lambda comparison, _: markdown.render(comparison),
    "brief": lambda comparison, _: markdown.brief(comparison),
    "html": html.render,
    "json": lambda comparison, _: json_report.render(comparison),
}


@pytest.fixture(scope="module")
def poisoned():
    rules = load_rules()
    names = ({"#": "gemm_before"}, {"#": POISON})
    runs = [
        examine(
            prepare(draw_steps(kernels="   " + "#" * length, host=["iiil"], kernel_names=name)), list(rules.values())
        )
        for length, name in zip((4, 9), names, strict=True)
    ]
    before, after = (of_examination(POISON, run, rules, []) for run in runs)
    views = {
        side: next(timeline.view(run.run, run.diagnosis)) for side, run in zip(("before", "after"), runs, strict=True)
    }
    return compare([before], [after], anyway=True), views


@pytest.mark.parametrize("name", REPORTS)
def test_text_from_recordings_is_no_markup_and_stays_short(poisoned, name):
    text = REPORTS[name](*poisoned)
    shown = text if name != "html" else re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert name in ("terminal", "json", "brief") or "<img" not in shown
    assert "\x1b[31m" not in text
    assert "\u202e" not in text or name == "json"
    assert name == "json" or "k" * 500 not in shown


def test_the_verdict_is_the_same_in_all_reports(poisoned):
    said = words.verdict(poisoned[0])
    assert said.startswith("Slower, by 1.7×: a mean step of 7.00 ms became 12.0 ms")
    assert said in " ".join(in_terminal(*poisoned).split())
    assert (
        re.sub("[−%]", "", said).split()[:8]
        == re.sub("[−%]", "", markdown.render(poisoned[0])).replace("*", "").split()[:8]
    )


def test_the_waterfall_ends_where_the_step_after_does(poisoned):
    bars = html.bars(poisoned[0])
    assert (bars[0].label, bars[-1].label) == ("before", "after")
    assert bars[0].length + sum(bar.delta_ns for bar in bars[1:-1]) == bars[-1].length
    assert len({bar.start + bar.length + bar.rest for bar in bars}) == 1


@pytest.mark.parametrize(
    ("number", "said"), [(-0.0421, "−4.21 %"), (0.2, "+20.0 %"), (4.0, "+400 %"), (0.0, "0 %"), (None, "–")]
)
def test_shares_have_a_sign(number, said):
    assert words.percent(number) == said


def test_each_column_of_the_causes_sums_to_its_step(poisoned):
    """Also where unrecorded steps are compared, of which recording is taken off."""
    found = poisoned[0]
    step = replace(found.step, before=replace(found.step.before, mean_ns=found.before_ns - 500_000.0))
    found = replace(found, step=step, recording_ns=500_000)
    for most in (0, 1, len(found.causes)):
        shown, below = found.causes[:most], list(words.sums(found, most))
        assert sum(each.delta_ns for each in shown) + sum(ns for *_, ns in below) == (
            found.step.after.mean_ns - found.step.before.mean_ns
        )
    assert below == [("what recording added, taken off", "−500 µs", "0", 500_000)]
    rows = [line for line in markdown.render(found).splitlines() if line.startswith("| ")]
    columns = [[_ns(cell) for cell in row.split("|")[2:4]] for row in rows[2 : len(found.causes) + 4]]
    assert np.sum(columns[:-1], axis=0).tolist() == columns[-1]


def _ns(cell):
    number, unit = cell.strip().replace("−", "-").replace("*", "").split()[:2] if cell.strip(" *0") else ("0", "ns")
    return round(float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6}[unit])


def test_no_line_of_a_terminal_is_wider_than_it(poisoned):
    found = poisoned[0]
    names = tuple(f"at::native::kernel<{each}, std::array<char*, 3>>(int, T1, T2)" for each in "abc")
    row = replace(found.work[0], was=names, now=names[1:])
    shown = in_terminal(replace(found, work=(row, *found.work[1:])), None)
    assert "→" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_work_whose_names_differ_in_the_middle_is_told_apart(poisoned):
    found = poisoned[0]
    common = "at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, "
    rows = tuple(
        replace(found.work[0], label=f"{common}{name}>, std::array<char*, 3>>(int, T2, T3)") for name in ("Mul", "Add")
    )
    shown = words.works(rows, 40)
    assert "Mul" in shown[0]
    assert "Add" in shown[1]
    assert words.works((rows[0], rows[0]), 40)[0] != shown[0]
    assert max(map(len, shown)) <= 40
    both = replace(rows[0], was=(rows[0].label,), now=(rows[1].label,))
    assert len(set(words.renamed(both).split(" → "))) == 2


@given(st.lists(st.text("ab<>", max_size=60), max_size=5), st.integers(16, 40))
def test_no_name_is_longer_than_its_room(texts, limit):
    assert max((len(name) for name in names_apart(texts, limit)), default=0) <= limit
