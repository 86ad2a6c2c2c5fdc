"""Do ranks that each count from a step of their own begin with the same one?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.recording.attaching.alignment import LEAD_NS, first_steps

_STEP_NS = 10_000_000


@given(
    lengths=st.lists(st.integers(6_000_000, 15_000_000), min_size=12, max_size=40),
    late_ns=st.lists(st.integers(0, 1_500_000), min_size=40, max_size=40),
    began=st.integers(0, 5), later=st.integers(0, 3), missing=st.integers(0, 2),
)  # fmt: skip
def test_ranks_that_began_to_count_at_different_steps_record_the_same_ones(
    lengths: list[int], late_ns: list[int], began: int, later: int, missing: int
) -> None:
    ends, now = [], 0
    for length in lengths:
        now += length
        ends.append(now)
    first, second = ends[later:], [end + late for end, late in zip(ends, late_ns, strict=False)][began:]
    second = second[: len(second) - missing]
    begin = first_steps({1: (len(first), first), 2: (len(second), second)}, now)
    # the counts of both name steps of the whole job: `later` and `began` were in front of the first that was counted
    assert begin[1] + later == begin[2] + began


def test_a_rank_has_time_to_read_the_order() -> None:
    ends = [_STEP_NS * number for number in range(1, 21)]
    begin = first_steps({1: (20, ends), 2: (20, ends)}, ends[-1])
    assert (begin[1] - 20) * _STEP_NS > LEAD_NS


def test_a_rank_alone_begins_with_a_step_to_come() -> None:
    assert first_steps({1: (7, [100])}, 100) == {1: 8}
