"""Is it known that ranks are missing, and what do collectives take at most then?"""

from __future__ import annotations

import pytest
from builders import draw
from collective_builders import MIB, described

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.nodes import largest_transfer_share, ranks_missing, ranks_of_job
from perfdoctor.model.timeline import merge


def two_ranks(**more):
    return merge([draw(kernels="####    ", nccl="    ====", rank=rank, repeat=4, **more) for rank in (0, 1)])


def test_ranks_are_missing_by_the_jobs_size_or_by_that_of_a_group():
    assert ranks_missing(prepare(two_ranks())) == 0
    assert ranks_missing(prepare(two_ranks(world_size=8))) == 6
    grouped = prepare(described(two_ranks(), group_size=4))
    assert (ranks_of_job(grouped), ranks_missing(grouped)) == (4, 2)


def of_lengths(*lengths: int):
    width = max(lengths) + 2
    return draw(
        nccl="".join("=" * length + " " * (width - length) for length in lengths), kernels="#" * width * len(lengths)
    )


def test_a_collective_takes_no_longer_than_the_shortest_of_its_size():
    timeline = of_lengths(2, 6, 4)
    assert largest_transfer_share(prepare(described(timeline, bytes=MIB, group_name="0"))) == pytest.approx(6 / 12)
    # those of other sizes say nothing about each other, and neither do those of unknown size
    assert largest_transfer_share(
        prepare(described(timeline, bytes=[MIB, 2 * MIB, 2 * MIB], group_name="0"))
    ) == pytest.approx(10 / 12)
    assert largest_transfer_share(prepare(timeline)) == 1.0
    assert largest_transfer_share(prepare(described(timeline, bytes=MIB))) == 1.0  # they may be of several groups
    assert largest_transfer_share(prepare(draw(kernels="##", repeat=3))) == 1.0
