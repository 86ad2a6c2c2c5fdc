"""Is a machine called busy where it is, and nowhere else? Trainings of five shapes, alone and beside programs that compute.

```
make busy-machine [BUSY="--runs 200"]            alone: how often other programs are blamed; best on a machine without any
make busy-machine BUSY="--runs 5 --others 1 2 4" beside so many processes that do nothing but compute
```

Each run is a program of its own under `perfdoctor run`. Printed of each: how many cores others used over the run, by
/proc/stat less what the run itself used; whether `busy-machine` was found, and whether it stands first; and of the
shapes with a planted fault, whether that one stands first and what it saves: by a run of the same program, alone and with
what is advised first, the range is right or not. A run alone beside which others used cores is no run alone: it is counted
with the others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_PROGRAM = _ROOT / "benchmarks" / "programs" / "shapes.py"
_MEAN = re.compile(r"^a step takes ([\d.]+) ms$", re.MULTILINE)
#: By shape, steps that take about a second, and the rules that may stand first: of what is planted in it.
_SHAPES: Mapping[str, tuple[int, frozenset[str]]] = {
    "main": (200, frozenset()),
    "threads": (60, frozenset()),
    "workers": (150, frozenset()),
    "sleeping": (60, frozenset({"input-wait"})),
    "item": (120, frozenset({"input-wait"})),
}
#: Cores of others, from which on a machine is not free: the rule says so from 0.1 of the step on.
_FREE = 0.1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """One recorded training. `others`: cores that others used meanwhile; `saving_ms`: of the planted fault, as promised."""

    shape: str
    others: float
    is_found: bool
    first: str
    share: float
    saving_ms: tuple[float, float, float] | None
    notes: str

    @property
    def is_planted_first(self) -> bool:
        return not _SHAPES[self.shape][1] or self.first in _SHAPES[self.shape][1]


def _busy_s() -> float:
    """Seconds that programs have used of all cores."""
    user, nice, system = Path("/proc/stat").read_text("utf-8").split("\n", 1)[0].split()[1:4]
    return (int(user) + int(nice) + int(system)) * _TICK_S


def _used_s() -> float:
    """Seconds that this process and its children that have ended used."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


@contextmanager
def _beside(count: int) -> Iterator[None]:
    """So many processes of others that compute; none of them is below perfdoctor."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.2 * bool(count))
        yield
    finally:
        for each in others:
            each.kill()
        for each in others:
            each.wait()


def _python() -> str:
    return os.environ.get("PERFDOCTOR_TORCH_PYTHON", sys.executable)


def _recorded(shape: str, scratch: Path) -> Run:
    steps, _ = _SHAPES[shape]
    file = scratch / "diagnosis.json"
    code = f"import sys; sys.path.insert(0, {str(_ROOT / 'src')!r}); from perfdoctor.cli.main import main; main()"
    options = ("--quiet", "--no-html", "--passes", "torch", "-o", str(scratch / "run"), "--json", str(file))
    began, busy_s, used_s = time.monotonic(), _busy_s(), _used_s()
    done = subprocess.run(
        [sys.executable, "-c", code, "run", *options, "--", _python(), str(_PROGRAM), shape, str(steps)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    others = (_busy_s() - busy_s - (_used_s() - used_s)) / (time.monotonic() - began)
    if not file.exists():
        raise RuntimeError(f"{shape}: {done.stdout}{done.stderr}")
    return _run(shape, others, json.loads(file.read_text("utf-8")))


def _run(shape: str, others: float, diagnosis: Mapping[str, Any]) -> Run:
    findings = diagnosis["findings"]
    busy = next((each for each in findings if each["rule"] == "busy-machine"), None)
    planted = next((each for each in findings if each["rule"] in _SHAPES[shape][1]), None)
    ns = planted["saving_ns_per_step"] if planted else None
    return Run(
        shape,
        max(others, 0.0),
        busy is not None,
        findings[0]["rule"] if findings else "",
        busy["values"]["waiting_percent"] / 100 if busy else 0.0,
        tuple(ns[case] / 1e6 for case in ("low", "likely", "high")) if ns else None,  # type: ignore[arg-type]
        " ".join(note for note in diagnosis["notes"] if "times as long" in note),
    )


def _alone_ms(shape: str, *, is_fixed: bool) -> float:
    """The step without a recorder: the least of three runs, which others disturbed least."""
    command = [_python(), str(_PROGRAM), shape, str(_SHAPES[shape][0]), *(["--fix"] if is_fixed else [])]
    printed = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    return min(float(_MEAN.findall(each)[0]) for each in printed)


def _state(runs: Sequence[Run], saved_ms: Mapping[str, float], others: int) -> bool:
    """Print what was found beside so many others. Returns whether all of it is right."""
    free = [run for run in runs if run.others < _FREE]
    print(f"\nbeside {others} processes: {len(runs)} runs, {len(free)} of them on a free machine")
    blamed = [run for run in free if run.is_found]
    print(f"  others blamed on a free machine: {len(blamed)} of {len(free)}")
    recorder = [run for run in runs if run.notes.startswith("Recording made")]
    print(f"  recording is said to make steps notably longer: {len(recorder)}")
    for shape, (_, rules) in _SHAPES.items():
        here = [run for run in runs if run.shape == shape]
        if not here:
            continue
        shares = ", ".join(f"{run.share:.0%}" for run in here if run.is_found)
        said = f"  {shape}: others had {sum(run.others for run in here) / len(here):.2f} cores; busy-machine in "
        said += f"{sum(run.is_found for run in here)} of {len(here)} ({shares or 'none'})"
        said += f", first in {sum(run.first == 'busy-machine' for run in here)}"
        if rules:
            said += f"; the fault first in {sum(run.is_planted_first for run in here)}"
            stated = [run for run in here if run.saving_ms and run.saving_ms[1]]
            inside = [run for run in stated if run.saving_ms[0] <= saved_ms[shape] <= run.saving_ms[2]]  # type: ignore[index]
            said += (
                f", with a saving in {len(stated)}, of which {len(inside)} hold the measured {saved_ms[shape]:.1f} ms ("
            )
            said += ", ".join(f"{run.saving_ms[0]:.1f}–{run.saving_ms[2]:.1f}" for run in stated if run.saving_ms) + ")"
        print(said)
    return not blamed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="with each number of others; 5 by default")
    parser.add_argument("--others", type=int, nargs="+", default=[0], metavar="N", help="processes that compute; 0")
    parser.add_argument("--shapes", nargs="+", choices=_SHAPES, default=[*_SHAPES])
    given = parser.parse_args()
    planted = [shape for shape in given.shapes if _SHAPES[shape][1]]
    saved_ms = {shape: _alone_ms(shape, is_fixed=False) - _alone_ms(shape, is_fixed=True) for shape in planted}
    is_right = True
    for others in given.others:
        runs = []
        with _beside(others):
            for shape in islice(cycle(given.shapes), given.runs):
                with tempfile.TemporaryDirectory() as scratch:
                    runs.append(_recorded(shape, Path(scratch)))
                print(".", end="", flush=True)
        is_right &= _state(runs, saved_ms, others)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
