"""What of one run is compared: which predictions of it can later be held against another run."""

from __future__ import annotations

import json
import string

import pytest
from builders import draw, draw_steps
from folders import FIXTURES
from msgspec.structs import replace
from recorded import recording

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.snapshot import of_document, of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.costs import TABLE_ROWS
from perfdoctor.model.run import Selection
from perfdoctor.records.predictions import Scaling
from perfdoctor.records.savings import Range
from perfdoctor.report import json_report
from perfdoctor.report.comparison import words
from perfdoctor.vocabulary.rulebook import load_rules

PATH = FIXTURES / "input-bound-single-process" / "torch"
OTHER_SIZES = {
    "a batch of twice the size": {"samples": 2.0},
    "twice the ranks": {"scaling": Scaling(1, 2, Range(0.8, 0.9, 1.0))},
}


def predictions(**changed):
    examination = recording(PATH).examination
    prediction = replace(examination.diagnosis.prediction, **changed)
    diagnosis = replace(examination.diagnosis, prediction=prediction)
    return of_examination("a", replace(examination, diagnosis=diagnosis), load_rules(), [PATH]).predictions


def test_the_step_is_predicted_with_the_first_fixes_and_each_next_one():
    predicted = recording(PATH).diagnosis.prediction
    found = predictions()
    assert tuple(sorted(predicted.fixed)) in {tuple(sorted(rules)) for rules in found}
    assert list(found.values())[-1] == pytest.approx(tuple(predicted.step_ns))


@pytest.mark.parametrize("size", OTHER_SIZES)
def test_what_was_predicted_of_another_size_is_no_prediction_of_the_fixes(size):
    assert predictions()
    assert predictions(**OTHER_SIZES[size]) == {}


def both(timeline, *selection):
    """The snapshot of a recording, and that of its diagnosis.json."""
    rules = load_rules()
    examined = examine(prepare(timeline, *selection), list(rules.values()))
    document = json.loads(json_report.render(examined.diagnosis))
    return of_examination("run", examined, rules, []), of_document("run.json", document, rules)


def test_a_stored_diagnosis_is_of_what_its_recording_is_of():
    drawn = draw_steps(kernels=" ## ", host=[" rr ", " l"])
    one, other = both(drawn, Selection(range_name="forward"))
    assert (one.basis, other.basis) == ("execution", "execution")
    assert compare([one], [other]).step.change == pytest.approx(0)
    rules = load_rules()
    document = json.loads(json_report.render(recording(PATH).diagnosis))
    document["run"]["basis"]["noun"] = "[red]</script>"
    assert of_document("damaged", document, rules).basis == "step"
    del document["run"]["basis"]
    assert of_document("of an earlier version", document, rules).basis == "step"


#: More kernels than a diagnosis lists, each with a length of its own kind: many long ones, and a few short ones.
MANY = string.ascii_letters[: TABLE_ROWS + 4]
LONG = len(MANY) - 6


def many_kernels(first=6, last=2):
    """A recording of many kernels a step, the first and the last of which take so many halves of a ms."""
    lengths = [first] + [6] * (LONG - 1) + [4] * 2 + [2] * 3 + [last]
    names = {letter: f"kernel_of_{letter * 4}" for letter in MANY}
    picture = "".join(letter * units for letter, units in zip(MANY, lengths, strict=True))
    return draw_steps(kernels=f"{picture} ", host=["l" * len(MANY)], kernel_names=names, unit_us=500)


def test_kernels_that_a_stored_diagnosis_does_not_list_are_neither_new_nor_gone():
    one, other = both(many_kernels())
    for sides in ((one, other), (other, one)):
        found = compare(sides[:1], sides[1:])
        assert (found.difference_ns, found.work) == (0, ())
    work = compare([other], [both(many_kernels(first=8, last=3))[0]]).work
    assert [(name, each.fate, each.delta_ns) for each, name in zip(work, words.works(work), strict=True)] == [
        ("kernel_of_aaaa", "grew", 1_000_000), ("kernels that are not listed", "grew", 500_000),
    ]  # fmt: skip
    new = compare([other], [both(many_kernels(last=7))[0]]).work[0]
    assert (new.label, new.fate, new.delta_ns) == (f"kernel_of_{MANY[-1] * 4}", "came", 3_500_000)


@pytest.mark.parametrize("host", ["uuu ", "oob ", "ooo "])
def test_without_a_gpu_a_stored_diagnosis_has_its_work_in_the_phases_of_its_recording(host):
    names = {"b": ("ops", "autograd::engine::evaluate_function: MmBackward0"), "u": ("ops", "Optimizer.step#SGD.step")}
    one, other = both(draw(host=[f"oooo{host}"], legend=names, repeat=6, unit_us=1000))
    assert other.compute == pytest.approx(one.compute, rel=1e-6)
    assert {each.fate for each in compare([one], [other]).causes} == {"same"}
