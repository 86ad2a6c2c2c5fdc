"""Is a diagnosis as cheap as it was? Instructions under valgrind, which no other program on the machine changes: `make instructions`.

    python benchmarks/instructions.py            exit 1 where an input takes over 10 % more than instructions.toml says
    python benchmarks/instructions.py --renew    write what they take now: after a change that is worth its price, or a gain

Three inputs, made from fixtures: a small trace of torch.profiler, whose count is nearly all start-up, and a longer trace and
a longer export of Nsight Systems, of which the small one's count is taken off. One process each, `perfdoctor analyze` as a
user calls it, on one core and after a run that left compiled modules behind. Two counts of the same code differ by less than
1 %. Another build of Python executes other instructions for the same work (up to a fifth): counts are kept for a version, and
compared only where a program without perfdoctor takes as many as it did. Without valgrind nothing is checked.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_suffix(".toml")
#: Counts of one build differ by 1 %; a change of a tenth is a change of the code.
MOST = 1.10
#: So far may a program without perfdoctor be from what it took: else it is another build of Python.
SAME_BUILD = 0.02
#: What the counts depend on beside our code: named where one differs.
PACKAGES = ("numpy", "msgspec", "typer")

_FIXTURES = _ROOT / "fixtures"
SMALL = "small trace"
#: From which fixture, and how many times as long: 46,000 events, and 51,000 kernels, which is over what ADBC reads from.
GROWN = {
    "longer trace": (_FIXTURES / "launch-bound" / "torch" / "rank0.pt.trace.json.gz", 12),
    "longer export": (_FIXTURES / "launch-bound" / "nsys" / "profile.sqlite", 40),
}
#: Calls, dictionaries, text and numbers, as an interpreter has them to do.
_REFERENCE = """
def word(n): return f"{n}:{n % 7}".split(":")
seen = {}
for n in range(60_000):
    seen.setdefault(word(n)[1], []).append(n * 0.5)
sum(sorted(seen["3"], reverse=True))
"""
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--branch-sim=no", "--cachegrind-out-file=/dev/null")


def counted(arguments: list[str]) -> int:
    """Instructions of a Python process with these arguments. SystemExit with its last words where it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PERFDOCTOR"))}
    environment |= {"PYTHONHASHSEED": "0", "PERFDOCTOR_JOBS": "1", "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, *arguments]
    subprocess.run(command, check=False, env=environment, capture_output=True)  # leaves compiled modules behind
    done = subprocess.run([*_VALGRIND, *command], check=False, env=environment, capture_output=True, text=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode or found is None:
        sys.exit(done.stderr[-2_000:])
    return int(found[1].replace(",", ""))


def counts() -> dict[str, int]:
    """Of each input, and of a program that has nothing to do with perfdoctor."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = {SMALL: _FIXTURES / "unfused-optimizer" / "torch" / "rank0.pt.trace.json.gz"}
        for name, (source, copies) in GROWN.items():
            inputs[name] = grown.grow(source, Path(folder) / f"{name}{source.suffix}".replace(".gz", ".json"), copies)
        work = {"reference": ["-S", "-c", _REFERENCE]}
        work |= {n: ["-m", "perfdoctor.cli.main", "analyze", str(path), "--no-html"] for n, path in inputs.items()}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(zip(work, pool.map(counted, work.values()), strict=True))
    return {name: count - found[SMALL] if name in GROWN else count for name, count in found.items()}


def this_python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def installed() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def kept() -> dict[str, dict[str, int | str]]:
    """Counts and versions of packages, by Python."""
    return tomllib.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}


def kept_text(table: Mapping[str, Mapping[str, int | str]]) -> str:
    lines = [
        "# Instructions of a diagnosis. Written by `python benchmarks/instructions.py --renew`, which says what they are."
    ]
    for python, row in sorted(table.items()):
        lines += ["", f'["{python}"]']
        lines += [
            f'"{key}" = {value:_}' if isinstance(value, int) else f'{key} = "{value}"' for key, value in row.items()
        ]
    return "\n".join(lines) + "\n"


def compared(now: Mapping[str, int], before: Mapping[str, int | str]) -> tuple[list[str], bool]:
    """Lines that say what each input takes against what it took; and whether all take at most a tenth more."""
    within, lines = True, []
    reference = now["reference"] / int(before["reference"])
    if abs(reference - 1) > SAME_BUILD:
        return [
            f"Another build of {this_python()} was counted: {reference:.2f} times its instructions. Not compared."
        ], True
    for name in (SMALL, *GROWN):
        ratio = now[name] / int(before[name])
        within &= ratio <= MOST
        verdict = "more than a tenth more" if ratio > MOST else "a gain: renew, to keep it" if ratio < 1 / MOST else ""
        lines.append(f"  {name:14} {now[name] / 1e9:7.2f} G instructions   {ratio:5.3f} × {verdict}".rstrip())
    if not within:
        other = [
            f"{name} {before[name]} then, {version} now"
            for name, version in installed().items()
            if before[name] != version
        ]
        lines.append("Make it cheaper, or say why it is worth it and renew: make instructions RENEW=--renew")
        lines += [f"It may be the packages: {', '.join(other)}"] if other else []
    return lines, within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--renew", action="store_true", help="write what they take now")
    given = parser.parse_args()
    if shutil.which(_VALGRIND[0]) is None:
        print("Instructions were not counted: there is no valgrind (apt-get install valgrind).")
        return 0
    table = kept()
    if this_python() not in table and not given.renew:
        print(f"Instructions were not counted: {KEPT.name} has none of {this_python()}; --renew writes them.")
        return 0
    now = counts()
    lines, within = compared(now, table.get(this_python(), now | installed()))
    print(*lines, sep="\n")
    if given.renew:
        KEPT.write_text(kept_text(table | {this_python(): now | installed()}), "utf-8")
    return int(not within and not given.renew)


if __name__ == "__main__":
    sys.exit(main())
