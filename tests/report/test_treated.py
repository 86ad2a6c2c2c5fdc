"""Every report of treatments shows the same numbers, with text of programs escaped."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from perfdoctor.report.treated import html, markdown, terminal, words
from perfdoctor.treatments.records import LossDifference, ShareRange, Together, TreatResult, TrialRun, TriedFix

POISON = "</script><img src=x onerror=alert(1)>[red]\x1b[31m\u202e"


UNDECIDED = TriedFix("a", "A", "", "not decided", measured=ShareRange(-0.01, 0.2, 0.4))
CHANGING = TriedFix("b", "B", "", "changes the numbers", measured=ShareRange(0.1, 0.2, 0.3))


def result(**facts):
    rows = [
        TriedFix("broken", "Break", "", "failed", POISON),
        TriedFix(
            "loader_workers", "Make batches in worker processes", "input-wait", "keep", "",
            ShareRange(0.2, 0.3, 0.4), ShareRange(0.25, 0.31, 0.37), 6, 1, 2.4, (2 << 30, 3 << 30), (0, 0),
            LossDifference("equal", losses=20), "loader = DataLoader(dataset, num_workers=2)",
        ),
        TriedFix(
            "fused_optimizer", "Fuse", "", "changes the numbers", "losses differ from loss 3 on", None,
            ShareRange(None, 0.1, None), 3, loss=LossDifference("differs", "from loss 3 on", 20, 0.02),
        ),
    ]  # fmt: skip
    best = Together(("loader_workers",), rows[1].measured, 6, "", rows[1].loss)
    known = {
        "rows": rows,
        "together": best,
        "runs": [TrialRun(1, ())] * 14,
        "level": 0.05,
        "untreated_ns": 5e7,
        "budget_s": 600,
        "seconds": 300,
    }
    return TreatResult(**{**known, **facts})


def in_terminal(found):
    console = Console(file=io.StringIO(), width=120)
    terminal.render(found, console)
    return console.file.getvalue()


REPORTS = {"terminal": in_terminal, "markdown": markdown.render, "html": html.render}


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_has_the_verdict_the_numbers_and_the_lines_to_paste(name):
    text = REPORTS[name](result()).replace("\xa0", " ").replace("\\", "").replace("\u2060", "")
    for wanted in (
        "a step takes 31 % less time",
        "31 % (25 to 37 %)",
        "30 % (20 to 40 %)",
        "num_workers=2",
        "differs by 2e-02",
        "+1",
    ):
        assert wanted in text, wanted
    assert text.index("loader_workers") < text.index("broken")


@pytest.mark.parametrize("name", REPORTS)
def test_too_few_pairs_have_no_interval_and_amplified_roundings_are_shown_beside_the_control(name):
    rounded = LossDifference("rounding", "", 20, 0.08, 0.0, 0.02)
    row = TriedFix("a", "A", "", "not decided", measured=ShareRange(None, 0.45, None), pairs=2, loss=rounded)
    text = REPORTS[name](result(rows=[row], together=None)).replace("\xa0", " ").replace("\\", "").replace("\u2060", "")
    text = " ".join(text.split())
    assert "45 % (no interval yet)" in text
    assert "∞" not in text
    assert "8e-02" in text
    assert "2e-02" in text


@pytest.mark.parametrize("name", REPORTS)
def test_text_of_a_program_is_shown_and_does_nothing(name):
    text = REPORTS[name](result())
    assert "<img" not in text or name == "terminal"
    assert "\x1b[31m" not in text
    assert "\u202e" not in text


def test_json_has_each_row_and_unknown_ends_are_null():
    document = json.loads(html.json(result()))
    assert document["format"] == 1
    assert document["rows"][2]["measured"] == {"low": None, "likely": 0.1, "high": None}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"together": None, "rows": []}, "no fix to try"),
        ({"together": None, "rows": [CHANGING]}, "Only fixes that change the numbers"),
        ({"together": None, "rows": [CHANGING, UNDECIDED]}, "Not enough was measured"),
        ({"together": None, "rows": result().rows[2:]}, "None of the fixes that were tried is shown to make"),
        ({"together": None, "rows": result().rows[:1]}, "None of the fixes that were tried makes"),
        ({"together": None, "rows": [UNDECIDED]}, "Not enough was measured"),
    ],
)
def test_without_a_fix_to_keep_the_verdict_says_why(facts, said):
    assert said in words.verdict(result(**facts))


@pytest.mark.parametrize(
    ("facts", "said", "left_out"),
    [
        ({"steps_of_turn": 12}, "in turns of 12 steps", "one behind the other"),
        ({"why_alone": "it uses a GPU"}, "one behind the other: it uses a GPU", "in turns"),
        ({"runs": [TrialRun(1, (), others=1.5)] * 3, "cores": 2}, "used 1.5 of 2 cores", "in turns"),
        ({"runs": [TrialRun(1, (), others=0.1)] * 3}, "3 runs", "Other programs"),
    ],
)
def test_it_says_how_it_was_measured(facts, said, left_out):
    text = " ".join(words.how(result(**facts)))
    assert said in text.replace("\xa0", " ").replace("\u2060", "")
    assert left_out not in text
