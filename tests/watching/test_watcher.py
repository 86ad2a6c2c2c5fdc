"""When a window is opened by itself, and what is written meanwhile; the clock is the test's."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from watched_steps import BEGUN_NS, MS, lines, noise, rank_steps

from perfdoctor.recording.inside import report_process
from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.report.words import watched as words
from perfdoctor.system.run_folder import Manifest, RunFolder
from perfdoctor.watching import document, judge, watcher, windows
from perfdoctor.watching.anomalies import Anomaly
from perfdoctor.watching.hangs import Hang
from perfdoctor.watching.rows import RankSteps
from perfdoctor.watching.watcher import Policy, Watcher
from perfdoctor.watching.windows import WindowState, next_step

S = 10**9


class AtOnce:
    """A window that is diagnosed when it is polled first."""

    def __init__(self, run: RunFolder, number: int, why: str, *_: object, **__: object) -> None:
        (run.make("windows") / str(number)).mkdir()
        self.state = WindowState(number, why, 1)
        self.is_over = False

    def poll(self, *, has_ended: bool = False) -> bool:
        self.is_over = True
        self.state = WindowState(self.state.number, self.state.why, 1, "diagnosed", "Training waits", "input-wait")
        return True

    def end(self) -> None: ...


class Job:
    """A run under watch whose only rank makes steps of 20 ms, in time that the test moves on."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self.run = RunFolder.create(folder / "run", Manifest(perfdoctor="test", command=["train"]))
        windows.rows_folder(self.run.path).mkdir()
        self.file = windows.rows_folder(self.run.path) / "rank0-1.jsonl"
        self.now, self.said = BEGUN_NS, list[Any]()
        self.made = lines(noise(26_000, 20, spread=0.002))
        self.watcher = Watcher(
            self.run, policy, PySpy(trouble="none here", do="install it"), self.said.append, now_ns=lambda: self.now
        )

    def go_on(self, seconds: float, ratio: float = 1.0) -> None:
        """Make the steps of so many seconds, `ratio` times as long, and tick each second."""
        for _ in range(int(seconds)):
            self.now += S
            with self.file.open("a") as file:
                while self.made:
                    row = json.loads(self.made[0])
                    if row.get("end", row.get("at", 0)) > self.now:
                        break
                    if "q" in row:
                        row["q"] = [int(each * ratio) for each in row["q"]]
                        row["sum"] = int(row["sum"] * ratio)
                    file.write("\n" + json.dumps(row))
                    self.made.pop(0)
            self.watcher.tick()

    def windows(self) -> list[str]:
        return [each.why for each in self.said if isinstance(each, WindowState) and each.state == "asked"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "Window", AtOnce)
    monkeypatch.setattr(watcher.processes, "command", lambda _: "")  # the steps' process is none of this machine
    monkeypatch.setattr(judge, "is_gradual", lambda _: False)  # its library takes half a second to load


def test_a_first_window_comes_after_its_time_and_others_around_trouble_apart_from_each_other(tmp_path: Path) -> None:
    job = Job(tmp_path, Policy(windows=2, apart_s=100, first_s=30))
    job.go_on(29)
    assert job.windows() == []
    job.go_on(21)
    assert job.windows() == ["first"]
    job.go_on(60, ratio=1.1)
    assert job.windows() == ["first", "level"]
    job.go_on(30, ratio=1.25)
    assert len([each for each in job.said if isinstance(each, Anomaly)]) == 2, "within 100 s of the last window"
    assert job.windows() == ["first", "level"]
    job.go_on(80, ratio=1.25)
    assert job.windows() == ["first", "level", "level"], "it was kept until then"
    job.go_on(120, ratio=1.4)
    job.go_on(200, ratio=1.6)
    assert job.windows() == ["first", "level", "level"], "two at most"


def test_trouble_that_is_found_while_a_window_is_open_gets_one_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Long(AtOnce):
        def poll(self, *, has_ended: bool = False) -> bool:
            return is_through and super().poll(has_ended=has_ended)

    is_through = False
    monkeypatch.setattr(watcher, "Window", Long)
    job = Job(tmp_path, Policy(first_s=30))
    job.go_on(50)
    job.go_on(60, ratio=1.1)
    assert job.windows() == ["first"]
    is_through = True
    job.go_on(2, ratio=1.1)
    assert job.windows() == ["first", "level"]


