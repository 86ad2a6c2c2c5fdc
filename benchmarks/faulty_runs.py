"""What happens to a program where something fails while it is recorded? Many runs of `perfdoctor run`, a fault in each.

`make faults` does 40; `FAULTS="--runs 1000"` more. A run has a program, a way to start it, passes and a fault, drawn
from a seed. It is wrong if the exit code or the output is not what it would be without perfdoctor, a process or a file is
left behind, something of ours fails with a traceback, or a pass that is called done lacks a file that it names. The
programs need no torch; with one (PERFDOCTOR_TORCH_PYTHON) some train. ncu is a stand-in, as there may be no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zipapp
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
MARK = "PERFDOCTOR_FAULT_RUN"
#: A program takes a second, its recording some more; a machine that is busy ten times as long.
_MOST_SECONDS = 150
_LOST_S = 90  # until nsys, which nobody watches any more, has made its report on a busy machine
#: A clock that jumps by the seconds in a file. libfaketime changes sleeping as well, which then fails (EINVAL).
_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static long offset(void) {
    static volatile long *jump;
    if (!jump) {
        int file = open(getenv("CLOCK_FILE") ? getenv("CLOCK_FILE") : "", O_RDONLY);
        static long none;
        void *mapped = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
        jump = mapped == MAP_FAILED ? &none : mapped;
    }
    return *jump;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    if (!code && clock == CLOCK_REALTIME) now->tv_sec += offset();
    return code;
}
"""

_LINES = "import os, sys, time\nfor number in range(25):\n    print('line', number, flush=True)\n    time.sleep(0.02)\n"
PROGRAMS: Mapping[str, str] = {
    "plain": _LINES,
    "exits": f"{_LINES}sys.exit(7)\n",
    "raises": f"{_LINES}raise RuntimeError('mine')\n",
    "segfaults": f"{_LINES}os.kill(os.getpid(), 11)\n",
    "aborts": f"{_LINES}os.abort()\n",
    "ends-itself": f"{_LINES}os.kill(os.getpid(), 15)\n",
    "exits-at-once": f"{_LINES}os._exit(5)\n",
    "forks": f"import os\nif not os.fork():\n    print('child', flush=True)\n    os._exit(3)\nprint(os.wait()[1], flush=True)\n{_LINES}",
    "execs": f"import os, sys\nos.execv(sys.executable, [sys.executable, '-c', {_LINES!r}])\n",
    "shell": "import subprocess, sys\nsys.exit(subprocess.call(['sh', '-c', 'echo shell; exit 6']))\n",
    "daemonises": f"import os, time\nif not os.fork():\n    os.setsid()\n    null = os.open(os.devnull, os.O_RDWR)\n    for number in range(3):\n        os.dup2(null, number)\n    time.sleep(1.5)\n    os._exit(0)\n{_LINES}",
    "closes": f"import os\nos.closerange(3, 4096)\n{_LINES}",
    "closes-output": "import os, sys\nprint('before', flush=True)\nos.close(1)\nos.close(2)\nos._exit(4)\n",
    "threads": f"import threading\nthread = threading.Thread(target=lambda: sum(range(10**6)))\nthread.start()\n{_LINES}thread.join()\n",
    "patches": "import builtins, os, signal, sys, time\ntime.time = time.monotonic = lambda: 0.0\nbuiltins.open = None\nos.fork = os.replace = os.listdir = None\nsys.excepthook = lambda *_: os.write(1, b'hooked')\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nfor number in range(25):\n    print('line', number, flush=True)\nraise ValueError\n",
    "settraces": f"import sys\nsys.settrace(lambda *_: None)\nsys.setprofile(lambda *_: None)\n{_LINES}",
    "profiles": f"import cProfile\nprofile = cProfile.Profile()\nprofile.runcall(exec, {_LINES!r})\n",
    "alarms": f"import signal\ncame = []\nsignal.signal(signal.SIGALRM, lambda *_: came.append(1))\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\n{_LINES}print(came, flush=True)\n",
    "ignores": f"import signal\nfor number in (1, 2, 3, 13, 15, 17):\n    signal.signal(number, signal.SIG_IGN)\n{_LINES}",
    "ends-children": f"import os, subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\nchild.kill()\nprint(child.wait(), flush=True)\n{_LINES}",
    "limits-itself": f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n{_LINES}",
    "moves": f"import os, tempfile\nfolder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)\n{_LINES}",
    "forgets": f"import os\nos.environ.clear()\n{_LINES}",
    "reads": "import sys\nprint(len(sys.stdin.read()), flush=True)\n",
    "much": "import sys\nfor _ in range(2000):\n    sys.stdout.write('x' * 1023 + chr(10))\nsys.exit(9)\n",
    **{
        f"multiprocessing-{method}": "import multiprocessing, sys\ndef work(number):\n    return number * number\nif __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(2) as pool:\n        print(pool.map(work, range(5)), flush=True)\n    sys.exit(8)\n"
        for method in ("fork", "spawn", "forkserver")
    },
}  # fmt: skip
TRAINING = """
import sys, torch
torch.manual_seed(1)
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(data, batch_size=8, num_workers=WORKERS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.6f}", flush=True)
sys.exit(3)
"""
_STARTED_ANEW = {"multiprocessing-spawn", "multiprocessing-forkserver", "torch-2"}
WAYS = ("script", "script", "script", "-I", "-E", "-S", "-P", "-u", "-c", "-m", "zipapp", "venv", "stdin-closed")
PASSES = ("torch", "torch", "nsys", "nsys,torch", "torch,ncu")

