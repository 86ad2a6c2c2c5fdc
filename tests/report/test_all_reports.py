"""Does every report show every diagnosis, with text from a trace escaped?"""

from __future__ import annotations

import io
import json
import re

import pytest
from msgspec.structs import replace
from report.samples import ASKED, COMMUNICATION, GROWING, INPUT_BOUND, NOTHING, POISONED, SAMPLES
from rich.console import Console
from tables import of_each

from perfdoctor.records.findings import with_symptoms
from perfdoctor.report import annotations, brief, html, json_report, markdown, sarif, terminal
from perfdoctor.report.words.foreign_text import clean_name


def in_terminal(diagnosis, **how):
    console = Console(file=io.StringIO(), width=80, **how)
    terminal.render(diagnosis, console)
    return console.file.getvalue()


def in_colour(diagnosis):
    return in_terminal(diagnosis, force_terminal=True, color_system="truecolor")


REPORTS = {
    "terminal": in_terminal,
    "markdown": markdown.render,
    "html": html.render,
    "json": json_report.render,
}


@pytest.fixture(params=REPORTS)
def report(request):
    return REPORTS[request.param]


@of_each("name", list(SAMPLES))
def test_every_diagnosis_has_a_report(report, name):
    text = report(SAMPLES[name])
    assert text.encode()
    assert "\x00" not in text


@of_each("name", list(SAMPLES))
def test_every_finding_and_its_symptoms_are_named(report, name):
    text = report(SAMPLES[name])
    for advice in SAMPLES[name].findings[:5]:
        assert advice.rule in text
        assert all(symptom.rule in text for symptom in advice.symptoms)


def test_a_long_note_and_a_long_sentence_are_shown_whole(report):
    words = " ".join(f"word{number}" for number in range(150))
    first, *others = INPUT_BOUND.findings
    said = replace(
        INPUT_BOUND, notes=(words,), findings=(replace(first, summary=words.replace("word", "said")), *others)
    )
    text = report(said)
    assert all(f"word{number}" in text and f"said{number}" in text for number in range(150))


@of_each("name", list(SAMPLES))
def test_a_forge_gets_every_finding_that_saves_time_at_its_line(name):
    findings = list(with_symptoms(SAMPLES[name].findings))
    places = {each.rule: (f"at {each.rank}.py", each.rank) for each in findings}
    (run,) = json.loads(sarif.render(SAMPLES[name], places))["runs"]
    assert [each["ruleId"] for each in run["results"]] == [clean_name(each.rule) for each in findings]
    where = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert [each["region"]["startLine"] for each in where] == [places[each.rule][1] for each in findings]
    first, *others = annotations.render(SAMPLES[name], places).splitlines()
    assert first.startswith("::notice title=perfdoctor::")
    assert len(others) == min(sum(bool(each.saved.likely) for each in findings), 10)
    assert all(re.fullmatch(r"::warning file=at \d+\.py,line=\d+,title=[^:]+::.+", line) for line in others)


@of_each("name", list(SAMPLES))
def test_a_notebook_shows_every_finding_with_its_symptoms_and_where_its_rule_comes_from(name):
    findings = tuple(replace(advice, origin="perf/my rules") for advice in SAMPLES[name].findings)
    text = html.cell(replace(SAMPLES[name], findings=findings))
    for advice in findings[:5]:
        assert f"{advice.rule} from perf/my rules" in text
        assert all(f"({symptom.rule})" in text for symptom in advice.symptoms)


def test_skipped_and_failed_rules_are_named(report):
    assert "rank-skew" in report(INPUT_BOUND)
    assert "ZeroDivisionError" in report(COMMUNICATION)
    assert "record with --trace=cuda,nvtx" in report(NOTHING)


@pytest.mark.parametrize("render", [in_terminal, markdown.render, html.render, html.cell, brief.render])
def test_a_finding_that_costs_no_time_predicts_no_saving_and_is_not_healthy(render):
    text = render(GROWING)
    assert "costs memory, no time" in text
    assert not any(words in text for words in ("Nothing worth fixing", "1.00×", "saves ", "Fixing it"))


@pytest.mark.parametrize("render", [in_terminal, markdown.render, html.render])
def test_a_prediction_is_shown_stage_by_stage(render):
    text = render(INPUT_BOUND).replace("\u00a0", " ")
    assert all(words in text for words in ("as recorded", "701 ms", "270 ms", "−431 ms", "252 ms", "−18.0 ms"))
    assert "input-wait=50%" in render(ASKED)


@pytest.mark.parametrize("render", [in_terminal, markdown.render, html.render, html.cell, brief.render])
def test_control_characters_of_a_trace_do_not_come_out(render):
    text = render(POISONED)
    assert not {character for character in text if ord(character) < 32 or 127 <= ord(character) < 160} - {"\n"}
    assert "\u202e" not in text


@pytest.mark.parametrize("render", [in_terminal, markdown.render])
def test_names_of_five_thousand_characters_are_shortened(render):
    assert not any(letter * 200 in render(POISONED) for letter in "kswyz")


def test_colour_is_the_only_escape_sequence_in_a_terminal():
    plain = Console(file=io.StringIO(), width=80, force_terminal=True, no_color=True)
    assert "\x1b[31m" not in in_colour(POISONED)
    assert "\x1b]" not in in_colour(POISONED)
    terminal.render(INPUT_BOUND, plain)
    assert "38;2" not in plain.file.getvalue()


@of_each("width", [40, 80, 100, 200])
@of_each("name", ["input_bound", "asked", "no_steps", "nothing"])
def test_no_line_is_wider_than_the_terminal(name, width):
    console = Console(file=io.StringIO(), width=width)
    terminal.render(SAMPLES[name], console)
    longest = max(len(line) for line in console.file.getvalue().splitlines())
    assert longest <= max(width, 60)


def test_without_unicode_the_bar_is_ascii():
    class Latin(io.StringIO):
        encoding = "ascii"

    console = Console(file=Latin(), width=80)
    terminal.render(COMMUNICATION, console)
    bar = console.file.getvalue().split("One step")[1].splitlines()[1]
    assert bar.isascii()
    assert bar.startswith("####")


def test_more_than_five_findings_are_shown_only_on_request():
    assert "rule-7" not in in_terminal(POISONED)
    assert "2 smaller findings not shown: --all" in in_terminal(POISONED)
    console = Console(file=io.StringIO(), width=80)
    terminal.render(POISONED, console, show_all=True)
    assert "rule-8" in console.file.getvalue()


def test_markdown_has_no_live_markup_of_a_trace():
    outside_code = "".join(markdown.render(POISONED).split("```")[::2])
    assert "<img" not in outside_code
    assert "</script" not in outside_code
    assert "@all" not in outside_code