@pytest.mark.parametrize(("cores", "kinds"), [(2, []), (8, ["level"])])
def test_where_few_cores_are_there_what_a_diagnosis_takes_of_them_is_no_change_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, kinds: list[str]
) -> None:
    class Slow(AtOnce):
        def poll(self, *, has_ended: bool = False) -> bool:
            if is_through:
                return super().poll(has_ended=has_ended)
            before, self.state = self.state, replace(self.state, state="recorded")
            return self.state != before

    is_through = False
    monkeypatch.setattr(watcher, "Window", Slow)
    monkeypatch.setattr(report_process, "worker_count", lambda: cores)
    job = Job(tmp_path, Policy(first_s=30, windows=0))
    job.go_on(40)
    job.go_on(40, ratio=1.1)
    is_through = True
    job.go_on(1, ratio=1.1)
    job.go_on(40)
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == kinds
    job.go_on(40, ratio=1.2)
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == [*kinds, "level"], "what stays is found"


def test_a_window_that_somebody_else_has_asked_for_is_recorded_first(tmp_path: Path) -> None:
    job = Job(tmp_path, Policy(first_s=30))
    job.go_on(10)
    asked = job.run.make("windows") / "7"
    RunFolder.create(asked, Manifest(perfdoctor="test", command=["train"]))
    request = {"window": 7, "until": time.time_ns() + 100 * S, "processes": [4711, 5]}
    (windows.rows_folder(job.run.path) / windows.REQUEST).write_text(json.dumps(request))
    job.go_on(30)
    assert job.windows() == []
    report = {"pass": "torch", "pid": 4711, "ended": True}
    (asked / "agents" / "torch-4711.json").write_text(json.dumps(report))
    job.go_on(1)
    assert job.windows() == ["first"], "the other process has ended"


def test_what_the_diagnosis_of_a_window_that_was_asked_for_takes_is_no_change_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_process, "worker_count", lambda: 2)
    job = Job(tmp_path, Policy(first_s=0, windows=0))
    job.go_on(40)
    asked = job.run.make("windows") / "7"
    RunFolder.create(asked, Manifest(perfdoctor="test", command=["train"]))
    request = {"window": 7, "until": time.time_ns() + 100 * S, "processes": [4711]}
    (windows.rows_folder(job.run.path) / windows.REQUEST).write_text(json.dumps(request))
    report = {"pass": "torch", "pid": 4711, "ended": True}
    (asked / "agents" / "torch-4711.json").write_text(json.dumps(report))
    job.go_on(40, ratio=1.1)
    (asked / "diagnosis.json").write_text("{}")
    job.go_on(40)
    assert [each for each in job.said if isinstance(each, Anomaly)] == []
    job.go_on(40, ratio=1.2)
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == ["level"], "what stays is found"


@pytest.mark.parametrize("request_", [
    "", "[]", '{"window": 1}', '{"window": "x", "until": 9e30}', '{"window": 1, "until": 5}',
])  # fmt: skip
def test_a_request_that_is_none_keeps_nobody_waiting(tmp_path: Path, request_: str) -> None:
    rank = rank_steps(tmp_path, lines(noise(100, 10)))
    windows.rows_folder(tmp_path).mkdir()
    (windows.rows_folder(tmp_path) / windows.REQUEST).write_text(request_)
    assert not windows.is_recording(tmp_path, {0: rank})


def test_what_is_known_is_written_with_the_curve_of_the_whole_run(tmp_path: Path) -> None:
    job = Job(tmp_path, Policy(first_s=0))
    job.go_on(60)
    job.go_on(30, ratio=1.1)
    known = document.read(job.run.path)
    assert (known.state, [each.kind for each in known.anomalies], known.windows[0].state) == (
        "running",
        ["level"],
        "diagnosed",
    )
    assert known.ranks[0].steps == pytest.approx(4350, abs=200)  # written each five seconds
    assert known.step_ns == pytest.approx(22 * MS, rel=0.02)
    assert [each.median_ns for each in known.curve][:1] == [pytest.approx(20 * MS, rel=0.02)]
    assert known.curve[-1].median_ns == pytest.approx(22 * MS, rel=0.02)
    assert len(known.curve) <= 400
    job.watcher.end(exit_code=3)
    assert (document.read(job.run.path).state, document.read(job.run.path).exit_code) == ("ended", 3)


def test_a_hang_is_said_with_why_its_place_is_not_known_and_opens_no_window(tmp_path: Path) -> None:
    job = Job(tmp_path, Policy(first_s=0, hang_after_s=20))
    job.go_on(30)
    for _ in range(25):
        job.now += S
        job.watcher.tick()
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == ["hang"]
    assert [each.trouble for each in job.said if isinstance(each, Hang)] == ["none here"]
    assert document.read(job.run.path).state == "hangs"
    assert job.windows() == []


def test_a_training_that_makes_no_first_step_is_looked_into_once(tmp_path: Path) -> None:
    job = Job(tmp_path, Policy(first_s=0, hang_after_s=20))
    for _ in range(200):
        job.now += S
        job.watcher.tick()
    assert job.said == []  # torch is not imported yet
    (job.run.make("agents") / "torch-7.json").write_text('{"pass": "torch", "pid": 7}')
    for _ in range(3):
        job.watcher.tick()
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == ["no-step"]
    assert [each.trouble for each in job.said if isinstance(each, Hang)] == ["none here"]
    assert document.read(job.run.path).hang is not None
    assert words.said(job.said[0]) == "no step yet, 200 s after the start"
    job.go_on(30)
    assert document.read(job.run.path).hang is None


