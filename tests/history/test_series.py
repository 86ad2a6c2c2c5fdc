"""A series holds what can be compared, its changes are where they were planted, and the commits are git's."""

from __future__ import annotations

import random
import sqlite3
import subprocess

import pytest
from history.histories import STEP_NS, facts, history

from perfdoctor.errors import UsageError
from perfdoctor.history import series, store
from perfdoctor.history.changes import MissingLibraryError, change_points
from perfdoctor.history.metrics import METRICS, metric
from perfdoctor.report.words.trends import sparkline

pytest.importorskip("ruptures")


def noisy(levels, noise=0.005, seed=1):
    """Runs at these levels, in ns, each with its own noise."""
    source = random.Random(seed)
    return [round(level * source.gauss(1, noise)) for level in levels]


def trend(file, name="step", **chosen):
    with store.read(file) as db:
        return series.trend(db, metric(name), folder=file.parent, **chosen)


def of(values, tmp_path, **changes):
    return history(tmp_path / "history.db", [facts(n, step_ns=ns, **changes) for n, ns in enumerate(values)])


@pytest.mark.parametrize("at", [4, 10, 16])
@pytest.mark.parametrize("scale", [1, 1e-6, 1e9])
def test_a_step_of_the_level_is_found_where_it_was_planted_in_any_unit(at, scale):
    values = [scale * value for value in noisy([STEP_NS] * at + [1.05 * STEP_NS] * (20 - at))]
    found = change_points(values)
    assert [each.at for each in found] == [at]
    assert found[0].kind == "step"
    assert found[0].ratio == pytest.approx(1.05, abs=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_single_slow_runs_are_no_change(seed):
    values = noisy([STEP_NS] * 30, noise=0.01, seed=seed)
    assert change_points(values) == ()
    values[7], values[20], values[29] = (round(1.3 * value) for value in (values[7], values[20], values[29]))
    assert change_points(values) == ()


def test_a_change_and_its_repair_are_two_changes():
    values = noisy([STEP_NS] * 12 + [1.1 * STEP_NS] * 8 + [STEP_NS] * 9)
    assert [(each.at, each.after > each.before) for each in change_points(values)] == [(12, True), (20, False)]


def test_a_drift_is_nobodys_commit():
    values = noisy([STEP_NS * (1 + 0.01 * n) for n in range(30)], noise=0.002)
    assert {each.kind for each in change_points(values)} <= {"gradual"}


@pytest.mark.parametrize(
    ("flat", "drifting", "slope"), [(20, 12, 0.01), (20, 20, 0.005), (10, 15, 0.02), (15, 7, 0.03)]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_drift_behind_a_flat_stretch_and_before_one_is_a_drift(flat, drifting, slope, seed):
    rising = [STEP_NS * (1 + slope * n) for n in range(1, drifting + 1)]
    behind = noisy([STEP_NS] * flat + rising, noise=0.002, seed=seed)
    before = noisy(rising + [rising[-1]] * flat, noise=0.002, seed=seed)
    for values in (behind, before):
        found = change_points(values)
        assert found
        assert {each.kind for each in found} == {"gradual"}


def test_a_step_behind_which_the_level_drifts_is_a_step():
    values = noisy([STEP_NS] * 15 + [STEP_NS * (1.3 + 0.004 * n) for n in range(12)], noise=0.002)
    assert [(each.at, each.kind) for each in change_points(values)] == [(15, "step")]


def test_a_sparkline_has_all_runs_thinned_and_marks_a_change():
    values = [1.0] * 300 + [2.0] * 100
    bars, marks = sparkline(values, 40, [300])
    assert bars == "▁" * 30 + "█" * 10
    assert marks == " " * 30 + "^"
    assert sparkline([1.0, 2.0, 1.5], 40) == ("▁█▅", "")
    assert sparkline([5.0], 40) == ("▄", "")


@pytest.mark.parametrize("values", [[], [1.0], [5.0] * 50, [0.0] * 9, [1, 2, 1, 2, 1]])
def test_series_without_anything_to_find(values):
    assert change_points(values) == ()


def test_a_change_that_is_too_small_to_matter_is_not_shown():
    assert change_points([1000.0] * 15 + [1005.0] * 15) == ()
    assert len(change_points([1000.0] * 15 + [1015.0] * 15)) == 1


def test_only_runs_of_the_same_program_device_and_part_are_one_series(tmp_path):
    every = [facts(n) for n in range(5)]
    every += [
        facts(5, device="NVIDIA A100"),
        facts(6, world_size=8),
        facts(7, part="range forward"),
        facts(8, command="python other.py"),
    ]
    every += [facts(9), facts(10)]
    every[-1].run["step_ns"] = None
    found = trend(history(tmp_path / "history.db", every))
    assert (len(found.points), found.unknown, found.elsewhere) == (6, 1, 4)
    assert len(trend(tmp_path / "history.db", like=every[5].id).points) == 1
    assert len(trend(tmp_path / "history.db", program="python").points) == 7


def test_programs_of_one_name_in_several_projects_are_several_series_and_seeds_are_none(tmp_path):
    every = [
        facts(n, project=f"p{n % 3}", project_id=f"{n % 3}", command=f"python train.py --seed {n}") for n in range(12)
    ]
    file = history(tmp_path / "history.db", every)
    found = trend(file)
    assert (found.what["project"], len(found.points), found.elsewhere) == ("p2", 4, 8)
    assert len(trend(file, program="train.py").points) == 12


def test_a_recording_that_was_analysed_twice_is_one_measurement_the_later_one(tmp_path):
    again = [
        facts(2, recording="x", step_ns=5),
        facts(2, recording="x", step_ns=7, stored_at="2027-01-01T00:00:00.000Z"),
    ]
    found = trend(history(tmp_path / "history.db", [facts(0), *reversed(again)]))
    assert [point.value for point in found.points] == [STEP_NS, 7]
    assert found.repeated == 1


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_is_known_or_unknown_and_never_an_error(tmp_path, name):
    file = of([STEP_NS, STEP_NS + 5], tmp_path)
    try:
        found = trend(file, name)
    except UsageError as error:
        assert name in error.what
    else:
        assert len(found.points) == 2


def test_a_metric_is_the_number_that_the_row_has(tmp_path):
    file = of([STEP_NS], tmp_path, p10_ns=STEP_NS, p90_ns=STEP_NS * 2, peak_memory_bytes=123)
    values = {
        name: trend(file, name).points[0].value for name in ("step_ns", "mfu", "memory", "input-wait", "spread", "idle")
    }
    sixth = pytest.approx(STEP_NS / 6)
    assert values == {"step_ns": STEP_NS, "mfu": 0.4, "memory": 123, "input-wait": sixth, "spread": 1.0, "idle": sixth}


@pytest.fixture
def commits(tmp_path):
    """Twenty commits of a checkout, oldest first."""
    identity = ["-c", "user.email=a@b", "-c", "user.name=n", "-c", "commit.gpgsign=false"]

    def git(*arguments):
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    made = []
    for number in range(20):
        git("commit", "-q", "--allow-empty", "-m", f"change {number}")
        made.append(git("rev-parse", "HEAD"))
    return made


def test_the_first_bad_run_is_named_with_the_commits_since_the_last_good_one(tmp_path, commits):
    """Every second commit was measured; the change came with commit 11 or 12."""
    measured = commits[::2]
    values = noisy([STEP_NS] * 6 + [1.08 * STEP_NS] * 4)
    every = [facts(n, step_ns=ns, git_commit=measured[n], git_dirty=0) for n, ns in enumerate(values)]
    [change] = trend(history(tmp_path / "history.db", every)).changes
    assert change.is_worse
    assert (change.first.run, change.last.run) == (every[6].id, every[5].id)
    assert [subject for _, subject in change.commits.commits] == ["change 12", "change 11"]


def test_higher_is_better_where_it_is(tmp_path):
    every = [facts(n, mfu=0.4 if n < 8 else 0.5) for n in range(16)]
    [change] = trend(history(tmp_path / "history.db", every), "mfu").changes
    assert not change.is_worse


@pytest.mark.parametrize("commit", ["--output=/tmp/x", "HEAD", "'; ls", "f" * 40])
def test_what_is_no_commit_here_does_not_reach_git_as_one(tmp_path, commit):
    values = noisy([STEP_NS] * 6 + [1.08 * STEP_NS] * 6)
    every = [facts(n, step_ns=ns, git_commit=commit + str(n % 7)) for n, ns in enumerate(values)]
    [change] = trend(history(tmp_path / "history.db", every)).changes
    assert change.commits.commits is None
    assert {each.name[:10] for each in tmp_path.iterdir()} == {"history.db"}


def test_what_changed_beside_the_code_is_named(tmp_path):
    values = noisy([STEP_NS] * 6 + [1.08 * STEP_NS] * 6)
    every = [facts(n, step_ns=ns, torch="2.8.0" if n < 6 else "2.9.0") for n, ns in enumerate(values)]
    [change] = trend(history(tmp_path / "history.db", every)).changes
    assert change.differs == (("torch", "2.8.0", "2.9.0"),)


def test_without_the_library_the_series_is_shown_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ruptures", None)
    with pytest.raises(MissingLibraryError):
        change_points([1.0, 2.0] * 10)
    found = trend(of(noisy([STEP_NS] * 10), tmp_path))
    assert len(found.points) == 10
    assert "pip install 'perfdoctor[trend]'" in found.not_searched


def test_a_step_is_the_unrecorded_one_also_where_recording_cost_little(tmp_path):
    """Else a run of which recording took 9 % would be 9 % longer than one of which it took 11 %."""
    file = of([STEP_NS], tmp_path, unrecorded_step_ns=STEP_NS * 10 // 11, p10_ns=STEP_NS // 2, p90_ns=STEP_NS * 2)
    (point,) = trend(file, "step").points
    assert point.value == STEP_NS * 10 // 11
    assert (point.low, point.high) == pytest.approx((STEP_NS / 2.2, STEP_NS / 0.55))
    (median,) = trend(file, "p90").points
    assert (median.value, median.low) == (STEP_NS * 2, None)
    with sqlite3.connect(file) as connection:
        ((step, low, high),) = connection.execute("select step_ms, p10_ms, p90_ms from overview").fetchall()
    connection.close()
    assert (step, low, high) == pytest.approx((point.value / 1e6, point.low / 1e6, point.high / 1e6), abs=1e-3)
