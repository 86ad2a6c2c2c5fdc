"""Waits that compute hides still push what is queued behind them; recomputed by sliding the chain forward by hand."""

import numpy as np
import pytest

from perfdoctor.metrics.communication.pushed_back import pushed_back_ns
from perfdoctor.model.intervals import Intervals

QUEUED_NS = 20


def pushed(collectives, waits, compute_until):
    starts, ends = np.array(collectives).T
    exposed = Intervals.of(starts, ends) - Intervals.single(0, compute_until)
    return pushed_back_ns(starts, ends, Intervals.of(*np.array(waits).T), exposed, QUEUED_NS)


@pytest.mark.parametrize(
    ("collectives", "waits", "compute_until", "goes"),
    [
        # The wait is hidden, but what it pushes is not; the last was asked for when compute was over, and stays.
        ([(1000, 1800), (1800, 2100), (2100, 2400)], [(1000, 1500)], 2000, 100),
        # The last one begins when compute is over: its transfer stays, however long the wait before it was.
        ([(1000, 2000), (2000, 2300)], [(1000, 1700)], 2000, 0),
        # A wait that nothing hides goes wholly.
        ([(1000, 1800)], [(1000, 1500)], 1000, 500),
        # A pause between them: the second was not queued behind the first.
        ([(1000, 1800), (1900, 2200)], [(1000, 1500)], 1900, 0),
        # Waits in two of them push together: the second would be over 10 ns after compute.
        ([(1000, 1800), (1810, 2500)], [(1000, 1500), (1810, 2200)], 2100, 390),
        # Two at the same time are one chain.
        ([(1000, 1800), (1100, 2000)], [(1000, 1500)], 1700, 300),
    ],
)
def test_what_a_wait_pushes_out_of_compute_goes_with_it(collectives, waits, compute_until, goes):
    assert pushed(collectives, waits, compute_until) == goes
