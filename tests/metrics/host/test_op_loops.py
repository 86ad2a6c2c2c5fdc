"""Which ops are turns of a loop?"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.metrics.host.op_loops import FEWEST_TURNS, turns_of

SEQUENCES = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.sampled_from([1, 5, 31, 32, 33, 40])), max_size=4
)


def naive(name: list[int], group: list[int]) -> list[int]:
    """The shortest sequence first, each op compared with the one a turn later."""
    turns = [0] * len(name)
    for ops in range(1, len(name) // FEWEST_TURNS + 1):
        at = 0
        while at < len(name):
            end = at
            while end + ops < len(name) and (name[end], group[end]) == (name[end + ops], group[end + ops]):
                end += 1
            if end - at >= (FEWEST_TURNS - 1) * ops:
                for row in range(at, end + ops):
                    turns[row] = turns[row] or (end - at + ops) // ops
            at = end + 1
    return turns


@given(SEQUENCES, st.integers(0, 200))
def test_turns_are_those_of_a_plain_comparison(parts, edge):
    name = [each for sequence, times in parts for each in sequence * times]
    group = [int(row >= edge) for row in range(len(name))]
    assert turns_of(np.array(name, np.int64), np.array(group, np.int64)).tolist() == naive(name, group)
