"""Is a brief diagnosis short, plain and without names of people, whatever a recording holds?"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from report.samples import COMMUNICATION, INPUT_BOUND, POISON, POISONED, SAMPLES, advice
from tables import of_each

from perfdoctor.records.findings import CodeLine
from perfdoctor.report import brief
from perfdoctor.report.brief import unsigned

LINE = CodeLine(
    "/home/ada.l/work/secret-project/src/train.py", 12, "Trainer.step", 41, 0.93,
    ('wandb.login(key="5f0c2e7a"); batch = next(loader)  # /home/ada.l/data',),
)  # fmt: skip
LONG = " ".join(["a sentence of a summary, which is as long as a summary may be,"] * 12)


def many_long_findings():
    """As many lines as a diagnosis can have."""
    found = [
        advice(
            n, f"rule-{n}", LONG, LONG, (1, 9 - n, 9), 701, confidence="low", confidence_because=f"{LONG}; {LONG}",
            lines=(LINE,), fixes=INPUT_BOUND.findings[0].fixes, symptoms=INPUT_BOUND.findings[0].symptoms,
        )
        for n in range(1, 9)
    ]  # fmt: skip
    return replace(COMMUNICATION, findings=tuple(found), notes=(LONG,) * 9, sources=COMMUNICATION.sources * 40)


@of_each("name", list(SAMPLES))
def test_less_than_sixty_lines_that_no_tracker_folds(name):
    lines = brief.render(SAMPLES[name]).splitlines()
    assert len(lines) < 60
    assert max(map(len, lines)) <= brief.WIDTH


def test_the_longest_diagnosis_fits_and_keeps_its_first_finding_and_the_next_command():
    text = brief.render(many_long_findings())
    assert len(text.splitlines()) < 60
    assert "[rule-1]" in text
    assert "smaller findings not shown: rule-" in text
    assert "perfdoctor explain rule-1" in text


def test_all_is_one_block_that_no_name_ends():
    fenced = replace(INPUT_BOUND, findings=(replace(INPUT_BOUND.findings[0], summary=f"``` {POISON} ````"),))
    for diagnosis in (POISONED, fenced):
        lines = brief.render(diagnosis).splitlines()
        assert lines[0] == "```text"
        assert lines[-1] == "```"
        assert not any("```" in line for line in lines[1:-1])
        assert not {c for c in "".join(lines) if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\ud800"}
        assert not any(letter * 200 in line for line in lines for letter in "kswyz")


def test_it_says_what_a_reader_needs():
    text = brief.render(INPUT_BOUND)
    for said in (
        "Fixing it takes 61 % off each 701 ms step", "NVIDIA H100 80GB HBM3", "10 of 12 steps used",
        "idle: waiting for data (input-bound)", "434 ms", "62 %", "1. [input-wait] Training waits for data",
        "saves 431 ms of 701 ms a step, 2.6× (1.9–2.7) · high confidence", "Fix: Load batches in more worker processes",
        "2. [host-syncs] GPU idle after host syncs", "perfdoctor explain input-wait", "Not checked: 3 of 9 rules",
    ):  # fmt: skip
        assert said in text, said


def test_a_rule_of_ones_own_says_where_it_comes_from():
    first = replace(INPUT_BOUND.findings[0], origin="/home/ada.l/work/team/rules")
    assert "1. [input-wait from ~/work/team/rules]" in brief.render(replace(INPUT_BOUND, findings=(first,)))


def test_the_line_of_code_comes_without_the_home_folder_and_without_its_secret():
    first = replace(INPUT_BOUND.findings[0], lines=(LINE,))
    text = brief.render(replace(INPUT_BOUND, findings=(first,)))
    assert "src/train.py:12 in step (41 samples, 93 % of those in that time)" in text
    assert "batch = next(loader)" in text
    assert "ada" not in text
    assert "5f0c2e7a" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/x/train.py:3", "~/x/train.py:3"),
        ("read /Users/ada/a.json", "read ~/a.json"),
        ("/root/a.py and /root", "~/a.py and ~"),
        (r"C:\Users\ada\a.py", r"~\a.py"),
        ("/mnt/nfs/home/ada/a.py", "~/a.py"),
        ("/mnt/data/teams/vision/src/train.py:3", "…/src/train.py:3"),
        (f"{Path.home()}/own.py", "~/own.py"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=***"),
        ('login(api_key="abc")', "login(api_key=***)"),
        ("https://ada:pass@host/x", "https://***@host/x"),
        ("cub::DeviceRadixSortKeys::Policy800<key:int>", "cub::DeviceRadixSortKeys::Policy800<key:int>"),
        ("12 GB/s of 24 GB/s, and/or 3/4", "12 GB/s of 24 GB/s, and/or 3/4"),
        ("https://pytorch.org/docs/stable/data.html", "https://pytorch.org/docs/stable/data.html"),
        ("src/models/net/train.py(42)", "src/models/net/train.py(42)"),
    ],
)  # fmt: skip
def test_places_and_secrets_are_left_out(text, shown):
    assert unsigned(text) == shown
