"""Do `perfdoctor attach` and a window of `watch` find in a program what `run` finds, and does attach leave no trace?

    python benchmarks/attach.py [--rounds 3] [--times 200] [--python PROGRAM …] [--only PART …]

programs: each is recorded by `run`, by a window of `watch`, and, started plainly, attached to: steps, their length, and the first
finding of each, without the rules that need the steps of the whole run, which nobody sees who comes later. asleep, busy: what becomes of a program
whose main thread sleeps, and of one that spends its steps in one call of C. often: one program is attached to so many times in
a row; its memory, its modules, and what it prints against the same program alone. killed: what makes the call is killed at a
random moment while the program is stopped. pythons: each `--python` with torch is attached to once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import calling, image, session
from perfdoctor.recording.attaching.attachment import Attachment
from perfdoctor.recording.attaching.target import inspect, interpreter
from perfdoctor.recording.tools import torch_profiler

_ROOT = Path(__file__).parents[1]
_PROGRAMS = _ROOT / "benchmarks" / "programs"
_MANY = "1000000"
_LIMIT_S = 150.0
#: Python alone takes seconds to import torch; the program prints when it trains, or its steps begin soon after.
_BEGUN_S = 60.0
_ENDING_S = 20.0
#: Of each of many attaches.
_STEPS = 3
#: It says what else the machine did, and comes first where that is much.
_OF_MACHINE = "busy-machine"

_COUNTING = """
import gc, os, signal, sys, threading, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
data = torch.randn(4096, 64)
number = 0
while True:
    loss = model(data[number % 64 * 64 :][:64]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    number += 1
    if number % 100 == 0:
        print(number, loss.item().hex(), flush=True)
"""
_BUSY = """
import torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.randn(64, 64))
optimizer = torch.optim.SGD([weight], lr=1e-9)
matrix = torch.randn(500, 500)
print("begun", flush=True)
while True:
    torch.linalg.svd(matrix)
    optimizer.zero_grad()
    (weight * 2).sum().backward()
    optimizer.step()
"""
_ASLEEP = """
import time, torch
print("begun", flush=True)
time.sleep(100_000)
"""
_ENDLESS = "print('begun', flush=True)\nwhile True: sum(range(1000))\n"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=1)
    asked.add_argument("--times", type=int, default=200)
    asked.add_argument("--kills", type=int, default=100)
    asked.add_argument("--python", action="append", default=[])
    asked.add_argument("--only", action="append", choices=list(_PARTS))
    given = asked.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # threads of an op that wait for a core spin, and nothing else runs
    for name in given.only or _PARTS:
        print(f"# {name}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for line in _PARTS[name](given, Path(folder)):
                print(line, flush=True)


# --- starting and asking ---------------------------------------------------------------------------------------------


def _python(name: str = "PERFDOCTOR_TORCH_PYTHON") -> str:
    return os.environ[name]


@contextlib.contextmanager
def _running(
    command: Sequence[str], folder: Path, *, until: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The program, started plainly, once it has printed `until`."""
    output = folder / f"output-{random.randrange(1 << 30)}"
    with output.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True)
    try:
        begun = time.monotonic()
        while until not in output.read_text() or (not until and time.monotonic() - begun < _BEGUN_S / 6):
            if process.poll() is not None or time.monotonic() - begun > _BEGUN_S:
                raise RuntimeError(f"{command}: {output.read_text()[-300:]}")
            time.sleep(0.1)
        yield process, output
    finally:
        process.terminate()  # a launcher ends its ranks, which have sessions of their own
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _perfdoctor(*words: str, folder: Path) -> tuple[int, str, float]:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "perfdoctor.cli.main", *words], capture_output=True, text=True, cwd=folder,
        timeout=_LIMIT_S, check=False, env={**os.environ, "PYTHONPATH": str(_ROOT / "src")},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begun


def _attached(pid: int, folder: Path, *words: str) -> tuple[dict[str, object] | None, str, float]:
    out = folder / f"attached-{random.randrange(1 << 30)}"
    code, said, seconds = _perfdoctor(
        "attach", str(pid), "-o", str(out), "--no-save", "--no-html", "--quiet", *words, folder=folder
    )
    if code:
        return None, said, seconds
    return json.loads((out / "diagnosis.json").read_text()), said, seconds


