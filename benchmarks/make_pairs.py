"""Records and measures on this machine the pairs of pairs.toml that our own programs make: `make pairs`.

    python benchmarks/make_pairs.py [RECORDING ...] [--minutes 15] [--no-recordings | --only-recordings] [--anew]

First each program is recorded once with its fault, as `perfdoctor run` records it; what is kept of that, without what
names this machine, goes to fixtures/pairs/. Then rounds are made until the time is over: each runs every program
as it is, and with each change right behind it, unrecorded; the next round in the opposite order, as a machine has
good minutes and bad ones. What each run says of its own step goes to fixtures/pairs/measured.toml, after each round;
later rounds on the same machine are added to earlier ones (`--anew`: replace them). A program without its packages is left
out, and said. Nothing else should run meanwhile.

The Python with torch is PERFDOCTOR_PROGRAMS_PYTHON, else PERFDOCTOR_TORCH_PYTHON, else this one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "fixtures"))

import kept  # noqa: E402 it stands where the fixtures are made
import scrub  # noqa: E402
from pairs import KEPT, MEASURED, Measured, measured, own  # noqa: E402

#: What a program prints of its own step: beats.py, and the examples.
_LENGTH = re.compile(r"^(?:a step takes|median step) ([\d.]+) ms$", re.MULTILINE)
#: Steps to record, and what a recording may take: several dozens of them are in the repository.
_STEPS, _MOST_BYTES = 10, 300_000
#: A program that takes longer hangs.
_LONGEST_S = 300
#: Of a path in a Python function's name: what lies before the package or the program.
_FOLDERS = re.compile(r"^/.*/(?=perfdoctor_agent/)|^/.*/(?:site-packages|python[\d.]+)/|^/.*/(?=[^/]+\.py\(\d+\): )")


@dataclass
class Program:
    """One program with its fault: its command line, and by the names of the pairs those with a change."""

    name: str
    before: str
    ranks: int
    packages: tuple[str, ...]
    options: str
    steps: int
    gpu: str = ""
    after: dict[str, str] = field(default_factory=dict)


def programs() -> dict[str, Program]:
    """By the name of the recording."""
    found: dict[str, Program] = {}
    for each in own():
        name = each["recording"]
        program = found.setdefault(
            name,
            Program(
                name,
                each["before"],
                each.get("ranks", 1),
                tuple(each.get("packages", ())),
                each.get("options", ""),
                each.get("steps", 0),
                each.get("gpu", ""),
            ),
        )
        assert program.before == each["before"], f"{name}: two programs of this name"
        program.after[each["name"]] = each["after"]
    return found


# --- to run ----------------------------------------------------------------------------------------------------------


def _run(command: Sequence[str], folder: Path, *, again: bool = True) -> str:
    """Standard output. RuntimeError with the last lines where it fails twice: gloo sometimes aborts at a program's end."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_LONGEST_S)
    if done.returncode and again:
        return _run(command, folder, again=False)
    if done.returncode:
        raise RuntimeError(f"ended with {done.returncode}: {' | '.join((done.stdout + done.stderr).splitlines()[-6:])}")
    return done.stdout


def _command(python: str, line: str, ranks: int) -> tuple[list[str], Path]:
    """The command and the folder to run it in: names without a path, since recordings keep them."""
    file, *options = shlex.split(line)
    path = (_ROOT / "benchmarks" / file).resolve()
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)) if ranks > 1 else ()
    return [python, *launcher, path.name, *options], path.parent


def _step_ms(python: str, line: str, ranks: int) -> float:
    """The step as the program prints it; of several processes that train, the mean."""
    found = [float(each) for each in _LENGTH.findall(_run(*_command(python, line, ranks)))]
    if not found:
        raise RuntimeError("it printed no length of its step")
    return statistics.mean(found)


def _missing(python: str, packages: Sequence[str]) -> str:
    """The first of `packages` that this Python does not have."""
    code = "import sys, importlib.util as u; print(next((p for p in sys.argv[1:] if u.find_spec(p) is None), ''))"
    return _run([python, "-c", code, "torch", *packages], _ROOT).strip()


def _gpu(python: str) -> str:
    """Name of the GPU that this Python's torch trains on; "" without one."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    return _run([python, "-c", code], _ROOT).strip()


def _machine(python: str) -> str:
    """What a measurement depends on, and no name."""
    version = _run([python, "-c", "import torch; print(torch.__version__)"], _ROOT).strip()
    cores = len(os.sched_getaffinity(0))
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, torch {version}"


# --- to record -------------------------------------------------------------------------------------------------------


def record(python: str, program: Program) -> Iterator[str]:
    """Record a program with its fault into fixtures/pairs/. Yields what was cut, and what in it still names this machine."""
    command, folder = _command(python, program.before, program.ranks)
    code = f"import sys; sys.path.insert(0, {str(_ROOT / 'src')!r}); from perfdoctor.cli.main import main; main()"
    target = KEPT / program.name
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        options = ["--quiet", "--no-html", "--passes", "torch", "--steps", str(_STEPS), *shlex.split(program.options)]
        _run([sys.executable, "-c", code, "run", *options, "-o", str(run), "--", *command], folder)
        _without_folders(run)
        shutil.rmtree(target, ignore_errors=True)
        yield from kept.keep(run, target, _MOST_BYTES)
    for file in sorted(each for each in target.rglob("*") if each.is_file()):
        if names := scrub.private(file):
            yield f"{file.relative_to(KEPT)} names this machine: {', '.join(names)}"


def _without_folders(run: Path) -> None:
    """Python's functions by their file's place in a package: the rest of the path is this machine's."""
    for trace in run.glob("torch/*.json.gz"):
        document = json.loads(gzip.decompress(trace.read_bytes()))
        for event in document["traceEvents"]:
            if event.get("cat") == "python_function":
                event["name"] = _FOLDERS.sub("", event["name"])
        trace.write_bytes(gzip.compress(json.dumps(document).encode()))


