"""Is a rank's summary exact where rules about several ranks look, small, and does it refuse what it does not hold?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.split import split
from perfdoctor.model.selection import WHOLE_RECORDING
from perfdoctor.scale.reduced_place import NotInSummaryError, reduced_place
from perfdoctor.scale.summary import MOST_BYTES, Columns, Numbers, moved_together, packed_summary, unpack

KERNELS = st.text("# ", min_size=4, max_size=60)
NCCL = st.text("= ", min_size=4, max_size=60)
COPIES = st.text("h ", min_size=4, max_size=60)


def both(timeline):
    """The place of a timeline, and the same by its summary."""
    (place,) = prepare(timeline).places
    (summary,) = unpack(packed_summary(timeline, WHOLE_RECORDING)).places
    return place, reduced_place(summary, place.rank, timeline, Columns())


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


def test_what_a_summary_does_not_hold_is_refused():
    """A rule that took nothing for an answer would say that all is well."""
    _, reduced = both(draw(kernels="#### ##", nccl="  ===  "))
    for ask in (lambda: reduced.kernels, lambda: reduced.host.visible, lambda: len(reduced.work.launch)):
        with pytest.raises(NotInSummaryError):
            ask()


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