def _facts(diagnosis: dict[str, object] | None) -> str:
    """Steps, their length, and the first finding that needs no whole run and is not the machine's."""
    if diagnosis is None:
        return "nothing"
    every: list[dict[str, object]] = diagnosis["findings"]  # type: ignore[assignment]
    findings = [each for each in every if each.get("basis") != "run" and each["rule"] != _OF_MACHINE]
    first = findings[0]["rule"] if findings else "none"
    steps = diagnosis["run"]["steps"]  # type: ignore[index]
    return f"{steps['used']} steps of {diagnosis['base_ns'] / 1e6:.2f} ms, first {first}"  # type: ignore[operator]


# --- parts -----------------------------------------------------------------------------------------------------------


def _programs(given: argparse.Namespace, folder: Path) -> Iterator[str]:
    of_programs = os.environ.get("PERFDOCTOR_PROGRAMS_PYTHON", _python())
    torchrun = str(Path(_python()).with_name("torchrun"))
    cases: dict[str, tuple[list[str], list[str], list[str]]] = {
        "nano_gpt": ([of_programs, str(_PROGRAMS / "nano_gpt.py"), "--steps"], ["60"], []),
        "lightning_table": ([of_programs, str(_PROGRAMS / "lightning_table.py"), "--steps"], ["300"], []),
        "min_gpt": ([of_programs, str(_PROGRAMS / "min_gpt.py"), "--steps"], ["60"], []),
        "ddp_late_rank, 2 ranks": (
            [torchrun, "--nproc-per-node", "2", str(_PROGRAMS / "ddp_late_rank.py"), "--steps"], ["200"], ["--children"],
        ),
    }  # fmt: skip
    for name, (command, few, words) in cases.items():
        for _ in range(given.rounds):
            with _running([*command, _MANY], folder) as (process, _output):
                by_attach, said, _ = _attached(process.pid, folder, *words)
            yield (
                f"{name}: run {_facts(_by_run([*command, *few], folder))}; "
                f"watch {_facts(_by_watch([*command, _MANY], folder))}; attach {_facts(by_attach)}"
                + ("" if by_attach else f": {said[-300:]}")
            )


def _by_run(command: Sequence[str], folder: Path) -> dict[str, object]:
    out = folder / f"run-{random.randrange(1 << 30)}"
    words = ["-o", str(out), "--no-save", "--no-html", "--quiet", "--no-trial"]
    _perfdoctor("run", *words, "--", *command, folder=folder)
    return json.loads((out / "diagnosis.json").read_text())  # type: ignore[no-any-return]


def _by_watch(command: Sequence[str], folder: Path) -> dict[str, object] | None:
    """The window that is opened to compare others with, some seconds behind the begin."""
    out = folder / f"watch-{random.randrange(1 << 30)}"
    words = ["-o", str(out), "--no-save", "--quiet", "--windows", "0", "--first-window", "5"]
    found = out / "windows" / "1" / "diagnosis.json"
    begun = time.monotonic()
    with _running([sys.executable, "-m", "perfdoctor", "watch", *words, "--", *command], folder) as (process, _):
        while not found.exists() and process.poll() is None and time.monotonic() - begun < _LIMIT_S:
            time.sleep(0.5)
    return json.loads(found.read_text()) if found.exists() else None


def _asleep(_given: argparse.Namespace, folder: Path) -> Iterator[str]:
    with _running([_python(), "-c", _ASLEEP], folder, until="begun") as (process, output):
        code, said, seconds = _perfdoctor(
            "attach", str(process.pid), "-o", str(folder / "asleep"), "--timeout", "5", folder=folder
        )
        still = "stands still" in said
        whole = output.read_text() == "begun\n"
        yield (
            f"exit code {code} after {seconds:.1f} s; named where it stands: {still}; it runs on: "
            f"{process.poll() is None}; output unchanged: {whole}"
        )


def _busy(given: argparse.Namespace, folder: Path) -> Iterator[str]:
    for _ in range(given.rounds):
        with _running([_python(), "-c", _BUSY], folder, until="begun") as (process, output):
            diagnosis, said, seconds = _attached(process.pid, folder, "--steps", "5", "--skip-steps", "2")
            yield f"{_facts(diagnosis)} in {seconds:.1f} s; output unchanged: {output.read_text() == 'begun' + chr(10)} {said[-300:] if diagnosis is None else ''}"  # fmt: skip


