"""Does every report of a comparison show the same numbers, with text from recordings escaped?"""

from __future__ import annotations

import io
import re

import pytest
from builders import draw_steps
from rich.console import Console

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.report.comparison import brief, html, json_report, markdown, terminal, words
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
    "brief": lambda comparison, _: brief.render(comparison),
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
    return compare([before], [after]), views


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
    assert said.startswith("Slower: a mean step of 7.00 ms became 12.0 ms")
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
