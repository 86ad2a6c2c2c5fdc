"""`rules new` begins a rule that works, and `rules check` names whatever breaks the contract that ours keep."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from folders import ROOT
from own_rule_files import DETECTOR, DOCUMENT, write
from tables import of_each
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.detectors import RuleError
from perfdoctor.diagnosis.calibration import spread_of
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.communication.collectives import bus_factor
from perfdoctor.own_rules import contract, document_contract, notes, recordings
from perfdoctor.own_rules.drawn import timeline
from perfdoctor.own_rules.tried import found_in, tried
from perfdoctor.rule_testing import draw, draw_steps, findings
from perfdoctor.system.toml_tables import parsed
from perfdoctor.vocabulary.own_rules import all_rules
from perfdoctor.vocabulary.rulebook import load_rules, rule_files

TESTED = contract._tested
TRACES = ROOT / "fixtures" / "straggler" / "torch"
TEST = """
from pathlib import Path

from perfdoctor.rule_testing import draw_steps, findings

RULE = Path(__file__).with_name("slow-add.toml")


def test_it_finds_adds():
    (finding,) = findings(RULE, draw_steps(kernels="####eeee"))
    assert 49 < finding.values["kernels_percent"] < 51


def test_it_is_silent_without_them():
    assert findings(RULE, draw_steps(kernels="########")) == []
