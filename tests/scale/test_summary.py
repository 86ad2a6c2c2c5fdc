"""Is a rank's summary exact where rules about several ranks look, small, and does it refuse what it does not hold?"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from builders import draw
from folders import ROOT
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.split import split
from perfdoctor.model.packed_columns import Numbers, UnpackedColumns
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import WHOLE_RECORDING
from perfdoctor.scale.reduce import reduced_place
from perfdoctor.scale.summary import MOST_BYTES, checked, moved_together, pack, packed_summary, unpack

KERNELS = st.text("# ", min_size=4, max_size=60)
NCCL = st.text("= ", min_size=4, max_size=60)
COPIES = st.text("h ", min_size=4, max_size=60)


def both(timeline):
    """The place of a timeline, and the same by its summary."""
    (place,) = prepare(timeline).places
    (summary,) = unpack(packed_summary(timeline, WHOLE_RECORDING)).places
    return place, reduced_place(summary, place.rank, timeline, UnpackedColumns())


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_columns_come_back(values):
    column = np.array(values, np.int64)
    if (np.abs(np.diff(column.astype(object))) >= 2**63).any():
        return  # times and sizes are never so far apart
    assert Numbers.of(column).values().tolist() == values


@given(KERNELS, NCCL, COPIES)
def test_between_any_two_edges_of_communication_each_part_takes_what_it_took(kernels, nccl, copies):
    timeline = draw(kernels=kernels, nccl=nccl, copies=copies)
    if not prepare(timeline).places:
        return
    place, reduced = both(timeline)
    communication = place.communication
    edges = np.unique(
        np.concatenate((place.window.starts, communication.starts, communication.ends, place.window.ends))
    )
    for name, pieces in place.parts.items():
        inside = pieces.overlap_ns(edges[:-1], edges[1:])
        assert reduced.parts[name].overlap_ns(edges[:-1], edges[1:]).tolist() == inside.tolist(), name
    assert reduced.exposed_communication == place.exposed_communication
    assert reduced.communication == communication
    assert reduced.idle.total_ns == place.idle.total_ns
    assert sum(pieces.total_ns for pieces in reduced.parts.values()) == reduced.window_ns
    assert split(reduced) == split(place)
    for column in ("start_ns", "end_ns", "bytes", "group_size"):
        assert reduced.collectives[column].tolist() == place.collectives[column].tolist()


#: Asked of a job, and what mypy says of it.
ASKED = {
    "place.window_ns + place.idle_ns('input_wait') + len(place.collectives)": "",
    "split(place).compute_ns": "",
    "place.kernels": '"JobPlace" has no attribute "kernels"',
    "place.host": '"JobPlace" has no attribute "host"',
    "launches(place)": 'incompatible type "JobPlace"; expected "Place"',
    "run.job.mean(exposed_copies_ns)": 'incompatible type "Callable[[Place], float]"',
}


@pytest.mark.thorough
def test_mypy_refuses_what_a_summary_cannot_answer(tmp_path):
    """A rule that took nothing for an answer would say that all is well."""
    head = (
        "from perfdoctor.metrics.accounting.split import split",
        "from perfdoctor.model.launches import launches",
        "from perfdoctor.model.place import Place",
        "from perfdoctor.model.run import Run",
        "def exposed_copies_ns(place: Place) -> float: return place.copying.total_ns",
        "def ask(run: Run) -> None:",
        "    for place in run.job.places:",
    )
    file = tmp_path / "asking.py"
    file.write_text("\n".join([*head, *(f"        {line}" for line in ASKED)]))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(file)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for number, expected in enumerate(ASKED.values(), len(head) + 1):
        line = next((each for each in said.splitlines() if f"asking.py:{number}: error" in each), "")
        assert expected in line if expected else not line, said


def test_a_rank_by_its_summary_has_no_rows_but_collectives():
    _, reduced = both(draw(kernels="#### ##", nccl="  ===  "))
    assert isinstance(reduced, JobPlace)
    assert not isinstance(reduced, Place)
    assert len(reduced.collectives) == 1
    assert not any(hasattr(reduced, name) for name in ("kernels", "host", "work", "copies"))


@pytest.mark.parametrize("name", ["compute_by_family_ns", "matmul_ns_by_math_path", "compute_by_phase_ns"])
def test_a_summary_with_less_than_no_time_of_something_is_damaged(name):
    packed = packed_summary(draw(kernels="## # ## # "), WHOLE_RECORDING)
    assert checked(packed, "a.rank") == packed
    summary = unpack(packed)
    (place,) = summary.places
    split = replace(place.split, **{name: {"other": -1}})
    with pytest.raises(PerfdoctorError, match="a.rank is damaged"):
        checked(pack(replace(summary, places=(replace(place, split=split),))), "a.rank")


def test_fewer_edges_still_add_up():
    timeline = draw(kernels="## # ## # ", nccl="= = = = = ", repeat=20)
    (place,) = prepare(timeline).places
    thinned = moved_together(place, every=16)
    assert {name: pieces.total_ns for name, pieces in thinned.items()} == {
        name: pieces.total_ns for name, pieces in place.parts.items()
    }
    assert sum(map(len, thinned.values())) < sum(map(len, moved_together(place).values()))


def test_a_summary_of_many_collectives_stays_below_a_megabyte():
    timeline = draw(kernels="# ## # ### #", nccl=" =  ==  = = ", repeat=20_000)
    assert len(packed_summary(timeline, WHOLE_RECORDING)) <= MOST_BYTES