def _often(given: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Attach again and again, for 3 steps each time, without a diagnosis."""
    resident, stopped, failed = [], [], 0
    with _running([_python(), "-c", _COUNTING], folder, until="\n") as (process, output):
        for number in range(given.times):
            resident.append(_resident(process.pid))
            steps, stood_still = _once(process.pid, folder / "often" / str(number))
            failed += steps != _STEPS
            stopped.append(stood_still)
        resident.append(_resident(process.pid))
        threads, files = (len(list(Path(f"/proc/{process.pid}/{each}").iterdir())) for each in ("task", "fd"))
        is_alive = process.poll() is None
    attached = output.read_text()
    with _running([_python(), "-c", _COUNTING], folder, until="\n") as (_, output):
        time.sleep(10)
    alone = output.read_text()
    common = min(attached.rfind("\n"), alone.rfind("\n"))
    numbers = [int(line.split()[0]) for line in attached.splitlines()[:-1]]
    middle = resident[len(resident) // 4]
    yield (
        f"{given.times} attaches, {failed} without their {_STEPS} steps, alive: {is_alive}; the first {common} characters "
        f"of output the same: {attached[:common] == alone[:common]}, {len(numbers)} lines, none lost: "
        f"{numbers == [100 * each for each in range(1, len(numbers) + 1)]}; "
        f"resident MB first {resident[0]:.0f}, after a quarter {middle:.0f}, at the end {resident[-1]:.0f}; {threads} "
        f"threads, {files} files; stopped {sorted(stopped)[len(stopped) // 2]:.3f} s, at most {max(stopped):.3f} s"
    )


def _once(pid: int, folder: Path) -> tuple[int, float]:
    """Record once: how many steps, and how long the program stood still."""
    target = inspect(pid)
    assert target is not None
    run = session.new_folder(folder, [target])
    settings = torch_profiler.settings(
        torch_profiler.PassSettings("torch", run.make("torch"), "cpu+cuda"), torch_profiler.StepWindow(_STEPS, 2),
        reports=folder / "agents",
    )  # fmt: skip
    attachment = Attachment(run, {**settings, "marked": False})
    try:
        made = attachment.attach(target)
        attachment.await_begin(_BEGUN_S)
        attachment.wait(time.monotonic() + _BEGUN_S)
        return int(made.facts().get("steps_recorded", 0)) * bool(made.facts().get("trace")), made.injection.stopped_s
    finally:
        attachment.close()
        shutil.rmtree(folder)


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _killed(given: argparse.Namespace, folder: Path) -> Iterator[str]:
    deaths = kills = 0
    for _ in range(given.kills):
        with _running([sys.executable, "-c", _ENDLESS], folder, until="begun") as (process, _output):
            target = inspect(process.pid)
            assert target is not None
            at = interpreter(target.pid, image.files(image.maps(target.pid)), ("Py_AddPendingCall", "Py_IsInitialized"))
            killer = threading.Thread(target=_kill_caller, args=(process.pid,))
            killer.start()
            try:  # without a function to run: nothing is queued, and the call is as long
                calling.call(target.pid, at[0][1]["Py_IsInitialized"], 0)
            except PerfdoctorError:
                kills += 1
            killer.join()
            time.sleep(0.05)
            deaths += process.poll() is not None
    yield f"{kills} callers killed while the program was stopped: {deaths} programs died"


def _kill_caller(pid: int) -> None:
    status = Path(f"/proc/{pid}/status")
    until = time.monotonic() + 5
    while time.monotonic() < until:
        tracer = next(
            (line.split()[1] for line in status.read_text().splitlines() if line.startswith("TracerPid")), "0"
        )
        if tracer != "0":
            time.sleep(random.uniform(0, 0.001))
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(tracer), signal.SIGKILL)
            return


def _pythons(given: argparse.Namespace, folder: Path) -> Iterator[str]:
    for python in given.python:
        with _running([*python.split(), "-c", _COUNTING], folder, until="\n") as (process, output):
            diagnosis, said, seconds = _attached(process.pid, folder)
            time.sleep(1)
            lines = output.read_text().splitlines()
            whole = all(int(line.split()[0]) == 100 * number for number, line in enumerate(lines, 1))
            way = "" if diagnosis is not None else said[-400:]
            yield f"{python}: {_facts(diagnosis)} in {seconds:.1f} s; output whole: {whole}, alive: {process.poll() is None} {way}"


_PARTS = {
    "programs": _programs, "asleep": _asleep, "busy": _busy, "often": _often, "killed": _killed, "pythons": _pythons,
}  # fmt: skip


if __name__ == "__main__":
    main()
