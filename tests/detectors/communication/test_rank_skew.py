"""rank-skew: ranks stand in collectives and wait for one that comes late."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import draw, findings, only_finding, summary

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import merge
from perfdoctor.readers.open import read
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
PAIRS = Path(__file__).parents[3] / "fixtures" / "pairs"


def rank(number: int, arrives: int, *, of: int = 40, compute: str = "#"):
    """Computes until it arrives at the step's collective, which ends for all at the end of the step."""
    return draw(
        kernels=compute * arrives + " " * (of - arrives),
        nccl=" " * arrives + "=" * (of - arrives),
        rank=number,
        repeat=6,
        launched_us_before=50,
        unit_us=1000,
    )


def test_it_fires_and_names_the_rank_that_waits_least():
    finding = only_finding("rank-skew", merge([rank(0, 20), rank(1, 20), rank(2, 20), rank(3, 36)]))
    assert finding.values["late_rank"] == 3
    # ranks 0 to 2 wait 16 ms each
    assert finding.values["waiting_ms"] == pytest.approx(16.0)
    assert finding.values["waiting_percent"] == pytest.approx(40.0)
    assert finding.values["caused_percent"] == 100.0
    assert finding.values["step_ms"] == 40.0
    assert finding.confidence == "high"
    # the middle rank comes 16 ms before the last one
    assert finding.saving_ns_per_step == Saving(8 * MS, 16 * MS, 16 * MS)
    assert "Rank 3 is the straggler, with 100 % of all lateness." in summary(finding)


def test_waiting_is_a_share_of_the_steps_of_those_who_wait():
    """Rank 1's window is a tenth as long: of a mean step of 22 ms nobody waits 36."""
    short = draw(kernels="#" * 40, nccl=" " * 39 + "=", rank=1, repeat=6, launched_us_before=50, unit_us=100)
    finding = only_finding("rank-skew", merge([rank(0, 4), short]))
    assert finding.values["step_ms"] == pytest.approx(22)
    # rank 0 is in the collective for 36 of 40 ms, of which 0.1 are the transfer
    assert finding.values["waiting_percent"] == pytest.approx(100 * 35.9 / 40, abs=0.1)
    assert finding.values["waiting_ms"] < finding.values["step_ms"]


def test_a_rank_that_changes_from_step_to_step_is_uneven_work():
    def rank_of_three(number: int):
        arrives = [30 if step % 3 == number else 10 for step in range(9)]
        return draw(
            kernels="".join("#" * at + " " * (40 - at) for at in arrives),
            nccl="".join(" " * at + "=" * (40 - at) for at in arrives),
            rank=number,
            unit_us=1000,
        )

    finding = only_finding("rank-skew", merge([rank_of_three(number) for number in range(3)]))
    assert finding.values["caused_percent"] == pytest.approx(100 / 3)
    assert finding.saving_ns_per_step.likely == finding.values["waiting_ms"] * 1e6  # no more than all that is waited
    assert finding.confidence == "medium"


def test_it_stays_silent_just_below_the_threshold():
    # one of two ranks waits 2 units: 2 of 80 are 2.5 %, 2 of 33 are 6 %
    assert findings("rank-skew", merge([rank(0, 20, of=80), rank(1, 22, of=80)])) == []
    assert len(findings("rank-skew", merge([rank(0, 20, of=33), rank(1, 22, of=33)]))) == 1


def test_it_stays_silent_where_all_ranks_arrive_together():
    """A long collective on every rank is a slow transfer, not a late rank."""
    assert findings("rank-skew", merge([rank(0, 10), rank(1, 10)])) == []


def test_it_stays_silent_where_compute_hides_the_waiting():
    def busy(number: int, arrives: int):
        nccl = " " * arrives + "=" * (40 - arrives)
        return draw(kernels="#" * 40, nccl=nccl, rank=number, repeat=6, launched_us_before=50)

    assert findings("rank-skew", merge([busy(0, 10), busy(1, 36)])) == []


def test_it_stays_silent_where_collectives_do_not_match():
    one, two = (
        rank(0, 20),
        draw(kernels="#" * 8 + " " * 4, nccl=" " * 8 + "aaaa", rank=1, repeat=6, launched_us_before=50),
    )
    assert findings("rank-skew", merge([one, two])) == []


def test_pipeline_stages_that_send_to_each_other_are_not_late():
    """A send ends for one rank alone: the first stage waits in it because it has less to compute."""

    def stage(number: int, arrives: int):
        nccl = " " * arrives + "s" * (40 - arrives)
        return draw(kernels="#" * arrives, nccl=nccl, rank=number, repeat=6, launched_us_before=50, unit_us=1000)

    assert findings("rank-skew", merge([stage(0, 10), stage(1, 36)])) == []


