"""Signals, keys and SIGKILL reach the program as they would without us, exactly once."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launched import (
    PROMPT_S,
    ROOT,
    SH,
    STAND_INS,
    STANDING_IN,
    WAYS,
    PerfdoctorRun,
    Run,
    plain,
    python,
    shell_code,
    wait_for,
)

QUICK = {"LEFTOVER_GRACE_S": 0.5, "ENDING_GRACE_S": 1.0}
#: Long enough for a signal that comes twice to be seen twice.
SETTLE_S = 0.4

#: Counts every signal that it gets, one line each; ends with code 33, some time after the one that is named.
COUNTING = """
import os, signal, sys, time
ends_on, wait_s = signal.Signals[sys.argv[1]], float(sys.argv[2])
came = []
def hear(number, _frame):
    came.append(number)
    os.write(1, ("got %s\\n" % signal.Signals(number).name).encode())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, hear)
os.write(1, ("ready %d\\n" % os.getpid()).encode())
while ends_on not in came:
    time.sleep(0.01)
end = time.monotonic() + wait_s
while time.monotonic() < end:
    time.sleep(0.01)
os.write(1, b"cleaned up\\n")
sys.exit(33)
"""


def with_nsys(name: str) -> list[object]:
    """SIGINT and SIGTERM in each way; with the real nsys only the one of this name."""
    drawn = [(way, each) for way in STANDING_IN for each in ("SIGINT", "SIGTERM")]
    return [*drawn, pytest.param("nsys", name, marks=pytest.mark.nsys)]


def counting(ends_on: str, wait_s: float = SETTLE_S) -> list[str]:
    return [*python(COUNTING), ends_on, str(wait_s)]


def ready(run: Run) -> int:
    """Its pid, as soon as it handles signals."""
    word, pid = run.process.stdout.readline().split()
    assert word == b"ready"
    return int(pid)


# --- sent to us alone, or to the whole group ---


@pytest.mark.parametrize(("way", "name"), with_nsys("SIGTERM"))
def test_a_signal_to_perfdoctor_alone_reaches_the_program_once(tmp_path: Path, way: str, name: str) -> None:
    with Run(tmp_path / "run", counting(name), way) as run:
        ready(run)
        run.process.send_signal(signal.Signals[name])
        assert run.finish()[:2] == (33, f"got {name}\ncleaned up\n".encode())
        assert run.ended["interrupted_by"] == signal.Signals[name]
        assert not run.ended["at_once"]


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGALRM, signal.SIGPWR, signal.SIGRTMIN + 3])
def test_what_batch_systems_send_ahead_of_the_end_reaches_the_program_and_nobody_else(
    tmp_path: Path, number: int
) -> None:
    text = f"""
