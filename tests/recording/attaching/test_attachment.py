"""Which order does each process get, and what is left where one of them is not reached? Its agents are played here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import awaited

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import attachment as attaching
from perfdoctor.recording.attaching import session
from perfdoctor.recording.attaching.attachment import Attached, Attachment
from perfdoctor.recording.attaching.interpreter_calls import Injection
from perfdoctor.recording.attaching.target import Target, inspect
from perfdoctor.system.run_folder import Manifest, RunFolder


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) for _ in range(2)]
    yield started
    for each in started:
        each.kill()
        each.wait()


class _Withdrawn(Injection):
    """An injection that says whether it was withdrawn."""

    withdrawn: bool = False

    def withdraw(self) -> None:
        self.withdrawn = True


@pytest.fixture
def attachment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attachment]:
    """One whose words reach each interpreter, which runs nothing of them."""
    monkeypatch.setattr(attaching.interpreter_calls, "inject", lambda target, start: _Withdrawn(target, "none"))
    monkeypatch.setattr(attaching, "_LEAVING_S", 0.2)
    folder = RunFolder.create(tmp_path / "run", Manifest())
    folder.make("agents")
    made = Attachment(folder, {})
    yield made
    made.close()
    assert not made.files.exists()


def _target(process: subprocess.Popen[bytes]) -> Target:
    found = inspect(process.pid)
    assert found is not None
    return found


def _report(attached: Attached, **facts: object) -> None:
    path = attached.reports / f"torch-{attached.target.inner_pid}.json"
    path.with_suffix(".new").write_text(json.dumps(facts), "utf-8")
    path.with_suffix(".new").replace(path)  # at once, as agents do


class _Agent:
    """Plays an agent that has seen so many steps, and notes what it is ordered."""

    def __init__(self, attached: Attached, seen: int) -> None:
        self.attached, self.orders = attached, list[str]()
        self.ends_ns = [time.monotonic_ns() - 10_000_000 * (seen - each) for each in range(seen)]
        (path,) = (each for each in json.loads(_given(attached))["files"] if each.endswith("orders"))
        self.fifo = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def step(self, now_ns: int) -> None:
        self.ends_ns.append(now_ns)
        with contextlib.suppress(BlockingIOError):
            self.orders += os.read(self.fifo, 4096).decode().split("\n")[:-1]
        _report(self.attached, state="waiting", waited=len(self.ends_ns), waited_ends_ns=self.ends_ns)

    def leave(self) -> None:
        _report(self.attached, state="written", ended=True)
        os.close(self.fifo)


def _train(agents: list[_Agent]) -> None:
    """Steps that all end at the same time, until all are ordered to begin."""
    until = time.monotonic() + 20
    while not all(any(order.startswith("go") for order in each.orders) for each in agents) and time.monotonic() < until:
        time.sleep(0.01)
        now_ns = time.monotonic_ns()
        for each in agents:
            each.step(now_ns)
    for each in agents:
        each.leave()


def _given(attached: Attached) -> str:
    text = attached.started.with_name(f"{attached.target.pid}.py").read_text("utf-8")
    return text[text.index("'{") + 1 : text.rindex("}'") + 1]


def test_all_ranks_are_ordered_to_begin_with_the_same_step(attachment: Attachment, processes) -> None:
    agents = [_Agent(attachment.attach(_target(each)), seen) for each, seen in zip(processes, (5, 17), strict=True)]
    training = threading.Thread(target=_train, args=(agents,))
    training.start()
    attachment.wait(time.monotonic() + 30)
    training.join()
    assert [[order.split()[0] for order in each.orders] for each in agents] == [["ends", "go"]] * 2
    first, second = (int(each.orders[-1].split()[1]) for each in agents)
    assert second - first == 12  # which the second has made before


def test_a_parent_that_makes_no_step_is_left_out_and_its_child_is_recorded(
    attachment: Attachment, processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "_ALONE_S", 0.3)
    monkeypatch.setattr(attaching, "_ASK_EVERY_S", 0.1)
    parent, child = (attachment.attach(_target(each)) for each in processes)
    _report(parent, state="watching", steps_seen=0)
    own, trains = _Agent(parent, 0), _Agent(child, 1)
    training = threading.Thread(target=_train, args=([trains],))
    training.start()
    said: list[str] = []
    attachment.wait(time.monotonic() + 20, session._Notices(said.append))
    training.join()
    assert trains.orders[-1] == "go 0"
    assert said[0] == f"process {parent.target.pid} has made no step and is left out"
    assert "go" not in os.read(own.fifo, 4096).decode()
    assert os.read(own.fifo, 1) == b""  # the end: its agent leaves
    assert (parent.is_left_out, child.is_left_out) == (True, False)


def test_a_process_whose_steps_are_slow_is_awaited(
    attachment: Attachment, processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "_ALONE_S", 0.0)
    slow, fast = (attachment.attach(_target(each)) for each in processes)
    _report(fast, state="watching", waited=30, waited_ends_ns=[1])
    _report(slow, state="watching", step_found_by="optimizer")
    attachment.wait(time.monotonic() + 0.5)
    assert not slow.is_left_out


def test_a_process_that_cannot_be_reached_keeps_nothing_and_others_go_on(
    attachment: Attachment, processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Injection:
        raise PerfdoctorError("no", do="Nothing.")

    alone = attachment.attach(_target(processes[0]))
    monkeypatch.setattr(attaching.interpreter_calls, "inject", refused)
    with pytest.raises(PerfdoctorError, match="no"):
        attachment.attach(_target(processes[1]))
    assert attachment.attached == [alone]
    assert not (attachment.files / str(processes[1].pid) / f"{processes[1].pid}.py").exists()


def test_an_interpreter_that_comes_too_late_does_nothing_then(attachment: Attachment, processes) -> None:
    late, begun = (attachment.attach(_target(each)) for each in processes)
    begun.started.touch()
    assert attachment.await_begin(0.2) == [late]
    assert attachment.attached == [begun]
    assert isinstance(late.injection, _Withdrawn)
    assert (late.injection.withdrawn, late.orders) == (True, -1)
    assert not (attachment.files / str(processes[0].pid) / f"{processes[0].pid}.py").exists()
    late.release()  # what was released stays so


@pytest.mark.parametrize("fails", [False, True])
def test_beside_a_main_thread_that_waits_another_one_is_started_and_that_is_said(
    attachment: Attachment, processes, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    beside, asleep = (attachment.attach(_target(each)) for each in processes)
    monkeypatch.setattr(attaching, "_BESIDE_S", 0.1)
    monkeypatch.setattr(attaching.waiting, "work_beside", lambda pids, _: {max(pids, key=[beside.target.pid].count)})

    def started(before: Injection, start: Path) -> Injection:
        if fails:
            raise PerfdoctorError("no thread", do="Try again.")
        assert (before, start.exists()) == (beside.injection, True)
        beside.started.touch()
        return Injection(before.target, "ptrace in a thread of its own", 0.25)

    monkeypatch.setattr(attaching.interpreter_calls, "in_own_thread", started)
    said: list[tuple[Attached, str]] = []
    late = attachment.await_begin(0.5, lambda *each: said.append(each))
    assert late == ([beside, asleep] if fails else [asleep])
    assert said == [(beside, "its main thread waits, and no other one could be started: no thread. Try again."
                     if fails else "its main thread waits: attached by ptrace in a thread of its own, in 250.0 ms")]  # fmt: skip


def test_a_window_is_over_when_each_process_has_ended_or_left(attachment: Attachment, processes) -> None:
    gone, left = (attachment.attach(_target(each)) for each in processes)
    processes[0].kill()
    processes[0].wait()
    _report(left, state="failed", ended=True)
    attachment.wait(time.monotonic() + 20)
    assert (gone.is_over, left.is_over, gone.is_alive) == (True, True, False)
    gone.order("ends")  # nobody reads it, and nothing fails


@pytest.mark.skipif(os.geteuid() != 0, reason="only root attaches to the programs of others")
def test_a_program_of_another_user_may_read_the_agent_and_write_its_report(attachment: Attachment, processes) -> None:
    nobody = Target(
        **{name: getattr(_target(processes[0]), name) for name in Target.__struct_fields__} | {"user": 65534}
    )
    attachment.attach(nobody)
    own = attachment.files / str(nobody.pid)
    given = [own, *own.iterdir(), *(attachment.folder.path / each for each in ("agents", "torch"))]
    assert {path.stat().st_uid for path in given} == {65534}
    code = [attachment.files / "agent", *(attachment.files / "agent").rglob("*")]
    assert {path.stat().st_uid for path in (attachment.files, *code)} == {0}  # nobody puts links or code there
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in code)
    assert attachment.files.stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize(
    ("facts", "is_alive", "what", "do"),
    [
        ({"state": "failed", "notes": ["torch is broken"]}, True, "torch is broken", "Record from the start"),
        (
            {"state": "waiting", "notes": ["own torch.profiler runs"]},
            True,
            "own torch.profiler",
            "Record from the start",
        ),
        ({"state": "failed"}, True, "ended before a step was recorded whole", "Record from the start"),
        ({"state": "worker"}, True, "worker of a loader", "process that started it"),
        ({"state": "waiting", "steps_seen": 3}, True, "3 steps were seen in 9 s", "train"),
        ({}, False, "ended before its steps", "one that goes on"),
        ({}, True, "reported nothing in 9 s: torch is still being imported there, or it cannot write into", "-o"),
        ({"state": "recording", "steps_seen": 9}, True, "had not ended the recorded step under way", "--timeout"),
    ],
)
def test_where_nothing_was_recorded_the_reason_and_the_next_step_are_said(
    attachment: Attachment, processes, facts: dict[str, object], is_alive: bool, what: str, do: str
) -> None:
    attached = attachment.attach(_target(processes[0]))
    _report(attached, **facts)
    if not is_alive:
        processes[0].kill()
        processes[0].wait()
    why = session._nothing(attachment, 9.0)
    assert what in why.what
    assert do in why.do


def test_processes_without_steps_for_which_the_others_waited_are_named(attachment: Attachment, processes) -> None:
    idle, trains = (attachment.attach(_target(each)) for each in processes)
    _report(idle, state="watching", steps_seen=0)
    _report(trains, state="watching", steps_seen=126, waited=120)
    why = session._nothing(attachment, 9.0)
    assert f"process {idle.target.pid} made no step in 9 s" in why.what
    assert "--timeout" not in why.do


def test_that_no_step_has_ended_is_said_only_where_no_process_has_made_one(
    attachment: Attachment, processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_PATIENCE_S", 0.0)
    idle, trains = (attachment.attach(_target(each)) for each in processes)
    said: list[str] = []
    notices = session._Notices(said.append)
    notices(trains, {"step_found_by": "optimizer"})
    notices(idle, {"steps_seen": 0})
    assert not said
    session._Notices(said.append)(idle, {"steps_seen": 0})
    assert said[0].startswith("no step has ended so far")


def test_a_process_that_is_not_reached_or_silent_is_said_with_what_to_do(
    attachment: Attachment, processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ANSWER_S", 0.2)
    said: list[str] = []
    why = session._attach(attachment, [_target(processes[0])], 0.2, said.append)
    assert why is not None
    assert "ran no Python" in why.what
    assert said[0] == f"attached to process {processes[0].pid} by none"
    ended = attachment.attach(_target(processes[1]))
    processes[1].kill()
    processes[1].wait()
    why = session._attach(attachment, [], 0.2, said.append)
    assert why is not None
    assert "ended before a step" in why.what
    assert not ended.is_alive
    assert awaited(lambda: len(said) == 3)
