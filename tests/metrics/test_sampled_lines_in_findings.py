"""Do findings about the host name the line that was sampled in their idle, and only that?"""

from __future__ import annotations

import pytest
from builders import BASE_NS, draw, only_finding, only_place, summary
from sampling import sampled

from perfdoctor.findings import Rows
from perfdoctor.metrics.sampled_lines import FEWEST_SAMPLES
from perfdoctor.timeline.model import Timeline

MS = 1_000_000
OF_MS, STEPS = 40, 6
LABEL = "Lines of your own code meanwhile, sampled"
IDLE, BUSY = "train.py(25): log_metrics ← train.py(60): main", "train.py(20): step"
SCALAR = {"v": ("ops", "aten::_local_scalar_dense")}


def working(**more) -> Timeline:
    """The host is in an op while the device is busy, and in nothing recorded in its idle, the last 10 ms of a step."""
    host = ["l" + " " * 39, "o" * 29 + " " * 11]
    return draw(kernels="#" * 30 + " " * 10, host=host, repeat=STEPS, unit_us=1000, **more)


def reading() -> Timeline:
    host = ["l " + "s" * 38, "  " + "v" * 38, "o" + " " * 39]
    return draw(kernels=" " + "#" * 30 + " " * 9, host=host, repeat=STEPS, unit_us=1000, legend=SCALAR)


def unknown() -> Timeline:
    """Nothing tells who launched the work."""
    return draw(
        kernels="#" * 30 + " " * 10, host=["o" * 40], repeat=STEPS, unit_us=1000, recorded=["kernels", "ops", "ranges"]
    )


def issuing() -> Timeline:
    return draw(kernels="#   " * 10, host=["lqqq" * 10, "o" * 40], repeat=STEPS, unit_us=1000)


CASES = {
    "host-work": (working, "host_work"),
    "host-syncs": (reading, "host_sync"),
    "item-syncs": (reading, "host_sync"),
    "idle-unknown": (unknown, "unknown"),
    "launch-bound": (issuing, "launch_bound"),
}


def seen(drawn: Timeline, cause: str, interval_ns: int = MS, stack: str = IDLE) -> Timeline:
    """Sampled at `stack` whenever the device was idle for this cause, elsewhere at another line."""
    pieces = only_place(drawn).idle_causes[cause]
    assert pieces.total_ns > 0

    def line_at(ns: int) -> str:
        return stack if any(begin <= ns < end for begin, end in pieces) else BUSY

    return sampled(drawn, line_at, begin_ns=BASE_NS, end_ns=BASE_NS + STEPS * OF_MS * MS, interval_ns=interval_ns)


def tables(finding) -> list[Rows]:
    return [each for each in finding.evidence if isinstance(each, Rows) and each.label == LABEL]


@pytest.mark.parametrize("rule", CASES)
def test_a_finding_shows_the_line_that_was_sampled_in_its_idle(rule):
    build, cause = CASES[rule]
    drawn = seen(build(), cause)
    (table,) = tables(only_finding(rule, drawn))
    pieces = only_place(drawn).idle_causes[cause]
    ((line, callers, count, about_ns),) = table.rows
    assert (line, callers) == ("train.py(25): log_metrics", "train.py(60): main")
    at = drawn["line_samples"].start_ns.tolist()
    assert count == sum(any(begin <= ns < end for begin, end in pieces) for ns in at)
    assert about_ns == pytest.approx(pieces.total_ns / only_place(drawn).units, abs=1)


@pytest.mark.parametrize("rule", CASES)
def test_without_samples_or_with_too_few_it_shows_none_and_saves_the_same(rule):
    build, cause = CASES[rule]
    plain, few, many = build(), seen(build(), cause, interval_ns=45 * MS), seen(build(), cause)
    assert len(few["line_samples"]) <= FEWEST_SAMPLES
    found = [only_finding(rule, drawn) for drawn in (plain, few, many)]
    assert [len(tables(each)) for each in found] == [0, 0, 1]
    assert found[0].saving_ns_per_step == found[1].saving_ns_per_step == found[2].saving_ns_per_step
    assert found[0].confidence == found[2].confidence


def test_host_work_names_the_line_that_holds_the_larger_part_and_says_that_it_was_sampled():
    finding = only_finding("host-work", seen(working(), "host_work"))
    assert (finding.situation, finding.values["name"]) == ("sampled", "train.py(25): log_metrics")
    assert finding.values["name_ms"] == pytest.approx(10.0)
    assert "going by samples, about 10.0 ms of it on the line `train.py(25): log_metrics`" in summary(finding)


@pytest.mark.parametrize(("own_of_ten", "situation"), [(4, ""), (5, "sampled"), (6, "sampled")])
def test_host_work_names_no_line_that_holds_the_smaller_part(own_of_ten, situation):
    """In each step's 10 ms of idle so many samples are at one line, the rest in libraries alone."""
    drawn = working()

    def line_at(ns: int) -> str:
        into_ms = (ns - BASE_NS) // MS % OF_MS
        return IDLE if into_ms >= OF_MS - own_of_ten else ""

    drawn = sampled(drawn, line_at, begin_ns=BASE_NS, end_ns=BASE_NS + STEPS * OF_MS * MS, interval_ns=MS)
    finding = only_finding("host-work", drawn)
    assert finding.situation == situation
    assert bool(finding.values["name"]) == bool(situation)
    assert len(tables(finding)) == 1


def test_what_was_recorded_is_named_before_what_was_sampled():
    host = ["l" + " " * 39, "o" * 29 + " " * 11, " " * 29 + "m" * 11]
    drawn = draw(
        kernels="#" * 30 + " " * 10, host=host, repeat=STEPS, unit_us=1000, legend={"m": ("ranges", "metrics")}
    )
    finding = only_finding("host-work", seen(drawn, "host_work"))
    assert (finding.situation, finding.values["name"]) == ("named", "metrics")
    assert len(tables(finding)) == 1


def test_item_syncs_shows_the_lines_behind_its_own_calls_alone():
    """Every other sync is no read: its line is evidence for host-syncs, not for item-syncs."""
    host = ["l " + "s" * 18 + "l " + "s" * 18, "  " + "v" * 18, "o" + " " * 39]
    kernels = " " + "#" * 10 + " " * 9 + " " + "#" * 10 + " " * 9
    drawn = draw(kernels=kernels, host=host, repeat=STEPS, unit_us=1000, legend=SCALAR)

    def line_at(ns: int) -> str:
        return "read.py(1): read" if (ns - BASE_NS) // MS % OF_MS < OF_MS // 2 else "wait.py(2): wait"

    drawn = sampled(drawn, line_at, begin_ns=BASE_NS, end_ns=BASE_NS + STEPS * OF_MS * MS, interval_ns=MS)
    (reads,), (syncs,) = (tables(only_finding(rule, drawn)) for rule in ("item-syncs", "host-syncs"))
    assert {row[0] for row in syncs.rows} == {"read.py(1): read", "wait.py(2): wait"}
    assert reads.rows[0][0] == "read.py(1): read"
    idle_ns = {row[0]: row[3] for row in reads.rows}
    assert idle_ns["read.py(1): read"] > 4 * idle_ns.get("wait.py(2): wait", 0)


def test_a_long_pause_without_a_gpu_has_its_line_too():
    drawn = draw(host=["o" * 28 + " " * 12], repeat=STEPS, unit_us=1000)
    finding = only_finding("host-work", seen(drawn, "host_work"))
    assert (finding.situation, finding.values["name"]) == ("sampled", "train.py(25): log_metrics")