def test_what_is_known_is_written_before_the_first_step_and_while_no_rank_writes(tmp_path: Path) -> None:
    job = Job(tmp_path, Policy(first_s=0))
    job.watcher.tick()
    known = document.read(job.run.path)
    assert known.state == "starting"
    assert next(words.status(known, 0)).startswith("no step yet")
    job.go_on(30)
    for _ in range(20):
        job.now += S
        job.watcher.tick()
    assert job.now - document.read(job.run.path).unix_ns <= 6 * S


def test_a_rank_that_was_killed_has_ended_and_those_that_wait_for_it_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = {4711: "train", 5: "train"}
    monkeypatch.setattr(watcher.processes, "is_alive", lambda pid: pid in running)
    monkeypatch.setattr(watcher.processes, "command", lambda pid: running.get(pid, ""))
    job = Job(tmp_path, Policy(first_s=0, hang_after_s=20))
    (windows.rows_folder(job.run.path) / "rank1-5.jsonl").write_text("\n".join(lines(noise(1500, 20), rank=1, pid=5)))
    job.go_on(30)
    del running[5]
    for _ in range(25):
        job.now += S
        job.watcher.tick()
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == ["hang"]
    known = document.read(job.run.path)
    assert [(each.ended, each.why) for each in known.ranks] == [(False, ""), (True, "without a word")]
    del running[4711]
    job.now += 6 * S
    job.watcher.tick()
    known = document.read(job.run.path)
    assert any("before it was ended: " in line for line in words.status(known, 0)), "why it hung stays known"
    # torchrun starts it again, and no rank makes a step.
    running |= {9: "train", 10: "evaluate"}
    for pid in (9, 10):
        report = {"pass": "torch", "pid": pid, "started_unix_ns": job.now}
        (job.run.make("agents") / f"torch-{pid}.json").write_text(json.dumps(report))
    asked = []
    monkeypatch.setattr(watcher.hangs, "find_before_steps", lambda _, pids: asked.append(pids) or Hang())
    for _ in range(110):
        job.now += S
        job.watcher.tick()
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == ["hang", "no-step"]
    assert asked == [{9}]


@pytest.mark.parametrize("by", [3600 * S, -3600 * S])
def test_a_clock_that_jumps_is_no_hang_and_hides_none(tmp_path: Path, by: int) -> None:
    job = Job(tmp_path, Policy(first_s=70, hang_after_s=20))
    passed = BEGUN_NS
    job.watcher._passed_ns = lambda: passed
    job.watcher._clocks = job.now, passed
    for second in range(70):
        passed += S
        if second < 30:
            job.go_on(1)
            continue
        job.now += S + by * (second == 30)
        job.watcher.tick()
        if second == 45:
            assert job.said == [], "16 s without a step"
            assert job.now - document.read(job.run.path).unix_ns <= 6 * S
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == ["hang"]
    assert job.windows() == ["first"], "after 70 s"
    step = json.loads(job.made[0]) if "q" in job.made[0] else json.loads(job.made[1])
    with job.file.open("a") as file:
        file.write("\n" + json.dumps({**step, "end": job.now}))
    job.watcher.tick()
    assert [each.kind for each in job.said if isinstance(each, Anomaly)] == ["hang", "goes-on"]


def test_a_full_disk_is_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, Policy(first_s=0))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(document, "write", full)
    monkeypatch.setattr(watcher, "Window", full)
    job.go_on(60)
    job.go_on(30, ratio=1.1)
    assert job.watcher.trouble == "a window could not be opened: No space left on device"


def test_all_ranks_can_begin_with_the_step_that_is_named(tmp_path: Path) -> None:
    ranks = {}
    for number, steps in ((0, 1000), (1, 1020)):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("\n".join(lines(noise(steps, 10, number), rank=number)))
        ranks[number] = RankSteps(file)
        ranks[number].read()
    now = max(each.stretches[-1].end for each in ranks.values())
    step = next_step(ranks, now)
    assert step >= 1020 + 150, "agents ask twice a second, and a rank is further than its file says"
    assert next_step(ranks, now + S) >= step + 90


