"""A program under `launch.run` runs as it would alone: output, input, exit code, and all that it inherits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from folders import ROOT
from launched import PROMPT_S, SH, STAND_INS, STANDING_IN, WAYS, PerfdoctorRun, Run, lines_of, plain, python, wait_for

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.launch import processes
from perfdoctor.recording.launch import program_run as launch
from perfdoctor.recording.launch.held_by_nsys import is_held
from perfdoctor.system.paths import text_of

#: Grace times as they are would make the tests long.
QUICK = {"LEFTOVER_GRACE_S": 0.5, "ENDING_GRACE_S": 0.5}
IDLE = {**QUICK, "TOOL_IDLE_S": 1.0}


def sh(text: str) -> list[str]:
    return [SH, "-c", text]


# --- exit codes ---


CODES = {"exit 0": 0, "exit 1": 1, "exit 7": 7, "kill -KILL $$": 137, "kill -SEGV $$": 139, "kill -TERM $$": 143}


@pytest.mark.parametrize(
    ("way", "body"),
    [*((way, body) for way in STANDING_IN for body in CODES)]
    + [pytest.param("nsys", body, marks=pytest.mark.nsys) for body in ("exit 7", "kill -KILL $$", "kill -SEGV $$")],
)
def test_the_exit_code_is_the_programs_own(tmp_path: Path, way: str, body: str) -> None:
    with Run(tmp_path / "run", sh(body), way) as run:
        assert run.finish()[0] == CODES[body]
        assert run.ended["code"] == CODES[body]
        assert run.ended["notes"] == []
        assert run.alive() == []


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_program_that_cannot_be_started_has_the_code_that_shells_give_it(tmp_path: Path, way: str) -> None:
    no_interpreter, forbidden = tmp_path / "script", tmp_path / "data"
    no_interpreter.write_text("#!/no/such/interpreter\n")
    no_interpreter.chmod(0o755)
    forbidden.write_text("data\n")
    for number, (name, code) in enumerate(((no_interpreter, 127), (forbidden, 126), ("no-such-program", 127))):
        with Run(tmp_path / f"run{number}", [str(name)], way) as run:
            assert run.finish()[0] == code
            if way != "group":
                assert f"`{name}` did not start" in run.notes


@pytest.mark.parametrize(("name", "mode", "code"), [("no-such-program", None, 127), ("data.txt", 0o644, 126)])
def test_perfdoctor_itself_exits_like_a_shell_for_what_cannot_be_started(
    tmp_path: Path, name: str, mode: int | None, code: int
) -> None:
    file = tmp_path / name
    if mode is not None:
        file.write_text("data")
        file.chmod(mode)
    with PerfdoctorRun(tmp_path / "run", [str(file)]) as run:
        got, output, errors = run.finish()
    assert got == code
    assert output == b""
    assert str(file).encode() in errors
    assert not (tmp_path / "run" / "run").exists()


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1"; exit 4\n')
    script.chmod(0o755)
    with Run(tmp_path / "run", [str(script), "a b"]) as run:
        assert run.finish()[:2] == (4, b"a b\n")


@pytest.mark.parametrize(("body", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_the_whole_program_exits_with_the_programs_code_and_prints_only_to_standard_error(
    tmp_path: Path, body: str, code: int
) -> None:
    with PerfdoctorRun(tmp_path / "run", sh(f"printf out; printf err >&2; {body}")) as run:
        got, output, errors = run.finish()
    assert got == code
    assert output == b"out"
    assert b"err" in errors
    assert b"Traceback" not in errors
    assert run.manifest["exit_code"] == run.manifest["passes"][0]["exit_code"] == code
    assert "imported torch" in run.notes


# --- output and input ---


@pytest.mark.parametrize("way", WAYS)
def test_output_and_error_are_unchanged_and_separate(tmp_path: Path, way: str) -> None:
    text = "import os\nfor n in range(300):\n os.write(1, bytes(range(256)) + b'%d' % n); os.write(2, b'\\xff\\0%d\\r' % n)"
    with Run(tmp_path / "run", python(text), way) as run:
        assert run.finish() == plain(tmp_path / "plain", python(text))


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_gigabyte_passes_through_and_none_of_it_is_kept(tmp_path: Path, way: str) -> None:
    many = 1_000_000_000 if way == "alone" else 300_000_000
    with Run(tmp_path / "run", sh(f"head -c {many} /dev/zero; exit 3"), way) as run:
        counted = subprocess.run(["wc", "-c"], stdin=run.process.stdout, capture_output=True, timeout=60, check=True)
        assert int(counted.stdout) == many
        assert run.finish()[0] == 3
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 50_000_000


@pytest.mark.parametrize("way", WAYS)
def test_a_line_arrives_before_the_program_ends_and_an_answer_reaches_it(tmp_path: Path, way: str) -> None:
    with Run(tmp_path / "run", sh('echo first; read line; echo "got $line"; cat'), way) as run:
        assert run.process.stdout.readline() == b"first\n"
        run.process.stdin.write(b"words\n")
        run.process.stdin.flush()
        assert run.process.stdout.readline() == b"got words\n"
        assert run.finish(b"the rest")[:2] == (0, b"the rest")


# nsys itself waits half a minute for a program that closes its output.
@pytest.mark.parametrize("way", STANDING_IN)
def test_a_program_that_closes_its_output_goes_on(tmp_path: Path, way: str) -> None:
    with Run(
        tmp_path / "run", sh(f"echo before; exec >&-; sleep 0.2; echo after > {tmp_path}/file; exit 5"), way
    ) as run:
        assert run.finish()[:2] == (5, b"before\n")
    assert lines_of(tmp_path / "file") == ["after"]


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_that_goes_away_ends_the_program_as_it_would_alone(tmp_path: Path, way: str) -> None:
    with Run(tmp_path / "run", ["yes"], way) as run:
        assert run.process.stdout.readline() == b"y\n"
        run.process.stdout.close()
        run.process.stdout = None
        assert run.process.wait(60) == 128 + signal.SIGPIPE
        assert run.process.stderr.read() == b""


@pytest.mark.parametrize("way", STANDING_IN)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_was_closed_at_the_start_stays_closed_and_nothing_else_is_written_there(
    tmp_path: Path, way: str, closed: str
) -> None:
    open_file = tmp_path / "open"
    body = f"for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && found=$found$n; done; echo $found > {open_file}; exit 6"
    run = Run(tmp_path / "run", sh(body), way)
    run.folder.mkdir()
    words = run.words()
    with Run(tmp_path / "outer", [SH, "-c", f'exec "$@" {closed}', "sh", *words], "plain", mark=run.mark) as outer:
        assert outer.finish() == (6, b"", b"")
    still_open = [str(n) for n, sign in enumerate(("<&-", ">&-", "2>&-")) if sign not in closed.split()]
    assert lines_of(open_file) == ["".join(still_open)]


# --- what is inherited ---


def shown(folder: Path, way: str, seven: int) -> list[str]:
    """What the program inherits, started from a shell that has changed some of it."""
    folder.mkdir()
    program = folder / "show"
    # Python changes some dispositions itself, so a shell's child prints them.
    program.write_text(
        f"grep -E 'SigBlk|SigIgn|Umask' /proc/self/status; pwd; ulimit -a; nice; env | sort\n"
        f"cut -d' ' -f5,6 /proc/$$/stat; readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 /proc/$$/fd/{seven}\n"
    )
    run = Run(folder / "run", [SH, str(program)], way)
    run.folder.mkdir()
    words = run.words()
    inside = folder.parent / "inside"
    inside.mkdir(exist_ok=True)
    setting = f"cd {inside}; umask 027; ulimit -c 0; ulimit -n 4096; trap '' HUP; exec nice -n 3 \"$@\" < /dev/null 2> ../errors"
    # Numbers of groups and sessions differ from run to run: the shell prints its own first.
    script = f"cut -d' ' -f5,6 /proc/$$/stat; readlink /proc/$$/fd/1; {setting}"
    environment = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "PYTHONPATH": run_path(), **run.environment}
    with Run(
        folder / "outer", [SH, "-c", script, "sh", *words], "plain", popen={"pass_fds": (seven,), "env": environment}
    ) as outer:
        code, output, _ = outer.finish()
    assert code == 0, (folder.parent / "errors").read_text()
    group, pipe, *lines = output.decode().splitlines()
    own = {group: "the shell's group and session", pipe: "the shell's output"}
    return [own.get(line) or _without_reserved(line) for line in lines]


def _without_reserved(line: str) -> str:
    """glibc's posix_spawn ignores two signals that it uses itself, which cannot be sent or handled."""
    name, _, value = line.partition(":")
    return f"{name}: {int(value, 16) & ~(0b11 << 31):x}" if name == "SigIgn" else line


