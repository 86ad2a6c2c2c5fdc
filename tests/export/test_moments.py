"""Are the moments that an exported trace shows found again, and does a damaged one cost no more than a line?"""

from __future__ import annotations

import gzip
import io
import random

import perfetto_file
import pytest
from folders import FIXTURES
from recorded import recording

from perfdoctor.errors import PerfdoctorError
from perfdoctor.export import perfetto
from perfdoctor.export.moments import moments
from perfdoctor.metrics.accounting.longest import analysed_span
from perfdoctor.records.findings import Span

CASES = ("input-bound-workers/nsys", "straggler/torch", "communication-exposed/torch", "sync-drains-queue/torch")


def exported(case: str) -> bytes:
    return b"".join(perfetto.render(recording(FIXTURES / case).examination))


@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_the_findings(case):
    examination = recording(FIXTURES / case).examination
    zero, _ = analysed_span(examination.run)
    expected = {}
    for advice in [each for first in examination.diagnosis.findings for each in (first, *first.symptoms)]:
        spans = [each for each in advice.evidence if isinstance(each, Span)]
        if spans:
            name = f"{advice.rank}. {advice.rule}: {advice.title}"
            expected[name] = {(zero + each.start_ns, zero + each.end_ns) for each in spans}
    found = moments(io.BytesIO(exported(case)))
    assert expected
    assert {each.finding for each in found} == set(expected)
    # Times before 0 shift a whole file; these have none.
    assert all((each.start_ns, each.end_ns) in expected[each.finding] for each in found)


def test_they_are_where_another_reader_sees_the_slices():
    data = exported(CASES[1])
    shown = perfetto_file.read(data)
    evidence = {(each.start, each.end) for each in shown.slices if each.category == "evidence"}
    assert {(each.start_ns, each.end_ns) for each in moments(io.BytesIO(data))} <= evidence


def test_what_is_no_trace_of_ours_is_refused():
    for data in (b"", b"{}" * 100, gzip.compress(exported(CASES[0]))):
        if not data:
            assert moments(io.BytesIO(data)) == []
            continue
        with pytest.raises(PerfdoctorError):
            moments(io.BytesIO(data))


def test_a_damaged_trace_is_an_error_that_is_said_or_has_fewer_moments():
    data, chance = exported(CASES[0])[:60_000], random.Random(5)
    for _ in range(300):
        damaged = bytearray(data[: chance.randrange(1, len(data))])
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            moments(io.BytesIO(bytes(damaged)))
        except PerfdoctorError as error:
            assert error.do