"""


def run(*arguments, code=0):
    done = CliRunner().invoke(app, ["rules", *(str(argument) for argument in arguments)])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # How fast all rules of ours are takes a second, and is tested once.
    monkeypatch.setattr(contract, "_speed", lambda rule: contract.Speed(1, 0.0, 1.0))


def folder_with(tmp_path, document=DOCUMENT, detector=DETECTOR, test=TEST):
    folder = write(tmp_path / "rules", document, detector)
    if test is not None:
        (folder / "test_slow_add.py").write_text(test, "utf-8")
    return folder


#: What only the rule's own test shows, which takes a second to start.
SHOWN_BY_TEST = (
    "is in no sentence", "and the finding states", "no [derivation]", "of its test", "`doubt`", "the end of the step",
)  # fmt: skip


#: Those in which the broken rules here break; all of them take a second.
FEW = [each for each in recordings.recordings() if each[0] in ("kernels alone", "four ranks", "no names")]


@pytest.fixture
def few(monkeypatch):
    """The rule is tried in few recordings."""
    monkeypatch.setattr(recordings, "recordings", lambda: iter(FEW))


@pytest.fixture
def untested(few, monkeypatch):
    """And its own test, which takes a second to start, is not run."""
    monkeypatch.setattr(contract, "_tested", lambda *_, **__: ([], iter(()), []))


def problems_with(folder, said, monkeypatch):
    if not any(words in said for words in SHOWN_BY_TEST):
        monkeypatch.setattr(contract, "_tested", lambda *_: ([], iter(()), []))
    else:
        monkeypatch.setattr(contract, "_tested", TESTED)
    return "\n".join(problems(folder))


def problems(folder):
    known = all_rules([str(folder)])
    (rule,) = (rule for rule in known.values() if rule.origin)
    return contract.check(rule, known).problems


# --- a new rule ---


def test_a_new_rule_works_and_only_its_words_are_missing(tmp_path):
    begun = run("new", "acme/slow-tokenizer", "--into", "perf")
    assert begun.stdout.split() == [
        "perf/slow-tokenizer.toml", "perf/slow_tokenizer.py", "perf/test_slow_tokenizer.py",
    ]  # fmt: skip
    assert "it finds time in which the GPU waits in a range" in begun.stderr
    left = problems(tmp_path / "perf")
    assert left
    assert all(each.endswith("still says TODO") for each in left)
    for file in (tmp_path / "perf").iterdir():
        file.write_text(re.sub(r'(?<=title = ")TODO a', "A", file.read_text("utf-8")).replace("TODO", "Words"), "utf-8")
    assert "1 of 1 rule keeps the contract." in run("check", "perf").stdout


@pytest.mark.parametrize(
    "named", ["slow-tokenizer", "Acme/Slow", "acme/slow_tokenizer", "a/b/c", "perfdoctor/x", "acme/../x", ""]
)
def test_what_is_no_id_begins_nothing(named, tmp_path):
    assert "NAMESPACE/NAME" in run("new", named, "--into", "perf", code=2).output
    assert not (tmp_path / "perf").exists()


def test_nothing_is_overwritten(tmp_path):
    run("new", "acme/slow-tokenizer", "--into", "perf")
    (tmp_path / "perf" / "slow_tokenizer.py").write_text("mine", "utf-8")
    (tmp_path / "perf" / "slow-tokenizer.toml").unlink()
    assert "is there already" in run("new", "acme/slow-tokenizer", "--into", "perf", code=1).output
    assert (tmp_path / "perf" / "slow_tokenizer.py").read_text("utf-8") == "mine"
    assert not (tmp_path / "perf" / "slow-tokenizer.toml").exists()


# --- what is checked ---


def test_a_sound_rule_keeps_it(tmp_path):
    folder_with(tmp_path)
    said = run("check", "rules", "--on", TRACES).stdout
    assert said.startswith("ok  acme/slow-add  16 recordings; its test: found in 1, silent in 1")


def test_it_is_said_what_a_rule_finds_in_a_recording_of_its_author(tmp_path, monkeypatch):
    folder = folder_with(tmp_path, DOCUMENT.replace("value = 0.001", "value = 0.3").replace('action = "kernels"', ""))
    shows = {
        "long": draw_steps(kernels="####eeee"),
        "short": draw_steps(kernels="########ee"),
        "other": draw_steps(kernels="####"),
        "empty": timeline(),
    }
    also = "is about 100% of the time of the same kernels: name it in symptom_of or explains, or see whether it says enough"
    monkeypatch.setattr(notes, "load_rules", lambda: {"the-same": rule, "another": load_rules()["fp64-kernels"]})
    known = all_rules([str(folder)])
    rule = known["acme/slow-add"]
    assert [note for each in shows.items() for note in notes.of_recording(rule, *each)] == [
        "long: found: 4.0 ms of a 8.0 ms step are 1 adds (50 %). Saves 0.4 to 4.0 ms.",
        f"long: acme/slow-add, a rule of perfdoctor, {also}",
        "short: below its threshold: 2.0 ms of a 10.0 ms step are 1 adds (20 %). Saves 0.2 to 2.0 ms.",
        "other: nothing found",
        "empty: skipped, it lacks kernels, any work to account for",
    ]


BROKEN_DOCUMENTS = {
    "an unheard-of field": (DOCUMENT.replace("[thresholds.min", 'colour = "red"\n[thresholds.min', 1), "colour: there is no such field"),
    "a title that ends": (DOCUMENT.replace("too long", "too long."), "ends with a full stop"),
    "no reference": (DOCUMENT.replace('["https://example.org/adds"]', "[]"), "references is empty"),
    "a reference without https": (DOCUMENT.replace("https://example", "http://example"), "does not begin with https"),
    "another status": (DOCUMENT.replace('"preview"', '"new"'), "status is"),
    "no version": (DOCUMENT.replace('"1.0.0"', '"1"'), "since is a version"),
    "a threshold without why": (DOCUMENT.replace("Less is not seen in any training of ours.", ""), "min_share_of_step has no why"),
    "a share of five": (DOCUMENT.replace("value = 0.001", "value = 5"), "a share is above 0"),
    "an unused threshold": (DOCUMENT + '[thresholds.least_bytes]\nvalue = 1\nunit = "bytes"\nwhy = "So."\n', "least_bytes is declared"),
    "one number": (DOCUMENT.replace("{kernels_ms:.1f} ms of a {step_ms:.1f} ms step are {kernels_per_step:.0f} adds ({kernels_percent:.0f} %)", "{kernels_ms:.1f} ms"), "two numbers"),
    "a number without its unit": (DOCUMENT.replace("{kernels_ms:.1f} ms of a {step_ms:.1f} ms", "{kernels_ms:.1f} of a {step_ms:.1f}"), "{kernels_ms} is in ms"),
    "percent without a sign": (DOCUMENT.replace("{kernels_percent:.0f} %", "{kernels_percent:.0f}"), "{kernels_percent} is in %"),
    "a value that nothing names": (DOCUMENT.replace(" ({kernels_percent:.0f} %)", ""), "the value kernels_percent of a finding is in no sentence"),
    "an input that nothing names": (DOCUMENT.replace('high = "{kernels_ms}"', 'high = "{kernels_ms}"', 1).replace("[derivation.inputs]", '[derivation.inputs]\nstep_ms = { source = "recording", what = "a step" }'), "has the input step_ms, which no formula names"),
    "another formula": (DOCUMENT.replace('formula = "{saved', 'formula = "0.5 × {saved'), "and the finding states"),
    "no derivation": (re.sub(r"\[derivation\].*(?=\[\[fix)", "", DOCUMENT, flags=re.DOTALL), "there is no [derivation]"),
    "a formula of more than arithmetic": (DOCUMENT.replace('high = "{kernels_ms}"', "high = \"__import__('os').getpid() × {kernels_ms}\""), "is no plain arithmetic"),
    "a title that is no verb": (DOCUMENT.replace('"Add less"', '"Adding less"'), "begins with a verb"),
    "code that is none": (DOCUMENT.replace("x = y", "x = = y"), "is no Python"),
    "work without an action": (DOCUMENT.replace('action = "kernels"', ""), 'the document has no action = "kernels"'),
    "two faults at once": (DOCUMENT.replace('"kernels"\nsince', '"colour"\nsince').replace('"minutes"', '"weeks"'), "slow-add.toml: the effort of a fix is"),
    "a formula of a name that is none": (DOCUMENT.replace('low = "{saved_share_low}', 'low = "{saved_shares_low}'), "names saved_shares_low"),
    "a share in percent": (DOCUMENT.replace('unit = "fraction of step time"', 'unit = "percent"'), "is in percent: a share is a number from 0 to 1"),
    "no code": (DOCUMENT.replace("x = y", ""), "has no code to paste"),
    "a fix that fits nobody": (DOCUMENT.replace('effort = "minutes"', 'effort = "minutes"\nwhen = ["compiled"]'), "no fix is left"),
    "a cause that is no rule": (DOCUMENT.replace("[thresholds.min", 'symptom_of = ["input-waits"]\n[thresholds.min', 1), "symptom_of names input-waits"),
    "a situation that never comes": (DOCUMENT.replace("[thresholds.min", '[summaries]\nhuge = "{kernels_ms:.1f} ms of a {step_ms:.1f} ms step."\n[thresholds.min', 1), "no recording of its test is of the situation 'huge'"),
    "a broken document": ("id = ", "slow-add.toml"),
}  # fmt: skip
BEGIN = "    found = of_kernels"
BROKEN_DETECTORS = {
    "no docstring": (DETECTOR.replace('"""Adds that take long."""', ""), "no docstring"),
    "a hidden threshold": (DETECTOR.replace(BEGIN, "    if run.step_ns > 5e6:\n        return\n" + BEGIN), "line 16: 5000000.0 judges"),
    "what is not public": (DETECTOR.replace("import re\n", "import re\nfrom perfdoctor.metrics.units import ms\n"), "perfdoctor.metrics.units may change"),
    "an undeclared threshold": (DETECTOR.replace(BEGIN, "    if not run:\n        at['least']\n" + BEGIN), "at['least'] is no threshold"),
    "a crash where nothing was recorded": (DETECTOR.replace(BEGIN, "    run.step_ns / len(run.timeline.calls)\n" + BEGIN), "ZeroDivisionError"),
    "a crash on other names": (DETECTOR.replace(BEGIN, "    [name[0] for name in run.timeline.kernels.name.values]\n" + BEGIN), "IndexError"),
    "another finding each time": (
        DETECTOR.replace("def adds", "COUNT = iter(range(99))\n\n\ndef adds").replace(
            "found.kernel_values()", "{**found.kernel_values(), 'kernels_per_step': next(COUNT)}"
        ),
        "same twice",
    ),
    "a confidence without doubt": (DETECTOR.replace('"high"', '"low"'), "no `doubt` says why"),
    "more than the step": (DETECTOR.replace(".of(found.ns)", ".of(found.ns * 1000)"), "it is in ns a step"),
    "an action on all kernels for a finding about some": (
        DETECTOR.replace("import of_kernels", "import Finding, of_kernels").replace("found.finding(", "Finding(")
        .replace("saving=", "saving_ns_per_step="),
        "a replay shortens all kernels, 11.2 ms a step",
    ),
    "work of another signal": (
        DETECTOR.replace("import of_kernels", "import Finding, of_kernels").replace("found.finding(", "Finding(")
        .replace("saving=", "work={place.rank_and_device: place.copies.start_ns > 0 for place in run.places}, saving_ns_per_step="),
        "is one bool for each of the place's kernels",
    ),
    "writing": (DETECTOR.replace(BEGIN, "    run.timeline.kernels.end_ns.sort()\n" + BEGIN), "read-only"),
}  # fmt: skip
BROKEN_TESTS = {
    "none": (None, "there is none"),
    "one that fails": (TEST.replace("49 < ", "51 < "), "it fails"),
    "nothing found": (TEST.replace('    (finding,) = findings(RULE, draw_steps(kernels="####eeee"))\n    assert 49 < finding.values["kernels_percent"] < 51', "    pass"), "finds something in none"),
    "never silent": (TEST.replace('assert findings(RULE, draw_steps(kernels="########")) == []', "pass"), "is silent in none"),
    "another rule": ("def test_nothing():\n    pass\n", "never calls"),
}  # fmt: skip


@of_each("document,said", BROKEN_DOCUMENTS)
def test_a_broken_document_is_named(few, tmp_path, monkeypatch, document, said):
    assert said in problems_with(folder_with(tmp_path, document), said, monkeypatch)


@of_each("detector,said", BROKEN_DETECTORS)
def test_a_broken_detector_is_named(few, tmp_path, monkeypatch, detector, said):
    assert said in problems_with(folder_with(tmp_path, detector=detector), said, monkeypatch)


@of_each("test,said", BROKEN_TESTS)
def test_a_test_that_shows_nothing_is_named(few, tmp_path, test, said):
    (tmp_path / "rules" / "test_slow_add.py").unlink(missing_ok=True)
    assert said in "\n".join(problems(folder_with(tmp_path, test=test)))


def test_a_recording_that_lacks_what_the_rule_needs_is_said_to_its_author(tmp_path):
    folder = folder_with(tmp_path, DOCUMENT.replace('["kernels", "places"]', '["kernels", "steps"]'))
    with pytest.raises(PerfdoctorError, match="the recording has no steps"):
        findings(folder / "slow-add.toml", draw(kernels="ee"))


def test_a_signal_that_is_read_and_not_needed_is_noted(untested, tmp_path):
    reading = DETECTOR.replace(BEGIN, "    if len(run.timeline.ops) or run.timeline['calls']:\n        pass\n" + BEGIN)
    folder = folder_with(tmp_path, DOCUMENT.replace('["kernels", "places"]', '["calls", "places"]'), reading)
    known = all_rules([str(folder)])
    (noted,) = contract.check(known["acme/slow-add"], known).notes
    assert noted.startswith("slow_add.py: line 16: it reads ops, which needs has not")


def test_a_signal_that_is_read_by_another_name_or_by_a_helper_is_noted(untested, tmp_path):
    helper = "def rows(recording):\n    return recording['functions']\n"
    begin = "    all_of_it = run.timeline\n    for signal in ('os_', 'stack_'):\n        all_of_it[{'os_': 'os_calls'}.get(signal, 'ops')]\n"
    reading = DETECTOR.replace("import re", "import re\n\nfrom . import helper").replace(
        BEGIN, f"{begin}    helper.rows(all_of_it)\n{BEGIN}"
    )
    folder = folder_with(tmp_path, DOCUMENT, reading)
    (folder / "helper.py").write_text(helper, "utf-8")
    known = all_rules([str(folder)])
    noted = contract.check(known["acme/slow-add"], known).notes
    assert [each.partition(",")[0] for each in noted] == [
        "helper.py: line 2: it reads functions", "slow_add.py: line 20: it reads ops",
        "slow_add.py: line 20: it reads os_calls",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("needs", "unread"),
    [
        ('["kernels", "places"]', []),
        ('["kernels", "places", "ops"]', ["ops"]),
        ('["kernels|ops", "steps"]', []),
        ('["kernels", "copies|collectives", "calls"]', ["copies|collectives", "calls"]),
    ],
)
def test_a_signal_that_is_needed_and_read_nowhere_is_noted(untested, tmp_path, needs, unread):
    folder = folder_with(tmp_path, DOCUMENT.replace('["kernels", "places"]', needs))
    known = all_rules([str(folder)])
    notes = contract.check(known["acme/slow-add"], known).notes
    assert notes == tuple(
        f"slow_add.py: needs has {each}, which it reads nowhere: a recording without is skipped for nothing"
        for each in unread
    )


def test_a_test_that_fails_is_one_line_where_lines_are_asked_for(few, tmp_path):
    folder_with(tmp_path, test=TEST.replace("49 < ", "51 < "))
    (line,) = run("check", "rules", "--quiet", code=3).stdout.splitlines()
    assert line == "rules/test_slow_add.py: it fails: test_it_finds_adds - assert 51 < 50.0"


def test_a_sentence_that_names_what_a_finding_has_not_is_said_as_in_a_report(tmp_path):
    folder = folder_with(tmp_path, DOCUMENT.replace("{kernels_ms:.1f}", "{kernel_ms:.1f}"))
    with pytest.raises(RuleError, match=r"slow-add\.toml: a sentence names kernel_ms, which the finding has not"):
        findings(folder / "slow-add.toml", draw_steps(kernels="####eeee"))


@pytest.mark.parametrize(("lanes", "said"), [
    ({"kernels": "#c"}, "no kernel letter 'c': name it in kernel_names="),
    ({"nccl": "z"}, "no nccl letter 'z': take one of = -"),
    ({"copies": "z"}, "no copies letter 'z'"),
    ({"host": ["z"]}, "no host letter 'z': name it in legend="),
])  # fmt: skip
def test_a_letter_that_means_nothing_is_named(lanes, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        draw(**lanes)


def test_drawing_mistakes_name_what_was_meant():
    for drawing in (draw, draw_steps):
        line = inspect.currentframe().f_lineno + 2
        with pytest.raises(TypeError) as error:
            drawing(kernel="####")
        assert f"{error.value}" == (
            f"test_contract.py:{line}: {drawing.__name__} has no argument 'kernel'. Did you mean kernels?"
        )
    with pytest.raises(ValueError, match=r"^test_contract\.py:\d+: no kernel letter 'Z': name it in kernel_names"):
        draw_steps(kernels="ZZ")
    with pytest.raises(ValueError, match="3 launching calls are drawn .* and 1 kernels"):
        draw(kernels="####", host=["lll"])
    with pytest.raises(ValueError, match="group_size=-1"):
        draw(nccl="====", bus_gigabytes_per_second=100)


def test_drawn_collectives_have_a_size_a_group_a_type_and_a_bus_bandwidth():
    drawn = draw(nccl="==== --", group="0", group_size=8, data_type="BFloat16", bus_gigabytes_per_second=100)
    rows = drawn.collectives
    assert rows.text("data_type").equals("BFloat16").all()
    assert (rows["group_size"] == 8).all()
    moved = [
        bus_factor(kind, 8) * size / ns
        for kind, size, ns in zip(rows.text("kind"), rows["bytes"].tolist(), rows.duration_ns.tolist(), strict=True)
    ]
    assert moved == pytest.approx([100, 100])
    assert draw(nccl="==", nccl_bytes=5).collectives["bytes"].tolist() == [5]


def test_an_unknown_field_is_named_with_its_line_and_the_nearest_one(tmp_path):
    found = problems(folder_with(tmp_path, DOCUMENT.replace("references =", "referenes = []\nreferences =", 1)))
    number = DOCUMENT[: DOCUMENT.index("references =")].count("\n") + 1
    assert f"slow-add.toml: line {number}: referenes: there is no such field. Did you mean references?" in found


def test_a_saving_ends_at_what_its_author_states(tmp_path):
    """Measured savings are those of our rules: around the likely one of another they widen no range beyond its high."""
    folder = folder_with(tmp_path, DOCUMENT.replace('action = "kernels"', "").replace("value = 0.5", "value = 0.9"))
    found = tried(all_rules([str(folder)])["acme/slow-add"], draw_steps(kernels="####eeee"))
    (advice,) = found.advice
    assert 0.9 * spread_of("kernels").high > 1
    assert advice.saving_ns_per_step.high == found.findings[0].saving_ns_per_step.high == 4_000_000


def test_a_slow_rule_is_named(untested, tmp_path, monkeypatch):
    monkeypatch.setattr(contract, "_speed", lambda rule: contract.Speed(200_000, 2.0, 1.0))
    (said,) = problems(folder_with(tmp_path))
    assert said.startswith("slow_add.py: it takes 2 s for 200,000 kernels, all rules of perfdoctor 1 s")


def test_what_is_wrong_is_printed_one_a_line_and_ends_with_3(untested, tmp_path):
    folder_with(tmp_path, DOCUMENT.replace("too long", "too long."))
    assert (
        run("check", "rules", "--quiet", code=3).stdout
        == "rules/slow-add.toml: the title ends with a full stop: it is a heading\n"
    )
    assert "0 of 1 rule keeps the contract." in run("check", "rules", code=3).stdout


def test_a_recording_that_is_not_there_is_a_wrong_usage(tmp_path):
    folder_with(tmp_path)
    assert "there is no such recording" in run("check", "rules", "--on", "nowhere", code=2).output


# --- ours ---


def test_our_own_documents_keep_what_others_are_held_to():
    rules = load_rules()
    broken = {
        path.stem: found
        for path in rule_files()
        if (found := list(document_contract.problems(parsed(path.read_text("utf-8")), rules[path.stem], rules)))
    }
    assert broken == {}


def test_our_own_rules_raise_in_none_of_the_recordings():
    for name, recording in recordings.recordings():
        for rule in load_rules().values():
            assert isinstance(found_in(rule, recording), list), (name, rule.id)


def test_many_rows_are_steps_of_two_ranks():
    found = recordings.many_rows(5_000)
    assert len(found.kernels) == pytest.approx(5_000, rel=0.02)
    assert found.ranks == (0, 1)
    (name, once), *_ = [each for each in recordings.recordings() if each[0] == "four ranks"]
    assert (name, len(once.ranks)) == ("four ranks", 4)
    assert found_in(load_rules()["rank-skew"], once) or found_in(load_rules()["exposed-communication"], once)


def test_a_rule_is_checked_within_seconds_and_its_speed_is_known(tmp_path):
    folder = folder_with(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "perfdoctor", "rules", "check", folder.name],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert re.search(r"ms for 19\d,\d{3} kernels \(all rules of perfdoctor: \d+ ms\)", done.stdout)
    assert sorted(path.name for path in Path(folder).iterdir()) == ["slow-add.toml", "slow_add.py", "test_slow_add.py"]