def run_path() -> str:
    return str(ROOT / "src")


@pytest.mark.parametrize("way", STANDING_IN)
def test_the_program_inherits_what_it_would_have_inherited_without_us(tmp_path: Path, way: str) -> None:
    reading, writing = os.pipe()
    try:
        without = shown(tmp_path / "without", "plain", writing)
        got = shown(tmp_path / "with", way, writing)
    finally:
        os.close(reading)
        os.close(writing)
    assert {"the shell's group and session", "the shell's output"} <= set(without)
    ours = {"PYTHONPATH", "PWD", "OLDPWD", "_"}
    assert [line for line in got if line.split("=")[0] not in ours] == [
        line for line in without if line.split("=")[0] not in ours
    ]


@pytest.mark.nsys
def test_under_nsys_umask_group_session_and_dispositions_are_the_users(tmp_path: Path) -> None:
    without = shown(tmp_path / "without", "plain", 2)
    got = shown(tmp_path / "with", "nsys", 2)
    kept = ("Sig", "Umask", "the shell's", "/", "core", "nofiles")
    assert [line for line in got if line.startswith(kept)] == [line for line in without if line.startswith(kept)]


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_locale_that_python_makes_for_itself_does_not_reach_the_program(tmp_path: Path, way: str) -> None:
    unset = dict.fromkeys(("LANG", "LC_ALL", "LC_CTYPE"))
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    run = Run(tmp_path / "run", ["/usr/bin/env"], way)
    run.folder.mkdir()
    words = run.words()
    popen = {"env": {**environment, "PYTHONPATH": run_path(), **run.environment}}
    with Run(tmp_path / "outer", words, "plain", popen=popen) as outer:
        code, output, errors = outer.finish()
    assert code == 0, errors
    assert b"LC_CTYPE" not in output