# The whole command line, with an ncu that "finds kernels", and a disk that may be as small as it likes.
_DRIVER = """
import sys
sys.path.insert(0, {source!r})
from msgspec.structs import replace
from perfdoctor.cli import main, run
from perfdoctor.recording import plan
made = plan._trouble
plan.LEAST_FREE_BYTES = 0
plan._trouble = lambda name, machine, folder: "" if name == "ncu" and machine.ncu else made(name, machine, folder)
run._kernels_to_measure = lambda folder: ("kernel",)
sys.argv[0] = "perfdoctor"
main.main()
"""
NCU = """#!/bin/sh
case "$1" in
--help) for name in kernel-name profile-from-start target-processes export log-file kill; do echo "  --$name arg"; done; exit 0 ;;
--version) echo "Version 2024.1.1.0 (build 1)"; exit 0 ;;
--import) printf '"ID","Kernel Name"\\n"0","k"\\n'; exit 0 ;;
esac
while [ $# -gt 0 ]; do
  case "$1" in
  --export|-o) out="$2"; shift 2 ;;
  --log-file) log="$2"; shift 2 ;;
  --*) shift 2 ;;
  *) break ;;
  esac
done
"$@"
code=$?
[ -n "$out" ] && printf 'NVR' > "$out" 2>/dev/null
[ $code -ne 0 ] && [ -n "$log" ] && echo "==ERROR== The application returned an error code ($code)." > "$log" 2>/dev/null
exit $code
"""


@dataclass
class Case:
    """One run. `may_end`: exit codes that the fault itself leads to."""

    program: str
    way: str
    passes: str
    fault: str
    folder: Path
    random: Random
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    may_end: set[int] = field(default_factory=set)
    may_be_cut: bool = False
    own_killed: bool = False

    def __str__(self) -> str:
        return f"{self.program}, {self.way}, {self.passes}, {self.fault}"


# --- what runs -------------------------------------------------------------------------------------------------------