def test_a_pause_and_a_rank_that_has_ended_put_no_window_off(tmp_path: Path) -> None:
    going = rank_steps(tmp_path, lines(noise(100, 1000)), "going")
    ended = rank_steps(tmp_path, [*lines(noise(5000, 10), rank=1), '{"ended": 5, "why": ""}'], "ended")
    now = going.stretches[-1].end
    assert next_step({0: going, 1: ended}, now + 3 * S) == next_step({0: going}, now + 3 * S) <= 109
    assert next_step({0: going}, now + 3600 * S) <= 100 + 14 + 6, "an evaluation of an hour: no step was made in it"
    made = noise(101, 1000)
    made[100] = 300 * S
    paused = rank_steps(tmp_path, lines(made, stretch=20), "paused")
    assert next_step({0: paused}, paused.stretches[-1].end) <= 101 + 6
    assert windows.limit_s({0: paused}, 107, 10) == pytest.approx(600 + 38, abs=3)


def test_a_window_for_slow_steps_that_come_regularly_records_one(tmp_path: Path) -> None:
    rank = rank_steps(tmp_path, lines(noise(3000, 20)))
    now = rank.stretches[-1].end
    values = {"every": 500, "phase": 123, "slow_ns": 60.0 * MS}
    slow, soonest = Anomaly("slow-steps", 1, 1, 1, values=values), next_step({0: rank}, now)
    for steps in (1, 2, 10):
        first = windows.first_step({0: rank}, now, slow, steps)
        recorded = range(first + 2, first + 2 + steps)  # behind one of warm-up
        assert soonest <= first < soonest + 500
        assert [number % 500 for number in recorded if number % 500 == 123] == [123]
    assert recorded.index(3123) == 2, "behind two others"
    long = Anomaly("slow-steps", 1, 1, 1, values={**values, "slow_ns": 60e9})
    assert windows.first_step({0: rank}, now, long, 10) == soonest, "an evaluation of a minute"
    assert windows.first_step({0: rank}, now, None, 10) == soonest


def test_a_window_has_the_samples_of_the_gpus_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="test", command=["train"]))
    windows.rows_folder(run.path).mkdir()
    now = time.time_ns()
    rows = ["unix_ns,device", *(f"{now + second * S},0" for second in range(-100, 20))]
    run.make("device")
    (run.path / windows.SAMPLES).write_text("\n".join(rows) + "\n176")
    monkeypatch.setattr(windows, "ReportProcess", lambda *_: SimpleNamespace())
    rank = rank_steps(tmp_path, lines(noise(100, 10)))
    settings = StepWindow(sampling=False)
    window = windows.Window(run, 1, "throttled", {0: rank}, settings, PySpy(trouble="none here"))
    report = {"pass": "torch", "pid": 4711, "ended": True, "trace": "rank0.pt.trace.json"}
    (window.folder.path / "agents" / "torch-4711.json").write_text(json.dumps(report))
    assert window.poll()
    kept = (window.folder.path / "device" / "samples.csv").read_text()
    assert kept.splitlines() == [rows[0], *rows[-49:]], "from half a minute before it was asked for"
    assert kept.endswith("\n")


def test_a_window_of_long_steps_has_the_time_that_they_take(tmp_path: Path) -> None:
    slow = rank_steps(tmp_path, lines(noise(40, 60_000), stretch=1), "slow")
    step = next_step({0: slow}, slow.stretches[-1].end)
    assert windows.limit_s({0: slow}, step, 10) >= 600 + (step - 40 + 10 + 22) * 59
    assert windows.limit_s({}, 0, 10) == 600


def test_the_slowest_rank_of_all_nodes_is_named_from_what_each_has_left() -> None:
    def node(*ranks: tuple[int, float]) -> document.WatchDocument:
        made = [document.RankNow(rank, 1, 50, 20 * MS, wait, 0.2, 1, 0, 1, False) for rank, wait in ranks]
        return document.WatchDocument(1, "running", 1, 1, ranks=tuple(made))

    found = document.behind([node((0, 0.01), (1, 0.01)), node((2, 0.5), (3, 0.01))])
    assert found is not None
    assert (found.rank, found.cause, found.values["share"]) == (2, "input", pytest.approx(0.3))
    assert document.behind([node((0, 0.01)), node((1, 0.02))]) is None
    assert document.behind([]) is None


@pytest.mark.parametrize(
    ("why", "rule", "said"),
    [
        ("memory", "memory-growth", "Memory grows"), ("level", "host-work", "Python"),
        ("input", "host-work", "no finding says why; costs most: Python"), ("asked", "host-work", "Python"),
    ],
)  # fmt: skip
def test_a_window_names_the_finding_that_says_why_it_was_opened(why: str, rule: str, said: str) -> None:
    findings = [{"rule": "host-work", "title": "Python"}, {"rule": "memory-growth", "title": "Memory grows"}]
    assert windows._answer({"findings": findings}, why)["rule"] == rule
    assert windows._answer({"findings": ["?"]}, why) == {"finding": "", "rule": ""}
    answer = words.window(WindowState(2, why, 1, "diagnosed", **windows._answer({"findings": findings}, why)))
    assert answer.endswith(f"): {said}")