import os, signal, sys, time
signal.signal({int(number)}, lambda *_: sys.exit(9))
os.write(1, b"ready %d\\n" % os.getpid())
time.sleep(60)
"""
    with Run(tmp_path / "run", python(text)) as run:
        ready(run)
        run.process.send_signal(number)
        assert run.finish()[0] == 9
        assert not run.ended["interrupted_by"]


@pytest.mark.parametrize(("way", "name"), with_nsys("SIGINT"))
def test_a_signal_to_the_whole_group_reaches_the_program_once(tmp_path: Path, way: str, name: str) -> None:
    with Run(tmp_path / "run", counting(name), way, popen={"start_new_session": True}) as run:
        ready(run)
        os.killpg(run.process.pid, signal.Signals[name])
        assert run.finish()[:2] == (33, f"got {name}\ncleaned up\n".encode())
        assert not run.ended["at_once"]


def test_many_signals_to_the_group_each_reach_the_program_once_and_the_lone_ones_too(tmp_path: Path) -> None:
    with Run(tmp_path / "run", counting("SIGTERM"), popen={"start_new_session": True}) as run:
        ready(run)
        for to_all in (True, False, False, True, True, False):
            for name in ("SIGUSR1", "SIGUSR2"):
                (os.killpg if to_all else os.kill)(run.process.pid, signal.Signals[name])
                assert run.process.stdout.readline() == f"got {name}\n".encode()
            time.sleep(0.3)
        run.process.terminate()
        assert run.finish()[1] == b"got SIGTERM\ncleaned up\n"


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_signal_to_us_and_then_to_the_group_as_from_timeout_counts_once(tmp_path: Path, way: str) -> None:
    run = Run(tmp_path / "run", counting("SIGTERM"), way)
    run.folder.mkdir()
    with Run(tmp_path / "outer", ["timeout", "--signal=TERM", "600", *run.words()], "plain") as outer:
        ready(outer)
        outer.process.send_signal(signal.SIGALRM)  # what it wakes itself with when the time is over
        code, output, _ = outer.finish()
        assert output == b"got SIGTERM\ncleaned up\n"
        assert code == 124  # what timeout makes of it
        assert outer.alive() == []
    assert run.ended["code"] == 33
    assert not run.ended["at_once"]


def test_a_program_that_takes_long_after_sigint_is_not_killed(tmp_path: Path) -> None:
    # Also where its recording is under way: that is no reason to kill a program that saves what it has trained.
    with Run(tmp_path / "run", counting("SIGINT", 3), constants=QUICK) as run:
        (tmp_path / "run" / "overdue").write_text(str(ready(run)))
        run.process.send_signal(signal.SIGINT)
        assert run.finish()[:2] == (33, b"got SIGINT\ncleaned up\n")


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_program_that_ignores_sigterm_goes_on_and_a_second_one_ends_all_at_once(tmp_path: Path, way: str) -> None:
    text = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write(1, b'ready %d\\n' % os.getpid())\nwhile True: time.sleep(0.2); os.write(1, b'on\\n')"
    with Run(tmp_path / "run", python(text), way) as run:
        ready(run)
        run.process.terminate()
        time.sleep(0.5)
        for _ in range(5):
            assert run.process.stdout.readline() == b"on\n"
        run.process.terminate()
        code, _, _ = run.finish(timeout=PROMPT_S)
        assert code in (137, 128 + signal.SIGTERM)
        assert run.ended["at_once"]
        assert run.alive() == []


def test_a_second_signal_ends_what_was_left_behind_at_once(tmp_path: Path) -> None:
    body = "(trap '' TERM; exec sleep 600) & echo ready $$; exit 4"
    with Run(tmp_path / "run", [SH, "-c", body], constants={"LEFTOVER_GRACE_S": 60}, popen={"stderr": None}) as run:
        ready(run)
        time.sleep(0.5)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(PROMPT_S) == 4
        assert run.ended["at_once"]
        assert run.alive() == []


@pytest.mark.parametrize("way", ["group", "session"])
def test_a_signal_while_the_tool_writes_its_report_ends_it_at_once(tmp_path: Path, way: str) -> None:
    script = f"{STAND_INS[way]}; sleep 600"
    with Run(tmp_path / "run", [SH, "-c", "echo ready $$; exit 4"], script=script) as run:
        program = ready(run)
        wait_for(lambda: not Path(f"/proc/{program}").exists())
        time.sleep(0.3)
        run.process.send_signal(signal.SIGINT)
        code, _, _ = run.finish(timeout=PROMPT_S)
        assert code == (4 if way == "session" else 128 + signal.SIGINT)
        assert run.ended["at_once"]
        assert run.alive() == []


@pytest.mark.parametrize("way", ["group", "session"])
def test_a_program_that_is_to_end_before_its_tool_has_started_it_is_not_started(tmp_path: Path, way: str) -> None:
    script = f"touch {tmp_path}/tool; sleep 1; {STAND_INS[way]}"
    with Run(tmp_path / "run", ["echo", "started"], script=script, popen={"start_new_session": True}) as run:
        wait_for((tmp_path / "tool").exists)
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.finish(timeout=PROMPT_S)[:2] == (128 + signal.SIGINT, b"")
        assert not run.ended["at_once"]
        assert run.alive() == []


def test_a_signal_that_does_not_end_waits_for_the_program_to_be_started(tmp_path: Path) -> None:
    script = f"touch {tmp_path}/tool; sleep 0.5; {STAND_INS['session']}"
    with Run(tmp_path / "run", ["sleep", "600"], script=script) as run:
        wait_for((tmp_path / "tool").exists)
        run.process.send_signal(signal.SIGUSR1)
        assert run.finish(timeout=PROMPT_S)[0] == 128 + signal.SIGUSR1


def test_two_signals_end_a_tool_that_never_starts_the_program(tmp_path: Path) -> None:
    script = f"trap '' TERM; touch {tmp_path}/tool; while :; do sleep 1; done"
    with Run(tmp_path / "run", ["true"], script=script) as run:
        wait_for((tmp_path / "tool").exists)
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        run.process.send_signal(signal.SIGINT)
        assert run.finish(timeout=PROMPT_S)[0] == 128 + signal.SIGINT
        assert run.ended["at_once"]
        assert run.alive() == []


# --- ignored, and stopped ---


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(tmp_path: Path, way: str) -> None:
    run = Run(tmp_path / "run", counting("SIGTERM"), way)
    run.folder.mkdir()
    words = run.words()
    outer = Run(
        tmp_path / "outer", [SH, "-c", "trap '' HUP; exec \"$@\"", "sh", *words], "plain",
        environment=run.environment, popen={"start_new_session": True},
    )  # fmt: skip
    with outer:
        ready(outer)
        os.killpg(outer.process.pid, signal.SIGHUP)
        os.kill(outer.process.pid, signal.SIGHUP)
        time.sleep(0.3)
        outer.process.terminate()
        assert outer.finish()[:2] == (33, b"got SIGTERM\ncleaned up\n")


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_group_that_is_stopped_and_continued_goes_on_as_if_nothing_was(tmp_path: Path, way: str) -> None:
    def states(pids: list[int]) -> set[str]:
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}

    with Run(tmp_path / "run", counting("SIGUSR1", 0.1), way, popen={"start_new_session": True}) as run:
        pids = [ready(run), run.process.pid]
        os.killpg(run.process.pid, signal.SIGSTOP)  # in a session without a terminal SIGTSTP stops no process
        wait_for(lambda: states(pids) == {"T"})
        os.killpg(run.process.pid, signal.SIGCONT)
        wait_for(lambda: "T" not in states(pids))
        os.kill(run.process.pid, signal.SIGUSR1)
        assert run.finish()[:2] == (33, b"got SIGUSR1\ncleaned up\n")


# --- a terminal ---


class Terminal:
    """A process in a session of its own, with a terminal that we type into."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.seen = b""
        self.process_id, self.master = pty.fork()
        if self.process_id == 0:
            os.execvpe(words[0], words, environment)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read_until(self, text: bytes, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if not self._read():
                break
        assert text in self.seen, self.seen

    def _read(self) -> bool:
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end was closed
            return False
        self.seen += data
        return bool(data)

    def code(self) -> int:
        while self._read():
            pass
        return shell_code(os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1]))


