"""Lines of own code by samples: the numbers that plain loops over the samples find."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest
from builders import BASE_NS, draw, only_place
from sampling import sampled
from view_tables import tables_of

from perfdoctor.metrics.launching import host_window
from perfdoctor.metrics.run import prepare
from perfdoctor.metrics.sampled_lines import FEWEST_SAMPLES, evidence, meanwhile, sampled_lines
from perfdoctor.timeline.model import merge
from perfdoctor.viewing import ops

MS = 1_000_000
STEP_MS, BUSY_MS, STEPS = 40, 30, 6
LOSS, LOG, READ = "train.py(20): step", "train.py(25): log_metrics", "data.py(3): read"


def at_work(**more):
    """Steps of 40 ms, the last 10 of them idle, in which the host is in something that issues nothing."""
    host = ["l" + " " * 39, "o" * 29 + " " * 11]
    return draw(kernels="#" * BUSY_MS + " " * 10, host=host, repeat=STEPS, unit_us=1000, **more)


def line_at(ns: int) -> str:
    """What runs 25 ms into a step logs, calling a library alone for the last ms; before that the loss."""
    into_ms = (ns - BASE_NS) % (STEP_MS * MS) / MS
    if into_ms < 25:
        return f"{LOSS} ← train.py(60): main"
    return f"{LOG} ← train.py(60): main" if into_ms < 39 else ""


def with_samples(interval_ns: int = MS, drawn=None, line=line_at, **more):
    drawn = at_work() if drawn is None else drawn
    return sampled(
        drawn, line, begin_ns=BASE_NS, end_ns=BASE_NS + STEPS * STEP_MS * MS, interval_ns=interval_ns, **more
    )


def inside(pieces, ns: int) -> bool:
    return any(begin <= ns < end for begin, end in pieces)


def wilson(part: int, of: int) -> tuple[float, float]:
    """The two shares p for which `part` lies just 1.96 standard deviations off: |part/of - p| = 1.96 √(p(1-p)/of)."""

    def off(p: float) -> float:
        return abs(part / of - p) - 1.96 * math.sqrt(p * (1 - p) / of)

    def edge(outside: float, inner: float) -> float:
        for _ in range(100):
            middle = (outside + inner) / 2
            outside, inner = (middle, inner) if off(middle) > 0 else (outside, middle)
        return outside

    return edge(0.0, part / of), edge(1.0, part / of)


@pytest.mark.parametrize("interval_ns", [MS, 3 * MS, 700_000])
def test_each_line_has_what_plain_counting_finds(interval_ns):
    run = prepare(with_samples(interval_ns))
    (place,) = run.places
    window, count, idle, causes = host_window(place), Counter(), Counter(), defaultdict(Counter)
    samples = run.timeline["line_samples"]
    for name, at in zip(samples.name, samples.start_ns.tolist(), strict=True):
        count[name] += inside(window, at)
        idle[name] += inside(place.idle, at) and inside(window, at)
        for cause, pieces in place.idle_causes.items():
            causes[name][cause] += inside(pieces, at) and inside(window, at)
    found, of = sampled_lines(run), sum(count.values())
    assert set(found.lines) == {name for name, times in count.items() if name and times >= 5}
    assert found.in_all == of
    for row, name in enumerate(found.lines):
        assert found.count[row] == count[name]
        assert found.share[row] == pytest.approx(count[name] / of)
        assert found.time_ns[row] == pytest.approx(count[name] * interval_ns / place.units)
        assert found.idle_ns[row] <= found.time_ns[row]
        assert found.idle_ns[row] == pytest.approx(idle[name] * interval_ns / place.units)
        assert found.cause[row] == (causes[name].most_common(1)[0][0] if idle[name] else "")
        low, high = wilson(count[name], of)
        assert found.low_ns[row] == pytest.approx(low * of * interval_ns / place.units)
        assert found.high_ns[row] == pytest.approx(high * of * interval_ns / place.units)
        assert found.callers[row] == "train.py(60): main"
    assert found.covered_share == pytest.approx(of * interval_ns / window.total_ns)


def test_the_line_behind_most_idle_comes_first_though_another_takes_longer():
    found = sampled_lines(prepare(with_samples()))
    assert found.lines == (LOG, LOSS)
    assert found.time_ns[1] > found.time_ns[0]
    assert found.idle_ns.tolist() == [pytest.approx(9 * MS), 0.0]
    assert found.cause == ("host_work", "")


def test_a_line_of_fewer_samples_than_tell_anything_is_left_out():
    def seldom(times):
        taken = iter([READ] * times)
        return lambda ns: next(taken, LOSS) if ns > BASE_NS + 2 * STEP_MS * MS else LOSS

    for times in (FEWEST_SAMPLES - 1, FEWEST_SAMPLES):
        found = sampled_lines(prepare(with_samples(line=seldom(times))))
        assert (READ in found.lines) == (times == FEWEST_SAMPLES)
        assert found.share.sum() == pytest.approx(1 if READ in found.lines else 1 - times / found.in_all)


def test_the_step_is_that_of_an_average_rank():
    one = with_samples(drawn=at_work(rank=0), rank=0)
    two = with_samples(drawn=at_work(rank=1), rank=1, line=lambda _: READ)
    whole, alone = sampled_lines(prepare(merge([one, two]))), sampled_lines(prepare(one))
    times = dict(zip(whole.lines, whole.time_ns.tolist(), strict=True))
    for line, time_ns in zip(alone.lines, alone.time_ns.tolist(), strict=True):
        assert times[line] == pytest.approx(time_ns / 2)
    assert times[READ] == pytest.approx(STEP_MS * MS / 2, rel=0.05)
    assert whole.in_all == 2 * alone.in_all


def test_a_rank_that_was_not_sampled_does_not_count_as_one_without_lines():
    whole = sampled_lines(prepare(merge([with_samples(drawn=at_work(rank=0)), at_work(rank=1)])))
    alone = sampled_lines(prepare(with_samples()))
    assert whole.time_ns.tolist() == alone.time_ns.tolist()


def test_without_samples_in_the_window_there_is_nothing():
    assert sampled_lines(prepare(at_work())) is None
    before = sampled(at_work(), lambda _: LOSS, begin_ns=0, end_ns=50 * MS, interval_ns=MS)
    assert sampled_lines(prepare(before)) is None


def test_without_a_gpu_time_is_told_and_no_idle():
    drawn = draw(host=["o" * 30 + " " * 10], repeat=STEPS, unit_us=1000)
    found = sampled_lines(prepare(with_samples(drawn=drawn)))
    assert found.lines == (LOSS, LOG)  # by time
    assert all(math.isnan(idle) for idle in found.idle_ns)
    (rows,) = [
        rows
        for name, rows in tables_of(ops.view(prepare(with_samples(drawn=drawn)), None)).items()
        if "sampled" in name
    ]
    assert rows[0].keys().isdisjoint({"with the GPU idle a step, about", "idle, mostly"})


# --- the page ---


def test_the_page_begins_with_them_where_functions_were_not_recorded():
    views = list(ops.view(prepare(with_samples()), None))
    assert (views[0].id, views[0].title) == ("sampled-lines", "Your own code, sampled")
    assert "every 1 ms" in views[0].explained
    assert "cover" not in views[0].explained
    row = tables_of(iter(views))["sampled-lines"][0]
    assert row["line"] == LOG
    assert row["called from"] == "train.py(60): main"
    assert row["idle, mostly"] == "host code that issues no work"
    assert row["at least"] < row["time a step, about"] < row["at most"]
    assert row["with the GPU idle a step, about"] == pytest.approx(9 * MS)


def test_where_functions_were_recorded_they_come_first():
    run = prepare(with_samples(drawn=draw(kernels="####", host=["l", "ffff"], unit_us=50_000), interval_ns=5 * MS))
    assert [view.id for view in ops.view(run, None)][:2] == ["lines", "sampled-lines"]


def test_samples_of_a_part_of_the_window_say_so():
    half = sampled(at_work(), lambda _: LOSS, begin_ns=BASE_NS, end_ns=BASE_NS + 3 * STEP_MS * MS, interval_ns=MS)
    (told,) = [view.explained for view in ops.view(prepare(half), None) if view.id == "sampled-lines"]
    share = sampled_lines(prepare(half)).covered_share
    assert 0.2 < share < 0.8
    assert f"cover {share:.0%}" in told


def test_samples_of_libraries_alone_make_no_table():
    assert "sampled-lines" not in [view.id for view in ops.view(prepare(with_samples(line=lambda _: "")), None)]


# --- behind the idle of one finding ---


def test_the_time_of_the_pieces_is_shared_out_among_the_lines_seen_in_them():
    place = only_place(with_samples())
    pieces = place.idle_causes["host_work"]
    samples = place.timeline["line_samples"]
    seen = Counter(name for name, at in zip(samples.name, samples.start_ns.tolist(), strict=True) if inside(pieces, at))
    found = {each.line: each for each in meanwhile(place, pieces)}
    assert set(found) == {name for name, times in seen.items() if name and times >= FEWEST_SAMPLES}
    for name, each in found.items():
        assert each.count == seen[name]
        assert each.idle_ns == pytest.approx(pieces.total_ns * seen[name] / sum(seen.values()), abs=1)
    (table,) = evidence(place, pieces)
    assert table.rows[0] == (LOG, "train.py(60): main", seen[LOG], round(found[LOG].idle_ns / place.units))
    assert "sampled" in table.label


def test_too_few_samples_in_the_idle_are_no_evidence():
    place = only_place(with_samples(interval_ns=25 * MS))  # 10 samples, of which some are in the idle
    samples = place.timeline["line_samples"]
    assert 0 < sum(inside(place.idle, at) for at in samples.start_ns.tolist()) < FEWEST_SAMPLES
    assert evidence(place, place.idle) == ()


def test_where_functions_were_recorded_samples_are_no_evidence():
    drawn = draw(kernels="#" * 30 + " " * 10, host=["l" + " " * 39, " " * 29 + "f" * 11], repeat=STEPS, unit_us=1000)
    place = only_place(with_samples(drawn=drawn))
    assert evidence(place, place.idle) == ()