# --- to measure ------------------------------------------------------------------------------------------------------


def measure(python: str, program: Program) -> dict[str, tuple[float, float]]:
    """One round: by pair the step before and after, in ms. Each change is run right behind the program as it is."""
    shorter = f" --steps {program.steps}" if program.steps else ""
    before = _step_ms(python, program.before + shorter, program.ranks)
    return {name: (before, _step_ms(python, line + shorter, program.ranks)) for name, line in program.after.items()}


def _add(known: dict[str, Measured], found: Mapping[str, tuple[float, float]]) -> None:
    for name, (before, after) in found.items():
        so_far = known.get(name, Measured((), ()))
        known[name] = Measured((*so_far.before_ms, round(before, 3)), (*so_far.after_ms, round(after, 3)))


def write(known: Mapping[str, Measured], machine: str) -> None:
    """measured.toml, in the order of pairs.toml."""
    lines = [
        "# Written by `make pairs`: ms a step of each pair of pairs.toml before and after its change, unrecorded, a pair of",
        "# numbers a round.",
        f'machine = "{machine}"',
    ]
    for name in (each["name"] for each in own() if each["name"] in known):
        each = known[name]
        lines += [
            "",
            "[[pair]]",
            f'name = "{name}"',
            f"before_ms = {[*each.before_ms]}",
            f"after_ms = {[*each.after_ms]}",
        ]
    MEASURED.parent.mkdir(parents=True, exist_ok=True)
    MEASURED.write_text("\n".join(lines) + "\n", "utf-8")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _record_all(python: str, chosen: Sequence[Program]) -> None:
    for program in chosen:
        try:
            _say(f"record {program.name}")
            for line in record(python, program):
                _say(f"  {line}")
        except (RuntimeError, subprocess.TimeoutExpired) as error:  # noqa: PERF203 the others still count
            _say(f"  {program.name}: not recorded, {error}")


def _measure_all(python: str, chosen: Sequence[Program], known: dict[str, Measured], end: float) -> int:
    """Rounds until `end`; one is begun only where the one before would still fit. Returns how many."""
    rounds, longest_s = 0, 0.0
    while not rounds or time.monotonic() + longest_s < end:
        begun = time.monotonic()
        for program in chosen[:: -1 if rounds % 2 else 1]:
            try:
                found = measure(python, program)
                _add(known, found)
                _say(f"{program.name}: " + ", ".join(f"{a:.1f} -> {b:.1f} ms" for a, b in found.values()))
            except (RuntimeError, subprocess.TimeoutExpired) as error:  # noqa: PERF203 the others still count
                _say(f"{program.name}: not measured, {error}")
        write(known, _machine(python))
        rounds, longest_s = rounds + 1, max(longest_s, time.monotonic() - begun)
        _say(f"round {rounds} took {time.monotonic() - begun:.0f} s")
    return rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recordings", nargs="*", metavar="RECORDING", help="of pairs.toml (default: all)")
    parser.add_argument("--minutes", type=float, default=15, help="for all of it; at least one round is made")
    parser.add_argument("--no-recordings", action="store_true", help="only measure")
    parser.add_argument("--only-recordings", action="store_true", help="only record")
    parser.add_argument("--anew", action="store_true", help="forget earlier rounds of these pairs")
    given = parser.parse_args()
    end, found = time.monotonic() + 60 * given.minutes, programs()
    if unknown := set(given.recordings) - set(found):
        parser.error(f"no such recording: {', '.join(sorted(unknown))}")
    python = os.environ.get("PERFDOCTOR_PROGRAMS_PYTHON") or os.environ.get("PERFDOCTOR_TORCH_PYTHON") or sys.executable
    chosen = [found[name] for name in given.recordings or found]
    for program in [*chosen]:
        if missing := _missing(python, program.packages):
            _say(f"{program.name}: left out, {missing} is not installed")
            chosen.remove(program)
    gpu = _gpu(python) if any(program.gpu for program in chosen) else ""
    for program in [each for each in chosen if each.gpu not in ("", gpu)]:
        _say(f"{program.name}: left out, it trains on {program.gpu}")
        chosen.remove(program)
    if not given.no_recordings:
        _record_all(python, chosen)
    if given.only_recordings:
        return 0
    known = measured()
    if given.anew:
        for name in (name for program in chosen for name in program.after):
            known.pop(name, None)
    _say(f"{_measure_all(python, chosen, known, end)} rounds of {len(chosen)} programs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