# --- what it leaves behind ---

LEFT = {
    "a background child": "sleep 611 > /dev/null & exit 3",
    "one that ignores SIGTERM": "(trap '' TERM; exec sleep 613) > /dev/null & exit 3",
    "one that is stopped": "sleep 614 > /dev/null & kill -STOP $!; exit 3",
    "one that starts others": "(trap '' TERM; while :; do sleep 0.05; done) > /dev/null 2>&1 & exit 3",
}


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        *(("alone", kind) for kind in LEFT),
        *((way, kind) for way in STAND_INS for kind in ("a background child", "one that ignores SIGTERM")),
        pytest.param("nsys", "a background child", marks=pytest.mark.nsys),
    ],
)
def test_nothing_that_the_program_leaves_behind_outlives_it_and_the_note_names_only_that(
    tmp_path: Path, way: str, kind: str
) -> None:
    # In a group of its own: in CI ours is orphaned, and the kernel sends SIGHUP once a process in it is stopped.
    popen = {"preexec_fn": os.setpgrp}
    with Run(tmp_path / "run", sh(LEFT[kind]), way, constants=QUICK, popen=popen) as run:
        assert run.finish()[0] == 3
        assert run.alive() == []
        assert len(run.ended["notes"]) == 1, run.notes
        note = run.notes
        assert note.startswith("still running after the program had ended")
        named = set(note.rpartition(": ")[2].split(", "))
        assert named <= {"sleep", "sh", "dash", "bash"}


DAEMON = "(setsid sleep 612 > /dev/null 2>&1 < /dev/null &) ; sleep 0.3; sleep 611 > /dev/null 2>&1 & exit 3"


