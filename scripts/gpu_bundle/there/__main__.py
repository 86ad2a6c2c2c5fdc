"""Try perfdoctor on this machine, without a network, and leave one folder of results.

    sh perfdoctor-gpu-bundle.sh [--python python3] [--output FOLDER] [--packed FOLDER]

Unpacks perfdoctor and what it needs into a temporary folder, which is removed, runs `perfdoctor selftest --full`, and
keeps reports and scrubbed recordings in the folder of results as they are made: what is there stays there.
The Python that trains (torch 2.4 or newer) is not changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import environment
from results import Results

#: Kept for the last recordings and for packing.
_RESERVE_S = 40.0
#: After this the self-test begins no further training: the longest one, recorded, still ends in time.
_LAST_START_S = 60.0
_EVERY_S = 2.0
_PACKED_EVERY_S = 20.0
_ASK_S = 60
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GPU_FACTS = "name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.memory,pcie.link.gen.max"


class _Ended(Exception):  # noqa: N818 no error: somebody asked for it
    """A signal asks for the end."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python3", metavar="PROGRAM", help="the Python that has torch")
    parser.add_argument("--output", type=Path, default=Path("perfdoctor-results"), metavar="FOLDER")
    parser.add_argument("--packed", type=Path, metavar="FOLDER", help="the archives go here (default: in the results)")
    parser.add_argument("--budget-seconds", type=float, default=570.0, metavar="N", help="all ends after it (570)")
    parser.add_argument("--quick", action="store_true", help="each tool once instead of every example")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="unpack here, and leave it there")
    return parser.parse_args()


def main() -> int:
    """Exit code: the self-test's own; 3 where it cannot run here."""
    began = time.monotonic()
    given = _arguments()
    output = given.output.absolute()
    if output.is_dir() and any(output.iterdir()):
        sys.exit(f"perfdoctor-gpu-bundle: {output} is not empty: name another folder with --output")
    for number in _ENDS:
        signal.signal(number, _end)
    work = given.work.absolute() if given.work else Path(tempfile.mkdtemp(prefix="perfdoctor-bundle-"))
    work.mkdir(parents=True, exist_ok=True)
    results = Results(output, (given.packed or output / "packed").absolute(), work / "runs")
    try:
        return _try(given, work, results, began)
    except environment.NotPossibleError as error:
        print(f"perfdoctor-gpu-bundle: {error}", file=sys.stderr)
        results.write("failed.txt", f"{error}\n")
        return 3
    except _Ended:
        return 128 + signal.SIGTERM
    finally:
        _finish(results, began)
        if not given.work:
            shutil.rmtree(work, ignore_errors=True)


def _end(_: int, __: FrameType | None) -> None:
    raise _Ended


def _finish(results: Results, began: float) -> None:
    for number in _ENDS:  # whoever asks for the end may ask twice, and what is there is still to be packed
        signal.signal(number, signal.SIG_IGN)
    results.collect(all_of_them=True)
    results.timed("all", began)
    packs = results.pack()
    sizes = ", ".join(f"{pack} ({pack.stat().st_size / 1e6:.1f} MB)" for pack in packs)
    print(f"\nResults: {results.folder}\nPacked: {sizes}", flush=True)


def _try(given: argparse.Namespace, work: Path, results: Results, began: float) -> int:
    bundle = Path(sys.argv[0]).absolute()
    python = shutil.which(given.python)
    if python is None:
        raise environment.NotPossibleError(
            f"`{given.python}` is not here: give the Python that has torch with --python"
        )
    python = os.path.abspath(python)  # noqa: PTH100 a link into an environment is what makes it one
    print("Unpacking …", flush=True)
    parts = environment.unpack(bundle, work)
    own = environment.make(work, parts, python)
    results.timed("unpacking", began)
    variables = environment.variables(work, parts)
    perfdoctor = [str(own), "-m", "perfdoctor"]
    results.write("environment.txt", _facts([*perfdoctor, "env", "--python", python], variables))
    results.timed("environment", began)
    deadline = began + given.budget_seconds - _RESERVE_S
    seconds = max(deadline - time.monotonic() - _LAST_START_S, 1.0)
    command = [
        *perfdoctor, "selftest", "--quick" if given.quick else "--full", "--python", python,
        "--json", str(results.folder / "selftest.json"), "--output", str(results.recordings),
        "--seconds", f"{seconds:.0f}",
    ]  # fmt: skip
    return _watched(command, variables, results, deadline)


def _facts(command: list[str], variables: Mapping[str, str]) -> str:
    """What can be recorded here, in perfdoctor's words and NVIDIA's."""
    asked = [command, ["nvidia-smi", f"--query-gpu={_GPU_FACTS}", "--format=csv"], ["nvidia-smi", "topo", "-m"]]
    asked += [["ncu", "--version"], ["nsys", "--version"]]
    return "\n".join(f"$ {' '.join([Path(words[0]).name, *words[1:]])}\n{_answer(words, variables)}" for words in asked)


def _answer(words: list[str], variables: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=False, timeout=_ASK_S, env=variables,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"{error}\n"
    return done.stdout + done.stderr


def _watched(command: list[str], variables: Mapping[str, str], results: Results, deadline: float) -> int:
    """The self-test's exit code; what it records is kept meanwhile."""
    log = results.folder / "selftest.txt"
    began = packed = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=variables, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    shown = 0
    try:
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(_EVERY_S)
            shown = _show(log, shown)
            results.collect()
            if time.monotonic() - packed > _PACKED_EVERY_S:
                results.pack()
                packed = time.monotonic()
        if process.poll() is None:
            results.add("selftest.txt", "Ended by the bundle: the time was up.")
    finally:
        _kill(process)
        _show(log, shown)
        results.timed("selftest", began)
    return process.returncode


def _show(log: Path, shown: int) -> int:
    """Print what came since; how much of the log has been printed."""
    text = log.read_text("utf-8", "replace")
    sys.stdout.write(text[shown:])
    sys.stdout.flush()
    return len(text)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """All that the self-test started: a training that goes on would keep the GPU."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