def command(case: Case) -> list[str]:
    """The program's own command, in the case's folder."""
    is_torch = case.program.startswith("torch")
    python = os.environ.get("PERFDOCTOR_TORCH_PYTHON", sys.executable) if is_torch else sys.executable
    text = TRAINING.replace("WORKERS", case.program[-1]) if is_torch else PROGRAMS[case.program]
    folder = case.folder / "code"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    match case.way:
        case "-c":
            return [python, "-c", text]
        case "-m":
            (folder / "mine").mkdir(exist_ok=True)
            (folder / "mine" / "__main__.py").write_text(text)
            return [python, "-m", "mine"]
        case "zipapp":
            (folder / "packed").mkdir(exist_ok=True)
            (folder / "packed" / "__main__.py").write_text(text)
            if not (folder / "train.pyz").exists():
                zipapp.create_archive(folder / "packed", folder / "train.pyz")
            return [python, "train.pyz"]
        case "venv" if not is_torch:
            return [str(_venv() / "bin" / "python"), "train.py"]
        case way if way.startswith("-"):
            return [python, way, "train.py"]
    return [python, "train.py"]


@cache
def _venv() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="perfdoctor-venv-"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def environment(case: Case) -> dict[str, str]:
    kept = ("PATH", "LANG", "PERFDOCTOR_NSYS", "PERFDOCTOR_TORCH_PYTHON")
    inside = {name: str(case.folder / name.lower()) for name in ("HOME", "TMPDIR")}
    return {**{name: os.environ[name] for name in kept if name in os.environ}, **inside, MARK: case.mark,
            "PERFDOCTOR_HISTORY": "off", "PYTHONDONTWRITEBYTECODE": "1", "PERFDOCTOR_NCU": str(case.folder / "ncu")}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    code: int
    output: bytes
    errors: bytes