@pytest.mark.parametrize("way", WAYS)
def test_a_daemon_in_a_session_of_its_own_outlives_the_run_as_it_would_without_us(tmp_path: Path, way: str) -> None:
    with Run(tmp_path / "run", sh(DAEMON), way, constants=QUICK) as run:
        assert run.finish()[0] == 3
        assert [name for _, name in run.alive()] == ["sleep 612 "]
        assert run.ended["notes"] == ["still running after the program had ended, so perfdoctor ended them: sleep"]


def test_a_daemon_of_a_program_that_is_ended_is_ended_too(tmp_path: Path) -> None:
    # As torchrun's workers, which have sessions of their own.
    with Run(tmp_path / "run", sh("setsid sleep 612 & trap '' TERM; wait"), constants=QUICK, time_limit_s=1) as run:
        assert run.finish(timeout=PROMPT_S)[0] == 137
        assert run.alive() == []


def test_a_child_that_ends_by_itself_is_waited_for_and_not_named(tmp_path: Path) -> None:
    body = f"(sleep 0.5; echo late > {tmp_path}/late) & exit 0"
    with Run(tmp_path / "run", sh(body)) as run:
        assert run.finish()[0] == 0
        assert run.ended["notes"] == []
    assert lines_of(tmp_path / "late") == ["late"]


def test_the_name_of_a_leftover_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    text = f"""
import ctypes, os, time
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, b"a\\x1b[31mb", 0, 0, 0)
    open({str(tmp_path / "there")!r}, "w").close()
    time.sleep(600)
while not os.path.exists({str(tmp_path / "there")!r}):
    time.sleep(0.01)
os._exit(0)
"""
    with Run(
        tmp_path / "run", python(text), constants=QUICK, popen={"stdout": subprocess.DEVNULL, "stderr": None}
    ) as run:
        run.finish()
        assert "a?[31mb" in run.notes