@contextmanager
def terminal(run: Run) -> Iterator[Terminal]:
    run.folder.mkdir(exist_ok=True)
    words = run.words()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PERFDOCTOR_TEST_MARK": run.mark, **run.environment}
    made = Terminal(words, environment)
    watchdog = threading.Timer(60, lambda: os.kill(made.process_id, signal.SIGKILL))
    watchdog.start()
    try:
        yield made
    finally:
        watchdog.cancel()
        for pid, _ in run.alive():
            os.kill(pid, signal.SIGKILL)
        os.close(made.master)


ON_TERMINAL = """
import os, sys
print([os.isatty(n) for n in (0, 1, 2)], os.tcgetpgrp(0) == os.getpgrp(), os.get_terminal_size(1), flush=True)
with open("/dev/tty", "w") as file:
    file.write("by name\\n")
print("typed", input("? "), flush=True)
sys.exit(5)
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_terminal_stays_one_and_what_is_typed_arrives(tmp_path: Path, way: str) -> None:
    with terminal(Run(tmp_path / "run", python(ON_TERMINAL), way)) as screen:
        screen.read_until(b"? ")
        screen.type(b"some words\n")
        assert screen.code() == 5
    assert b"[True, True, True] True" in screen.seen
    assert b"by name" in screen.seen
    assert b"typed some words" in screen.seen


@contextmanager
def interrupted(run: Run) -> Iterator[Terminal]:
    """The run on a terminal, where Ctrl-C was typed as soon as the program was ready."""
    with terminal(run) as screen:
        screen.read_until(b"ready")
        screen.type(b"\x03")
        yield screen


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_reaches_the_program_once_and_it_may_clean_up(tmp_path: Path, way: str) -> None:
    run = Run(tmp_path / "run", counting("SIGINT", 1), way)
    with interrupted(run) as screen:
        assert screen.code() == 33
        assert run.alive() == []
    assert screen.seen.count(b"got SIGINT") == 1
    assert b"cleaned up" in screen.seen
    assert not run.ended["at_once"]


def test_after_ctrl_c_the_whole_program_writes_its_folder_and_keeps_the_programs_code(tmp_path: Path) -> None:
    run = PerfdoctorRun(tmp_path / "run", counting("SIGINT", 1))
    with interrupted(run) as screen:
        assert screen.code() == 33
        assert run.alive() == []
    assert screen.seen.count(b"got SIGINT") == 1
    assert b"Traceback" not in screen.seen
    assert run.manifest["exit_code"] == 33
    assert run.manifest["passes"][0]["state"] == "done"


def test_when_the_terminal_is_closed_the_folder_is_still_written(tmp_path: Path) -> None:
    run = PerfdoctorRun(tmp_path / "run", [SH, "-c", "trap 'exit 33' HUP; echo ready; while :; do sleep 0.05; done"])
    with terminal(run) as screen:
        screen.read_until(b"ready")
        os.close(screen.master)
        screen.master = os.open(os.devnull, os.O_RDONLY)
        assert os.waitstatus_to_exitcode(os.waitpid(screen.process_id, 0)[1]) == 33
    assert run.manifest["exit_code"] == 33
    assert run.manifest["passes"][0]["state"] == "done"


@pytest.mark.parametrize("way", WAYS)
def test_a_second_ctrl_c_ends_everything_at_once(tmp_path: Path, way: str) -> None:
    run = Run(tmp_path / "run", counting("SIGINT", 600), way)
    with interrupted(run) as screen:
        screen.read_until(b"got SIGINT")
        time.sleep(0.5)
        screen.type(b"\x03")
        assert screen.code() in (137, 130)
        assert run.alive() == []
    assert b"cleaned up" not in screen.seen
    assert run.ended["at_once"]


def test_a_second_ctrl_c_ends_the_whole_program_and_its_folder_records_it(tmp_path: Path) -> None:
    run = PerfdoctorRun(tmp_path / "run", counting("SIGINT", 600))
    with interrupted(run) as screen:
        screen.read_until(b"got SIGINT")
        time.sleep(0.5)
        screen.type(b"\x03")
        assert screen.code() == 137
        assert run.alive() == []
    assert b"Ended at once" in screen.seen
    assert run.manifest["exit_code"] == 137


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_shell_can_stop_the_program_with_ctrl_z_and_bring_it_back(tmp_path: Path, way: str) -> None:
    run = Run(tmp_path / "run", counting("SIGUSR1", 0.1), way)
    run.folder.mkdir()
    (tmp_path / "job").write_text('set -m\n"$@"\necho "stopped with $?"\nread line\nfg\necho "ended with $?"\n')
    whole = Run(tmp_path / "outer", ["bash", str(tmp_path / "job"), *run.words()], "plain", mark=run.mark)
    with terminal(whole) as screen:
        screen.read_until(b"ready")
        screen.type(b"\x1a")
        screen.read_until(b"stopped with 148")
        screen.type(b"\n")
        screen.read_until(b'"$@"')  # fg prints the command that it continues
        pid = int(screen.seen.partition(b"ready ")[2].split()[0])
        wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T")
        os.kill(pid, signal.SIGUSR1)
        screen.read_until(b"ended with 33")
    assert screen.seen.count(b"got") == 1


# --- SIGKILL ---

SLOW = """
import os, sys, time
for number in range(25):
    os.write(1, b"line %d\\n" % number)
    time.sleep(0.02)
