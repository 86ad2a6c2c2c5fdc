"""Who waits for whom at collectives?"""

from __future__ import annotations

from builders import draw, timeline
from collective_builders import described

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.model.timeline import merge

UNIT_NS = 100_000


def ranks(*pictures: str, compute: str = "", **more) -> Skew | None:
    """One picture of collectives a rank."""
    return skew(
        prepare(merge([draw(nccl=nccl, kernels=compute, rank=rank, **more) for rank, nccl in enumerate(pictures)]))
    )


def test_the_rank_that_waits_least_is_the_late_one():
    """Rank 0 stands in the collective for long; rank 2 comes last and is through at once."""
    found = ranks(
        "  ========  ",
        "    ======  ",
        "        ==  ",
    )
    assert found.late_rank == 2
    assert (found.waiting_ns // UNIT_NS).tolist() == [6, 4, 0]
    assert found.transfer_ns == 2 * UNIT_NS
    assert found.caused_ns[:2].tolist() == [0, 0]
    assert found.caused_ns[2] == found.caused_ns.sum() > 0


def test_the_late_rank_costs_what_it_comes_after_the_middle_one():
    found = ranks(
        "  ========  ",
        "    ======  ",
        "        ==  ",
    )
    assert found.caused_ns.sum() == 4 * UNIT_NS


def test_clocks_of_the_ranks_need_not_agree():
    found = ranks("======      ", "          ==")
    assert found.late_rank == 1
    assert (found.waiting_ns // UNIT_NS).tolist() == [4, 0]


def test_several_collectives_may_have_several_last_ranks():
    found = ranks("======  -- ", "==   ------")
    assert found.caused_ns[0] == found.caused_ns[1] > 0
    assert (found.waiting_ns // UNIT_NS).tolist() == [4, 4]


def test_kinds_are_matched_each_for_itself():
    found = ranks("aaa ==  ", "==  a   ")
    assert (found.duration_ns // UNIT_NS).tolist() == [[2, 3], [2, 1]]


def test_where_the_ranks_recorded_different_numbers_of_a_kind_it_is_left_out():
    assert ranks("== -- ", "==    ") is None
    assert (ranks("== -- aa ", "==    aaa").duration_ns // UNIT_NS).tolist() == [[2], [3]]


def test_one_rank_tells_nothing():
    assert ranks("====  ====") is None


def test_several_devices_of_one_rank_are_not_matched():
    both = merge([draw(nccl="====", device=device) for device in (0, 1)])
    assert skew(prepare(both)) is None


def test_ranks_that_recorded_no_collective_are_no_part():
    run = prepare(merge([draw(nccl="==", rank=0), draw(nccl="====", rank=1), draw(kernels="##", rank=2)]))
    assert skew(run).ranks == (0, 1)


def test_equal_ranks_wait_for_nobody():
    found = ranks("====  ----", "====  ----")
    assert found.waiting_ns.sum() == found.caused_ns.sum() == 0


def test_collectives_of_different_groups_are_not_matched():
    """Ranks 0 and 1 reduce in one group, 2 and 3 in another: that one group's message is longer makes nobody late."""
    drawn = [
        draw(nccl=nccl, rank=rank, group=group)
        for rank, (group, nccl) in enumerate([("a", "========"), ("a", "========"), ("b", "==   "), ("b", "==   ")])
    ]
    found = skew(prepare(merge(drawn)))
    assert found is None or found.waiting_ns.sum() == 0


def test_of_a_send_and_a_receive_nobody_is_known_to_be_late():
    """Pipeline stages: the first one sends early and often waits, the last one computes most."""
    found = ranks("ssssss      ", "ss          ")
    assert found is None


def test_a_collective_that_reaches_over_the_edge_of_a_window_on_one_rank_only_still_matches():
    """Each step begins with the copy of its batch. Rank 0 copies it while its last collective still runs, rank 1 after.
    The first step is not marked, so the window begins with the second one's copy.

    ```
    rank 0   copies  hh        hh        hh
             nccl    ==    ======    ======        waits for 4 units
    rank 1   copies     hh        hh        hh
             nccl    ==        ==        ==
    ```
    """
    steps, of = 6, 10
    calls = ("c  l      " * steps).rstrip()
    marks = "".join(str(n or " ") * of for n in range(steps))
    pictures = [("  ", " " * 8 + "======    " * steps), ("    ", " " * 12 + "==        " * steps)]
    found = skew(prepare(merge([
        draw(copies=before + "hh        " * steps, nccl=nccl, host=[calls, marks], host_ahead=1, rank=rank)
        for rank, (before, nccl) in enumerate(pictures)
    ])))  # fmt: skip
    assert found is not None
    assert found.late_rank == 1


def test_groups_of_some_of_the_ranks_are_matched_among_themselves():
    """Two groups of two: in each one rank comes 4 units late, and nobody waits for a rank of the other group."""
    pictures = [("a", "========"), ("a", "    ===="), ("b", "======"), ("b", "    ==")]
    found = skew(prepare(merge([draw(nccl=nccl, rank=n, group=group) for n, (group, nccl) in enumerate(pictures)])))
    assert (found.duration_ns // UNIT_NS).tolist() == [[8, -1], [4, -1], [-1, 6], [-1, 2]]
    assert (found.waiting_ns // UNIT_NS).tolist() == [4, 0, 4, 0]
    assert (found.spent_ns // UNIT_NS).tolist() == [8, 4, 6, 2]
    assert found.transfer_ns == 6 * UNIT_NS
    assert (found.caused_ns // UNIT_NS).tolist() == [0, 4, 0, 4]


def test_the_late_rank_is_the_one_that_others_wait_for_not_the_one_with_least_to_do():
    """Rank 2 is in one collective only, and in time; rank 1 is late in another that rank 2 has no part in."""
    pictures = [("a", "====  ======"), ("a", "====      =="), ("b", "==")]
    drawn = [draw(nccl=nccl, rank=n, group=group) for n, (group, nccl) in enumerate(pictures)]
    assert skew(prepare(merge(drawn))).late_rank == 1


def test_the_root_of_a_broadcast_is_not_late_because_it_is_done_first():
    drawn = [described(draw(nccl=nccl, rank=n), kind="broadcast") for n, nccl in enumerate(["==", "===="])]
    assert skew(prepare(merge(drawn))) is None


def test_several_groups_under_one_name_are_not_matched():
    """Each pair of ranks calls its own group "tp": four ranks are in groups of two."""
    drawn = [
        described(draw(nccl=nccl, rank=n, group="tp"), group_size=2)
        for n, nccl in enumerate(["========", "========", "==", "=="])
    ]
    assert skew(prepare(merge(drawn))) is None


def test_who_has_least_to_send_is_done_first_and_not_late():
    """An all-to-all in which rank 1 has a fifth of the bytes: it is through early although both began together."""
    drawn = [
        described(draw(nccl=nccl, rank=n), kind="all_to_all", bytes=b)
        for n, (nccl, b) in enumerate([("=====", 50), ("=", 10)])
    ]
    run = prepare(merge(drawn))
    assert skew(run) is None
    assert skew(run, with_uneven=True).ranks == (0, 1)
    nearly = [described(each, bytes=size) for each, size in zip(drawn, (50, 48), strict=True)]
    assert skew(prepare(merge(nearly))).late_rank == 1


#: Ends of collectives that no shift maps onto themselves: `at[n]` is where the n-th of them ends.
IRREGULAR = (6, 13, 24, 31, 45, 52, 66, 71, 83, 98, 104, 119)


def rhythm(ends: tuple[int, ...], length: int, *, shift: int = 0) -> str:
    """A picture with a collective of `length` units up to each end."""
    picture = [" "] * (max(IRREGULAR) + shift + 1)
    for end in ends:
        picture[end + shift - length : end + shift] = "=" * length
    return "".join(picture)


def test_ranks_whose_recordings_begin_at_different_moments_are_put_together_by_their_rhythm():
    # Rank 0 began two collectives later and ends one later; each of its collectives takes one unit, rank 1 waits for two.
    found = ranks(rhythm(IRREGULAR[2:], 1, shift=3), rhythm(IRREGULAR[:-1], 3))
    assert found is not None
    assert found.late_rank == 0
    assert found.duration_ns.shape[1] == len(IRREGULAR) - 3
    assert (found.waiting_ns // UNIT_NS).tolist() == [0, 2 * (len(IRREGULAR) - 3)]


def test_ranks_of_different_rhythms_are_not_put_together():
    assert ranks(rhythm(IRREGULAR[2:], 1), rhythm(tuple(120 - end for end in reversed(IRREGULAR)), 2)) is None


def test_collectives_as_regular_as_a_clock_tell_no_place_to_begin():
    regular = tuple(range(6, 120, 8))
    assert ranks(rhythm(regular[2:], 1), rhythm(regular, 3)) is None


def test_waiting_in_two_collectives_at_once_is_waited_once():
    """Rank 1 is 6 units late for two collectives that rank 0 began one unit after the other."""
    pictures = [["========  ", " -------  "], ["      ==  ", "      --  "]]
    found = skew(prepare(merge([draw(nccl=own, rank=rank) for rank, own in enumerate(pictures)])))
    assert (found.waiting_ns // UNIT_NS).tolist() == [6, 0]
    assert (found.spent_ns // UNIT_NS).tolist() == [8, 2]
    assert found.caused_alone_ns(found.late_rank) == found.caused_ns.sum() == 6 * UNIT_NS


def sent_by_threads(late_marks_ns: tuple[int, ...], clock_ns: int = 0) -> Skew:
    """Two ranks that arrive together at four collectives of 10 units; rank 1 marks their ends so much later."""
    rows = {"ops": [], "ranges": []}
    for step, later in enumerate(late_marks_ns):
        for rank in (0, 1):
            own = {"rank": rank, "process": rank}
            at = 1_000_000 + 20 * step * UNIT_NS + rank * clock_ns
            done = at + 15 * UNIT_NS + rank * later
            rows["ops"].append({**own, "start_ns": at, "end_ns": at + 5 * UNIT_NS, "name": "aten::mm"})
            sent = {"start_ns": at + 5 * UNIT_NS, "end_ns": done, "name": "gloo:all_reduce", "thread": 2}
            mark = {"start_ns": at, "end_ns": at + 20 * UNIT_NS, "name": f"ProfilerStep#{step}"}
            rows["ranges"] += [{**own, **sent}, {**own, **mark}]
    return skew(prepare(timeline(**rows, world_size=2)))


def test_of_threads_that_send_the_arrival_counts_and_not_when_they_mark_the_end():
    found = sent_by_threads((3 * UNIT_NS, -3 * UNIT_NS, 2 * UNIT_NS, -2 * UNIT_NS))
    assert found.waiting_ns.tolist() == [0, 0]
    assert found.transfer_ns == 4 * 10 * UNIT_NS


def test_where_their_clocks_differ_the_durations_count():
    found = sent_by_threads((0, 0, 0, 0), clock_ns=3 * UNIT_NS)
    assert found.waiting_ns.tolist() == [0, 0]
    assert found.transfer_ns == 4 * 10 * UNIT_NS
