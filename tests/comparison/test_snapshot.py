"""What of one run is compared: which predictions of it can later be held against another run."""

from __future__ import annotations

import pytest
from folders import FIXTURES
from msgspec.structs import replace
from recorded import recording

from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.records.predictions import Scaling
from perfdoctor.records.savings import Range
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