with open(sys.argv[1], "w") as file:
    file.write("result")
"""


@pytest.mark.parametrize(("kind", "seed", "moments"), [(PerfdoctorRun, 1, 5), (Run, 2, 5), (Run, 3, 5)])
def test_a_killed_perfdoctor_leaves_the_program_whole_and_nothing_of_its_own(
    tmp_path: Path, kind: type[Run], seed: int, moments: int
) -> None:
    draw = random.Random(seed)
    for number in range(moments):
        folder, output, result = tmp_path / f"run{number}", tmp_path / f"out{number}", tmp_path / f"result{number}"
        with output.open("wb") as stream:
            popen = {"stdout": stream, "stderr": subprocess.DEVNULL}
            with kind(folder, [*python(SLOW), str(result)], popen=popen) as run:
                wait_for(lambda output=output: output.stat().st_size)  # before, the program was not there
                time.sleep(draw.uniform(0, 0.4))
                run.process.kill()
                run.process.wait()
                wait_for(lambda run=run: len(run.alive()) <= 1, 1)  # the program; no canary any more
                wait_for(lambda run=run: not run.alive())
        assert output.read_bytes() == b"".join(b"line %d\n" % n for n in range(25))
        assert result.read_text() == "result"
        if kind is PerfdoctorRun:
            assert isinstance(json.loads((folder / "run" / "run.json").read_text()), dict)


@pytest.mark.parametrize("way", ["group", "session", pytest.param("nsys", marks=pytest.mark.nsys)])
def test_under_a_tool_too_the_program_outlives_a_killed_perfdoctor(tmp_path: Path, way: str) -> None:
    result = tmp_path / "result"
    with Run(tmp_path / "run", [*python(SLOW), str(result)], way) as run:
        assert run.process.stdout.readline() == b"line 0\n"
        run.process.kill()
        assert run.process.stdout.read() == b"".join(b"line %d\n" % n for n in range(1, 25))
        run.process.wait()
        wait_for(lambda: not run.alive(), 40)
    assert result.read_text() == "result"


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_canary_that_was_killed_is_no_reason_to_pass_signals_on_twice(tmp_path: Path, way: str) -> None:
    with Run(tmp_path / "run", counting("SIGTERM"), way, popen={"start_new_session": True}) as run:
        ready(run)
        (canary,) = [pid for pid, name in run.alive() if "ended.json" in name and pid != run.process.pid]
        os.kill(canary, signal.SIGKILL)
        run.process.send_signal(signal.SIGUSR1)  # not reported by the canary, so it is passed on
        assert run.process.stdout.readline() == b"got SIGUSR1\n"
        time.sleep(0.5)
        os.killpg(run.process.pid, signal.SIGUSR2)
        assert run.process.stdout.readline() == b"got SIGUSR2\n"
        run.process.terminate()
        assert run.finish()[:2] == (33, b"got SIGTERM\ncleaned up\n")
        assert run.alive() == []


def test_signals_are_received_by_whichever_thread_of_ours_they_go_to(tmp_path: Path) -> None:
    # With a GPU a thread samples it, and numpy has threads: a signal goes to any thread that does not block it.
    driver = """
import os, signal, sys, threading, time
from perfdoctor.recording.launch import program_run as launch
for _ in range(4):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
ended = launch.run(sys.argv[1:], dict(os.environ))
print(ended.code, ended.interrupted_by, ended.at_once, flush=True)
os._exit(0)
"""
    words = [sys.executable, "-c", driver, *counting("SIGTERM")]
    for _ in range(3):
        with Run(tmp_path / "run", words, "plain") as run:
            ready(run)
            os.kill(run.process.pid, signal.SIGUSR1)
            assert run.process.stdout.readline() == b"got SIGUSR1\n"
            os.kill(run.process.pid, signal.SIGTERM)
            assert run.finish()[1] == b"got SIGTERM\ncleaned up\n33 15 False\n"


def test_the_program_under_test_ends_as_it_does_without_us(tmp_path: Path) -> None:
    assert plain(tmp_path / "plain", [SH, "-c", "kill -INT $$"])[0] == 130
    with Run(tmp_path / "run", [SH, "-c", "kill -INT $$"]) as run:
        assert run.finish()[0] == 130