def test_its_table_lists_the_rank_that_waits_least_first():
    table = only_finding("rank-skew", merge([rank(0, 20), rank(1, 36)])).evidence[2]
    # a collective reaches from step to step only with its full length, five of six steps are used
    assert [row[0] for row in table.rows] == [1, 0]
    assert [row[2] for row in table.rows] == [0, 16 * MS]
    assert [row[3] for row in table.rows] == [16 * MS, 0]


def test_waiting_in_two_collectives_at_once_is_waited_once():
    def both(number: int, arrives: int):
        nccl = [" " * arrives + char * (40 - arrives) for char in "=-"]
        kernels = "#" * arrives + " " * (40 - arrives)
        return draw(kernels=kernels, nccl=nccl, rank=number, repeat=6, launched_us_before=50, unit_us=1000)

    finding = only_finding("rank-skew", merge([both(0, 4), both(1, 38)]))
    # rank 0 waits from 4 to 38, once
    assert finding.values["waiting_ms"] == pytest.approx(34.0)
    assert finding.saving_ns_per_step.high == pytest.approx(34 * MS)


def late(before: str, *, host: str = ""):
    """Three ranks of which the last comes 16 ms late; `before` is what its device does in these 16 ms."""
    return merge(
        [
            rank(0, 20),
            rank(1, 20),
            draw(
                kernels="#" * 20 + before + " " * 4,
                nccl=" " * 36 + "=" * 4,
                host=[host] if host else (),
                rank=2,
                repeat=6,
                launched_us_before=50,
                unit_us=1000,
            ),
        ]
    )


@pytest.mark.parametrize(
    ("before", "host", "situation", "share"),
    [
        ("#" * 16, "", "compute", 100),
        ("#" * 12 + " " * 4, " " * 32 + "i" * 4 + " " * 4, "compute", 75),
        (" " * 16, " " * 20 + "i" * 16 + " " * 4, "input", 100),
        (" " * 16, " " * 20 + "g" * 16 + " " * 4, "host", 100),
    ],
)
def test_it_tells_what_the_late_rank_did_instead(before, host, situation, share):
    finding = only_finding("rank-skew", late(before, host=host))
    assert finding.values["late_rank"] == 2
    assert finding.situation == situation
    assert finding.values["instead_percent"] == pytest.approx(share, abs=1)
    doing = finding.evidence[3]
    # the window begins with the late rank's first collective: four of five stretches of 16 ms lie in it
    assert sum(row[1] for row in doing.rows) == pytest.approx(16 * MS * 4 / 5)


@pytest.mark.parametrize(
    ("before", "host", "lines_in"),
    [
        (" " * 16, " " * 20 + "g" * 16 + " " * 4, ((2, "garbage_collection"),)),
        (" " * 16, " " * 20 + "i" * 16 + " " * 4, ((2, "input_wait"),)),
        (" " * 16, "", ()),  # nobody knows why
        ("#" * 16, "", ()),
    ],
)
def test_only_of_known_idle_time_is_a_line_of_the_late_rank_the_reason(before, host, lines_in):
    assert only_finding("rank-skew", late(before, host=host)).lines_in == lines_in


WAITS = "s" * 30


def with_host(number: int, *, kernels: str, nccl: str, calls: str, ops: str):
    return draw(kernels=kernels, nccl=nccl, host=[calls, ops], rank=number, repeat=6, unit_us=10)


def one_slow_host(ops: str = "o" * 13 + " " + "o" * 14 + " " + "o" * 11):
    """Two ranks launch at once and wait for the device; the third launches as much, and its device waits for it."""
    quick = [with_host(n, kernels="#" * 10 + "+" * 10, nccl=" " * 20 + "=" * 20, calls="l  l  l   " + WAITS, ops="oo oo oo") for n in (0, 1)]  # fmt: skip
    late = with_host(2, kernels="#" * 10 + " " * 6 + "+" * 10, nccl=" " * 32 + "=" * 8, calls="l" + " " * 14 + "l" + " " * 15 + "l" + " " * 8, ops=ops)  # fmt: skip
    return merge([*quick, late])