def run(case: Case, words: Sequence[str], meanwhile: Callable[[int], None] = lambda _: None, **more: Any) -> Ran:
    """Run it, and do something meanwhile, given its pid. TimeoutExpired where it takes far too long."""
    with (case.folder / "out").open("wb+") as output, (case.folder / "err").open("wb+") as errors:
        given = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": errors, "cwd": case.folder / "code", **more}
        if case.way == "stdin-closed":
            given["preexec_fn"] = _both(given.get("preexec_fn"), lambda: os.close(0))
        process = subprocess.Popen(words, start_new_session=True, **{"env": environment(case), **given})
        thread = threading.Thread(target=meanwhile, args=(process.pid,))
        thread.start()
        try:
            code = process.wait(_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            _show_stacks(case)
            process.kill()
            process.wait()
            raise
        finally:
            thread.join()
        output.seek(0)
        errors.seek(0)
        return Ran(128 - code if code < 0 else code, output.read(), errors.read())


def _both(first: Callable[[], None] | None, second: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        if first:
            first()
        second()

    return both


def _show_stacks(case: Case) -> None:
    """What hangs, into a file that is kept."""
    with (case.folder / "hangs").open("w") as stream:
        for pid, name in alive(case):
            print(pid, name, file=stream, flush=True)
            for each in ("wchan", "status"):
                with contextlib.suppress(OSError):
                    stream.write(Path(f"/proc/{pid}/{each}").read_text()[:300] + "\n")


def recorded(case: Case) -> list[str]:
    words = ["run", "--no-html", "--keep-going", "--passes", case.passes, "-o", str(case.folder / "recorded" / "run")]
    return [sys.executable, "-c", _DRIVER.format(source=str(ROOT / "src")), *words, "--", *command(case)]


def alive(case: Case) -> list[tuple[int, str]]:
    """Living processes of the case."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={case.mark}".encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append((int(entry.name), (entry / "cmdline").read_text().replace("\0", " ")[:120]))
        except OSError:  # noqa: PERF203 it has ended meanwhile
            continue
    return found


# --- faults ----------------------------------------------------------------------------------------------------------


def _at_random(case: Case) -> None:
    time.sleep(case.random.choice((0.05, 0.5, 1.5, 3)) * case.random.random() * 2)


def _kill(case: Case, is_it: Callable[[int, str], bool], number: int = signal.SIGKILL) -> None:
    _at_random(case)
    chosen = [pid for pid, name in alive(case) if is_it(pid, name)]
    if chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(case.random.choice(chosen), number)


def is_program(name: str) -> bool:
    return (
        any(word in name for word in ("train.py", "-m mine", "print("))
        and "perfdoctor" not in name
        and "nsys" not in name
    )


@contextlib.contextmanager
def fault(case: Case) -> Iterator[tuple[Callable[[int], None], dict[str, Any]]]:
    """What happens meanwhile, and how it is started."""
    kind, _, what = case.fault.partition(" ")
    match kind:
        case "kill":
            if what == "program":
                case.may_end, case.may_be_cut = {137, 1, 3}, True
                yield lambda _: _kill(case, lambda _pid, name: is_program(name)), {}
            elif what == "perfdoctor":
                case.may_end, case.own_killed = {137}, True
                yield lambda pid: _kill(case, lambda each, _: each == pid), {}
            elif what == "nsys":
                yield lambda _: _kill(case, lambda _pid, name: "nsys" in name.split(" ")[0] or "Qdstrm" in name), {}
            else:
                yield (
                    lambda pid: _kill(
                        case, lambda each, name: each != pid and not is_program(name) and "nsys" not in name
                    ),
                    {},
                )
        case "signal":
            number = signal.Signals[what]
            case.may_end, case.may_be_cut = {128 + number, 1}, True
            to_all = case.random.random() < 0.5

            def send(pid: int) -> None:
                _at_random(case)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number) if to_all else os.kill(pid, number)

            yield send, {}
        case "disk":
            target = case.folder / "recorded"
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={what}", "tmpfs", target], check=True)
            try:
                yield lambda _: None, {}
            finally:
                subprocess.run(["umount", "-l", target], check=True)
        case "tmp":
            target = Path(environment(case)["TMPDIR"])
            subprocess.run(["mount", "-t", "tmpfs", "-o", what, "tmpfs", target], check=True)
            try:
                yield lambda _: None, {}
            finally:
                subprocess.run(["umount", "-l", target], check=True)
        case "limit":
            name, _, value = what.partition("=")
            limit = getattr(resource, f"RLIMIT_{name}")
            yield lambda _: None, {"preexec_fn": lambda: resource.setrlimit(limit, (int(value), int(value)))}
        case "home":
            yield lambda _: None, {"env": {**environment(case), "HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none"}}
        case "clock":
            file = case.folder / "clock"
            file.write_bytes(bytes(8))
            faked = {"LD_PRELOAD": str(_jumping_clock()), "CLOCK_FILE": str(file)}

            def jump(_: int) -> None:
                for _ in range(6):
                    time.sleep(case.random.random())
                    with file.open("rb+") as stream:
                        stream.write(struct.pack("=q", case.random.choice((3_600, -3_600, 10**9, -(10**9), 1, 0))))

            yield jump, {"env": {**environment(case), **faked}}
        case "twice":
            other: list[subprocess.Popen[bytes]] = []

            def again(_: int) -> None:
                time.sleep(case.random.random())
                other.append(subprocess.Popen(recorded(case), cwd=case.folder / "code", env=environment(case), stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))  # fmt: skip
                other[0].wait(_MOST_SECONDS)

            yield again, {}
        case "output":
            if what == "full":
                with Path("/dev/full").open("wb") as full:
                    yield lambda _: None, {"stderr": full}
            else:
                yield lambda _: None, {"preexec_fn": lambda: os.close(2)}
        case _:
            yield lambda _: None, {}


@cache
def _jumping_clock() -> Path:
    library = Path(tempfile.mkdtemp(prefix="perfdoctor-clock-")) / "clock.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-o", str(library), "-", "-ldl"]
    subprocess.run(words, input=_CLOCK.encode(), check=True, stderr=subprocess.DEVNULL)
    return library


FAULTS = (
    "none", "kill program", "kill perfdoctor", "kill nsys", "kill other", "signal SIGINT", "signal SIGTERM", "signal SIGHUP",
    "signal SIGQUIT", "signal SIGUSR1", "disk 40k", "disk 200k", "disk 1m", "disk 4m", "tmp size=8k", "tmp ro", "limit NOFILE=24",
    "limit NOFILE=64", "limit FSIZE=2000", "limit FSIZE=60000", "limit CORE=0", "limit STACK=1000000", "home", "clock", "twice",
    "output full", "output closed",
)  # fmt: skip


# --- what must hold --------------------------------------------------------------------------------------------------


def drawn(number: int, seed: int, folder: Path) -> Case:
    random = Random(f"{seed} {number}")
    names = list(PROGRAMS)
    has_torch = "PERFDOCTOR_TORCH_PYTHON" in os.environ
    program = random.choice(("torch-0", "torch-2")) if has_torch and random.random() < 0.15 else random.choice(names)
    passes = random.choice(PASSES)
    chosen = random.choice([each for each in FAULTS if is_possible(each, passes)])
    # a child that multiprocessing starts anew does not find its module in an archive, and is started again and again
    ways = [way for way in WAYS if way != "zipapp" or program not in _STARTED_ANEW]
    return Case(program, random.choice(ways), passes, chosen, folder, random)


def is_possible(fault_: str, passes: str) -> bool:
    if fault_.startswith(("disk", "tmp")):
        return os.geteuid() == 0
    if fault_ == "clock":
        return shutil.which("cc") is not None
    return fault_ != "kill nsys" or "nsys" in passes


def tried(case: Case) -> list[str] | None:
    """What is wrong with a run: nothing. None where the program hangs without perfdoctor too, as with few descriptors."""
    for name in ("code", "home", "tmpdir", "recorded"):
        (case.folder / name).mkdir()
    (case.folder / "ncu").write_text(NCU)
    (case.folder / "ncu").chmod(0o755)
    with fault(case) as (_, how):  # the same limits, without perfdoctor
        case_alone = {key: value for key, value in how.items() if key != "stderr"}
        try:
            alone = run(case, command(case), **case_alone)
        except subprocess.TimeoutExpired:
            _end_all(case)
            return None
    before = _files(case)
    with fault(case) as (meanwhile, how):
        try:
            ran = run(case, recorded(case), meanwhile, **how)
        except subprocess.TimeoutExpired:
            found = [f"it hangs: {alive(case)}"]
        else:
            found = list(wrong(case, alone, ran, before))
    _end_all(case)
    return found


def _end_all(case: Case) -> None:
    for pid, _ in alive(case):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wrong(case: Case, alone: Ran, ran: Ran, before: set[str]) -> Iterator[str]:
    if case.own_killed and ran.code == 137:
        until = time.monotonic() + _LOST_S + 10
        while any(is_program(name) for _, name in alive(case)) and time.monotonic() < until:
            time.sleep(0.1)
        ran = Ran(alone.code, (case.folder / "out").read_bytes(), ran.errors)  # the program goes on: what did it print?
        case.may_be_cut |= not ran.output
    repeats = max(len(case.passes.split(",")), 1)
    if case.program == "closes-output" and case.fault == "output closed" and "nsys" in case.passes:
        case.may_end.add(4)  # docs/reliability.md: what is closed is /dev/null there, which can be closed once more
    if (
        case.program in ("closes", "limits-itself") and "nsys" in case.passes
    ):  # docs/reliability.md: its library may crash
        case.may_end.add(128 + signal.SIGSEGV)
        case.may_be_cut |= case.program == "limits-itself" and ran.code == 128 + signal.SIGSEGV
    if ran.code not in {alone.code, *case.may_end}:
        yield f"exit code {ran.code}, alone {alone.code}"
    # each pass runs the program again, until one fails
    whole = [alone.output * times for times in range(1, repeats + 1)]
    if ran.output not in whole and not (
        case.may_be_cut and (alone.output * repeats).startswith(_whole_lines(ran.output))
    ):
        yield f"output of {len(ran.output)} bytes, alone {len(alone.output)}: {ran.output[-80:]!r}"
    if (
        ran.errors.count(b"Traceback (most recent")
        > alone.errors.count(b"Traceback (most recent") * repeats + case.may_be_cut * 3
    ):
        yield f"a traceback: {ran.errors[-600:].decode(errors='replace')}"
    if b"perfdoctor_agent" in ran.errors or b"bug of perfdoctor" in ran.errors:
        yield f"a frame of ours: {ran.errors[-600:].decode(errors='replace')}"
    until = time.monotonic() + _LOST_S
    while (left := alive(case)) and time.monotonic() < until:
        time.sleep(0.1)
    if left and not (case.program == "daemonises" and len(left) <= repeats):
        yield f"processes are left: {left}"
    files = sorted(_files(case) - before)
    if case.fault.startswith("disk"):  # what nsys recorded and cannot write: a note names it
        files = [file for file in files if "nsys-report-" not in file]
    if files and not case.own_killed:
        yield f"files are left: {files[:5]}"
    yield from _wrong_manifest(case)


def _whole_lines(output: bytes) -> bytes:
    return output[: output.rfind(b"\n") + 1]


def _files(case: Case) -> set[str]:
    """All files but of the recording, and of our cache."""
    # what is mounted for a run is not there when it runs alone
    places = (
        case.folder / name
        for name in ("code", "home", "tmpdir")
        if not (name == "tmpdir" and case.fault.startswith("tmp"))
    )
    return {
        str(file.relative_to(case.folder))
        for place in places
        for file in place.rglob("*")
        if "/.cache" not in str(file) and "nvidia" not in str(file)
    }  # nsys keeps files of its own


def _wrong_manifest(case: Case) -> Iterator[str]:
    folder = case.folder / "recorded" / "run"
    drafts = [file.name for file in folder.rglob("*") if file.name.startswith(".") and file.name.endswith(".tmp")]
    if drafts and not case.own_killed:
        yield f"drafts are left: {drafts}"
    if not (folder / "run.json").exists():
        if case.fault in ("none", "clock", "kill other", "kill nsys", "home", "output full"):
            yield "there is no run.json"
        return
    try:
        manifest = json.loads((folder / "run.json").read_text("utf-8"))
    except ValueError as error:
        yield f"run.json is damaged: {error}"
        return
    for each in manifest["passes"]:
        if each["state"] == "done" and (gone := [name for name in each["files"] if not (folder / name).exists()]):
            yield f"the pass {each['name']} names files that are not there: {gone}"
        if case.fault == "none" and each["state"] != "done":
            yield f"the pass {each['name']} is {each['state']}: {each['notes']}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=40)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--at-once", type=int, default=2)
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--fault", help="draw only those with this text in their description")
    options.add_argument("--keep", type=Path, default=Path("fault-failures"))
    given = options.parse_args()
    began, counts, wrong_runs = time.monotonic(), Counter[str](), 0

    def one(number: int) -> tuple[str, list[str]] | None:
        if time.monotonic() - began > given.seconds:
            return None
        with tempfile.TemporaryDirectory(prefix="perfdoctor-faults-", ignore_cleanup_errors=True) as folder:
            case = drawn(number, given.seed, Path(folder))
            if given.fault and given.fault not in str(case):
                return None
            found = tried(case)
            if found is None:
                return None
            if found:
                kept = given.keep / f"{given.seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                with contextlib.suppress(shutil.Error):  # pipes
                    shutil.copytree(folder, kept, symlinks=True)
                (kept / "wrong.txt").write_text("\n".join([str(case), *found]))
            return f"{number}: {case}", found

    with ThreadPoolExecutor(given.at_once) as pool:
        for found in pool.map(one, range(given.first, given.first + given.runs)):
            if found is None:
                continue
            case, wrong = found
            counts[case.rpartition(", ")[2]] += 1
            wrong_runs += bool(wrong)
            for each in wrong:
                print(f"{case}\n    {each}", flush=True)
    print(
        f"{sum(counts.values())} runs in {time.monotonic() - began:.0f} s, {wrong_runs} wrong (seed {given.seed}): {dict(sorted(counts.items()))}"
    )
    sys.exit(bool(wrong_runs))


if __name__ == "__main__":
    main()