def test_what_ran_before_perfdoctor_is_left_alone(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", sh("exit 0"), constants=QUICK)
    run.folder.mkdir()
    words = run.words()
    body = f'sleep 60 > /dev/null 2>&1 & echo $! > {tmp_path}/pid; exec "$@"'  # the sleep becomes perfdoctor's child
    with Run(tmp_path / "outer", [SH, "-c", body, "sh", *words], "plain") as outer:
        assert outer.finish()[0] == 0
        os.kill(int(lines_of(tmp_path / "pid")[0]), 0)
        assert [name for _, name in outer.alive()] == ["sleep 60 "]
    assert run.ended["notes"] == []


def test_the_whole_program_names_what_was_left_behind(tmp_path: Path) -> None:
    with PerfdoctorRun(tmp_path / "run", sh("sleep 611 > /dev/null 2>&1 & exit 3")) as run:
        code, _, errors = run.finish()
        assert code == 3
        assert run.alive() == []
    assert b"perfdoctor ended them: sleep" in errors
    assert "perfdoctor ended them: sleep" in run.notes


# --- a tool that fails ---


def test_a_tool_that_cannot_be_started_leaves_the_program_to_run_alone(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", sh("cat; exit 7"), script='"$@"')
    words = run_words_with_tool(run, "/no/such/tool")
    with Run(tmp_path / "outer", words, "plain") as outer:
        assert outer.finish(b"input")[:2] == (7, b"input")
    assert "the profiler did not start: No such file or directory: the program ran without it" in run.notes


def run_words_with_tool(run: Run, tool: str) -> list[str]:
    run.folder.mkdir()
    words = run.words()
    made = next(str(file) for file in run.folder.iterdir() if file.name.startswith("tool-"))
    return [word.replace(made, tool) for word in words]


def test_a_tool_that_ends_before_it_starts_the_program_leaves_it_to_run_alone(tmp_path: Path) -> None:
    with Run(tmp_path / "run", sh("cat; exit 7"), script="exit 55") as run:
        assert run.finish(b"input")[:2] == (7, b"input")
        assert "ended with code 55 before it had started the program: the program ran without it" in run.notes


def test_a_tool_that_hangs_before_it_starts_the_program_leaves_it_to_run_alone(tmp_path: Path) -> None:
    with Run(tmp_path / "run", sh("cat; exit 7"), script="sleep 300", constants=IDLE) as run:
        assert run.finish(b"input")[:2] == (7, b"input")
        assert "the profiler did nothing for 1 s: it was ended" in run.notes
        assert "before it had started the program: the program ran without it" in run.notes


def test_what_a_tool_leaves_that_did_not_start_the_program_is_ended(tmp_path: Path) -> None:
    leaves = (
        f"setsid sh -c 'echo $$ > {tmp_path}/left; exec sleep 300' & until [ -s {tmp_path}/left ]; do :; done; exit 55"
    )
    with Run(tmp_path / "run", sh("sleep 0.1; exit 7"), script=leaves) as run:
        assert run.finish()[0] == 7
    assert not processes.is_alive(int((tmp_path / "left").read_text()))


@pytest.mark.parametrize(
    ("second", "code", "runs", "note"),
    [
        ('exec "$@"', 7, ".", "it was started again and asked for less"),
        ("exit 56", 7, ".", "ended with code 56 before it had started the program: the program ran without it"),
    ],
)
def test_a_tool_that_ends_before_it_starts_the_program_is_started_again_and_asked_for_less(
    tmp_path: Path, second: str, code: int, runs: str, note: str
) -> None:
    def with_tool(script: str) -> Callable[[Sequence[str]], list[str]]:
        return lambda program: [SH, "-c", script, "tool", *program]

    tool = launch.ProfilerCommand(with_tool("exit 55"), tmp_path / "log", with_tool(second))
    ended = launch.run(sh(f"printf . >> {tmp_path}/ran; exit 7"), dict(os.environ), tool=tool, time_limit_s=60)
    assert (ended.code, (tmp_path / "ran").read_text()) == (code, runs)
    assert ended.alone is (second == "exit 56")
    assert note in " ".join(ended.notes)


def is_tool(name: str) -> bool:
    first, second, *_ = [*name.split(), "", ""]
    return (first == SH and "/tool-" in second) or (first.endswith("/nsys") and second == "profile")


@pytest.mark.parametrize(
    ("way", "number"),
    [
        *((way, number) for way in STAND_INS for number in (signal.SIGTERM, signal.SIGKILL)),
        pytest.param("nsys", signal.SIGKILL, marks=pytest.mark.nsys),
    ],
)
def test_a_tool_that_is_killed_does_not_take_the_program_with_it(tmp_path: Path, way: str, number: int) -> None:
    body = f"echo $$ > {tmp_path}/pid.part; mv {tmp_path}/pid.part {tmp_path}/pid; read line; echo $line; exit 9"
    with Run(tmp_path / "run", sh(body), way, constants=QUICK) as run:
        wait_for(lambda: lines_of(tmp_path / "pid"))
        tool = wait_for(lambda: [pid for pid, name in run.alive() if is_tool(name)])
        for pid in tool:
            os.kill(pid, number)
        wait_for(lambda: not [pid for pid, name in run.alive() if is_tool(name)])
        assert run.finish(b"still here\n")[:2] == (9, b"still here\n")
        assert run.alive() == []


def test_a_tool_that_hangs_after_the_program_has_ended_is_ended(tmp_path: Path) -> None:
    for way, script in (
        ("session", 'setsid -w "$@"; sleep 600'),
        ("group", '"$@"; trap "" TERM; while :; do sleep 600; done'),
    ):
        with Run(tmp_path / way, sh("exit 7"), script=script, constants=IDLE) as run:
            code, _, _ = run.finish(timeout=PROMPT_S)
            assert run.alive() == []
            assert "the profiler did nothing for 1 s after the program's end: it was ended" in run.notes
            # In a session of its own the program is our child, so its exit code is known.
            assert code == 7 if way == "session" else "the program's exit code was lost" in run.notes


def test_a_tool_that_works_for_long_after_the_program_has_ended_is_waited_for(tmp_path: Path) -> None:
    busy = "end=$(($(date +%s) + 4)); while [ $(date +%s) -lt $end ]; do :; done"
    with Run(tmp_path / "run", sh("exit 7"), script=f'"$@"; code=$?; {busy}; (exit $code)', constants=IDLE) as run:
        assert run.finish()[0] == 7
        assert run.ended["notes"] == []
        assert run.ended["seconds"] > 2
    assert lines_of(tmp_path / "run" / "tool.log")[-1] == "the tool ends"


def test_what_the_tool_leaves_behind_is_ended_and_not_called_the_programs(tmp_path: Path) -> None:
    for way, start in STAND_INS.items():
        script = f"sleep 621 & setsid sleep 622 & {start}; code=$?; sleep 0.5; setsid sleep 623 & (exit $code)"
        with Run(tmp_path / way, sh("exit 2"), script=script, constants=QUICK) as run:
            assert run.finish()[0] == 2
            assert run.alive() == []
            assert run.ended["notes"] == [], way


# --- clock ---

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


@pytest.mark.parametrize("way", STANDING_IN)
def test_the_time_limit_ends_the_program_with_a_note(tmp_path: Path, way: str) -> None:
    body = "trap 'echo saved; exit 21' TERM; echo ready; while :; do sleep 0.05; done"
    with Run(tmp_path / "run", sh(body), way, time_limit_s=1) as run:
        assert run.finish()[:2] == (21, b"ready\nsaved\n")
        assert run.ended["notes"] == ["the time limit was reached: the program was ended"]


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_program_that_ignores_being_ended_is_killed(tmp_path: Path, way: str) -> None:
    with Run(tmp_path / "run", python(STUBBORN), way, constants=QUICK, time_limit_s=1) as run:
        assert run.finish(timeout=PROMPT_S)[0] == 137
        assert run.alive() == []
        assert run.ended["notes"] == ["the time limit was reached: the program was ended"]


@pytest.mark.parametrize("script", ["sleep 600", "trap '' TERM; setsid sleep 600 & while :; do sleep 1; done"])
def test_a_tool_that_never_starts_the_program_ends_with_the_time_limit(tmp_path: Path, script: str) -> None:
    with Run(tmp_path / "run", sh("echo started"), script=script, constants=QUICK, time_limit_s=1) as run:
        assert run.finish(timeout=PROMPT_S)[:2] == (143, b"")
        assert run.alive() == []


@pytest.mark.parametrize("way", STANDING_IN)
def test_a_program_whose_recording_is_finished_is_ended(tmp_path: Path, way: str) -> None:
    with Run(tmp_path / "run", sh("trap 'exit 22' TERM; echo ready; while :; do sleep 0.05; done"), way) as run:
        assert run.process.stdout.readline() == b"ready\n"
        (tmp_path / "run" / "finished").touch()
        assert run.finish()[0] == 22
        assert run.ended["notes"] == []


def test_a_process_that_should_have_ended_on_sigterm_is_killed_and_the_program_goes_on(tmp_path: Path) -> None:
    text = f"""
import pathlib, signal, subprocess, sys
worker = subprocess.Popen([sys.executable, "-I", "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
worker.stdout.readline()
pathlib.Path({str(tmp_path / "run" / "overdue")!r}).write_text(str(worker.pid))
signal.signal(signal.SIGTERM, lambda *_: None)
print("ready", flush=True)
print(worker.wait(), flush=True)
"""
    with Run(tmp_path / "run", python(text), constants=QUICK) as run:
        assert run.process.stdout.readline() == b"ready\n"
        run.process.terminate()
        assert run.finish(timeout=PROMPT_S)[:2] == (0, b"-9\n")


def test_a_process_that_is_not_the_program_s_is_never_killed_for_being_late(tmp_path: Path) -> None:
    """A report may be of another machine, or of a number that is another process's now."""
    with subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(60)"], start_new_session=True) as other:
        text = f"""
import pathlib, signal, sys, time
pathlib.Path({str(tmp_path / "run" / "overdue")!r}).write_text("{other.pid}")
signal.signal(signal.SIGTERM, lambda *_: None)
print("ready", flush=True)
time.sleep(0.5)
end = time.monotonic() + 2
while time.monotonic() < end:
    time.sleep(0.1)
"""
        with Run(tmp_path / "run", python(text), constants=QUICK) as run:
            assert run.process.stdout.readline() == b"ready\n"
            run.process.terminate()
            assert run.finish(timeout=PROMPT_S)[0] == 0
        assert other.poll() is None
        other.kill()


def test_seconds_are_those_of_the_run(tmp_path: Path) -> None:
    began = time.monotonic()
    with Run(tmp_path / "run", ["sleep", "0.5"]) as run:
        run.finish()
    assert 0.5 <= run.ended["seconds"] <= time.monotonic() - began


def test_recording_elsewhere_than_on_linux_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PerfdoctorError, match="needs Linux"):
        launch.run(["true"], {})


def test_what_is_left_behind_stopped_may_clean_up_as_well(tmp_path: Path) -> None:
    left = tmp_path / "left.sh"
    left.write_text(
        f"trap 'echo cleaned >{tmp_path}/said; exit' TERM\ntouch {tmp_path}/begun\nkill -STOP $$\nsleep 9\n"
    )
    begun = f"{SH} {left} & while [ ! -e {tmp_path}/begun ]; do sleep 0.02; done; sleep 0.2"
    with Run(tmp_path / "run", sh(begun), constants=QUICK) as run:
        assert run.finish()[0] == 0
        assert lines_of(tmp_path / "said") == ["cleaned"]
        assert not run.alive()


def test_a_run_leaves_no_descriptor_open() -> None:
    program = """
        import os
        from perfdoctor.recording.launch import program_run
        def opened():
            return len(os.listdir("/proc/self/fd"))
        counts = []
        for _ in range(3):
            assert program_run.run(["true"], dict(os.environ)).code == 0
            counts.append(opened())
        print(counts[2] - counts[0])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.nsys
def test_under_nsys_what_was_closed_at_the_start_is_nothing_and_no_descriptor_of_nsys(tmp_path: Path) -> None:
    program = python(
        "import os; os.write(2, b'x'); print(*(os.readlink(f'/proc/self/fd/{n}') for n in (0, 2))); raise SystemExit(6)"
    )
    run = Run(tmp_path / "run", program, "nsys")
    run.folder.mkdir()
    words = run.words()
    outer = Run(
        tmp_path / "outer",
        [SH, "-c", 'exec "$@" <&- 2>&-', "sh", *words],
        "plain",
        mark=run.mark,
        environment=run.environment,
    )
    with outer:
        assert outer.finish()[:2] == (6, b"/dev/null /dev/null\n")


#: On the way out the library of nsys crashes now and then, once it is woken.
OWN_OR_CRASHED = (7, 128 + signal.SIGSEGV)
CLOSES_ALL = "import os, sys, time; os.closerange(3, 4096); print('done', flush=True); {}; sys.exit(7)"


@pytest.mark.nsys
def test_a_program_that_closed_the_descriptors_of_nsys_ends_by_itself_with_its_own_code(tmp_path: Path) -> None:
    with Run(tmp_path / "run", python(CLOSES_ALL.format("pass")), "nsys") as run:
        code, output, _ = run.finish()
        assert output == b"done\n"
        assert code in OWN_OR_CRASHED
        assert "had closed descriptors of nsys" in run.notes
        assert run.alive() == []


@pytest.mark.nsys
def test_a_program_that_closed_them_and_waits_is_left_alone_until_it_ends(tmp_path: Path) -> None:
    waits = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=6)"
    with Run(tmp_path / "run", python(CLOSES_ALL.format(waits)), "nsys") as run:
        assert run.process.stdout.readline() == b"done\n"
        (pid,) = [pid for pid, name in run.alive() if name.startswith(f"{sys.executable} -I -c import os")]
        wait_for(lambda: text_of(f"/proc/{pid}/wchan").startswith("futex"))
        assert not is_held(pid)
        assert run.finish()[0] in OWN_OR_CRASHED
        assert run.notes.count("had closed descriptors of nsys") == 1
