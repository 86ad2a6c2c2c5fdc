"""On recordings that were made: public ones edited so that the truth is known, and programs recorded here."""

from __future__ import annotations

from typing import Any

import pytest
from folders import RECORDINGS
from labels import paths, wrong
from made_recordings import made_cases

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules

pytestmark = pytest.mark.recordings
CASES = made_cases(RECORDINGS if RECORDINGS.is_dir() else None)


def parameter(case: dict[str, Any]) -> object:
    """A program takes some seconds to be recorded, and a busy machine lengthens what was not planted."""
    marks = [pytest.mark.thorough, pytest.mark.torch] if "program" in case else []
    marks += [pytest.mark.xfail(reason=case["missed"])] if "missed" in case else []
    return pytest.param(case, id=case["path"], marks=marks)


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_every_label_of_a_made_recording_holds_and_its_parts_are_exact(case: dict[str, Any]) -> None:
    if "fails" in case:
        with pytest.raises(PerfdoctorError, match=case["fails"]):
            read(paths(case, RECORDINGS))
        return
    diagnosis = diagnose(read(paths(case, RECORDINGS)), list(load_rules().values()))
    assert list(wrong(case, diagnosis)) == []
    for row in (*diagnosis.time, *diagnosis.recording):
        assert row.compute_ns + row.exposed_communication_ns + row.exposed_copy_ns + row.idle_ns == row.window_ns
        assert sum(row.idle_causes_ns.values()) == row.idle_ns