def test_a_host_that_is_slower_at_the_same_work_does_nothing_else():
    finding = only_finding("rank-skew", one_slow_host())
    assert (finding.values["late_rank"], finding.situation) == (2, "slower-host")
    # three calls and three ops on each rank; ops of 38 units together, elsewhere of 6
    assert finding.values["rows_per_step"] == pytest.approx(finding.values["other_rows_per_step"], rel=0.1)
    assert finding.values["slower"] > 3
    assert "Its host is slower at the same work" in summary(finding)
    (first, *_) = finding.evidence[-1].rows
    assert first[0] == "aten::add"
    assert first[2] > 3 * first[3]
    fixes = [fix for fix in load_rules()["rank-skew"].fixes if fix.fits(finding.situation, frozenset({"gpu", "torch"}))]
    assert [fix.title for fix in fixes] == ["Give each rank its own cores, next to its GPU", "Find what slows the cores of this rank's process"]  # fmt: skip


def test_a_host_that_makes_more_calls_and_ops_has_other_work():
    finding = only_finding("rank-skew", one_slow_host("oo" + " o" * 18))
    assert finding.situation == "more-work"
    assert "Its host has more to do: 22 calls and ops a step, the others 6" in summary(finding)


def test_a_host_that_is_neither_slower_nor_busier_is_only_late():
    assert only_finding("rank-skew", one_slow_host("oo oo oo")).situation == "late-host"


def test_the_code_that_a_late_host_is_in_while_it_launches_nothing_is_named():
    """Rank 2 makes the calls of the others, each as quickly, and stands in a range before that, as in a sleep."""
    late = {"kernels": " " * 30 + "#" * 4, "nccl": " " * 34 + "=" * 6, "host": ["r" * 28 + "  ll" + " " * 8]}
    other = {"kernels": "#" * 4 + " " * 36, "nccl": "    " + "=" * 36, "host": ["ll" + " " * 38]}
    legend = {"r": ("ranges", "# sparse part")}
    drawn = merge([
        draw(**(late if rank == 2 else other), legend=legend, rank=rank, repeat=6, unit_us=1000, launched_us_before=10)
        for rank in range(3)
    ])  # fmt: skip
    finding = only_finding("rank-skew", drawn)
    assert (finding.values["late_rank"], finding.situation) == (2, "pause")
    assert finding.values["pause_ms"] == pytest.approx(38, abs=1)
    assert "most of it in `# sparse part`" in summary(finding)
    first = next(fix for fix in load_rules()["rank-skew"].fixes if fix.fits("pause", frozenset({"gpu", "torch"})))
    assert first.title == "Take the pause out of the step"


def test_its_host_alone_is_what_launch_bound_finds():
    found = diagnose(one_slow_host(), list(load_rules().values())).findings
    assert found[0].rule == "rank-skew"
    assert "launch-bound" in {symptom.rule for symptom in found[0].symptoms}


def test_what_a_straggler_costs_ends_where_the_last_but_one_comes():
    """Arrivals at 10, 24 and 36 of 40: with the last one in time all would wait for the second."""
    finding = only_finding("rank-skew", merge([rank(0, 10), rank(1, 10), rank(2, 24), rank(3, 36)]))
    assert finding.saving_ns_per_step.likely == pytest.approx(12 * MS, rel=0.01)
    assert finding.saving_ns_per_step.high == pytest.approx((26 + 26 + 12) / 3 * MS, rel=0.01)
    assert finding.confidence == "high"


def test_no_rank_is_the_clear_straggler_where_another_comes_just_before_it():
    finding = only_finding("rank-skew", merge([rank(0, 10), rank(1, 10), rank(2, 34), rank(3, 36)]))
    assert finding.values["caused_percent"] == 100.0
    assert finding.confidence == "medium"
    # both in time as the middle ones, which come at 22 of 40
    assert finding.saving_ns_per_step.likely == pytest.approx(14 * MS, rel=0.01)


def test_without_one_main_thing_it_says_nothing_of_it():
    finding = only_finding("rank-skew", late("#" * 8 + " " * 8, host=" " * 28 + "g" * 8 + " " * 4))
    assert finding.situation == ""
    assert summary(finding).endswith("of all lateness.")


def test_work_that_one_rank_has_more_of_is_spread_and_not_gone():
    """Recorded: 512 and 1,536 rows, so three times the FLOP; evenly spread, the late rank keeps 1,024 of them."""
    run = prepare(read([PAIRS / "uneven-rows"]))
    finding = only_finding("rank-skew", run)
    assert finding.situation == "uneven-work"
    assert finding.values["more_flop_percent"] == pytest.approx(200)
    late, other = (run.places[rank].compute.total_ns / run.places[rank].units for rank in (1, 0))
    assert finding.saving_ns_per_step.likely == pytest.approx((late - other) / 2, rel=0.2)
