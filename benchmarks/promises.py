"""Does a fix bring what was promised? Every slow example on this machine's processor, held against its fixed twin.

`make promises [EXAMPLES="slow_input tiny_kernels"] [ROUNDS=5]`. Each round records the slow example, which promises; runs
it unrecorded; and does the same with its fixed twin, one right behind the other, since a machine has good minutes and
bad ones. What is promised is a share of the step, and is held against the fixed step as a share of the slow one, both
recorded and both unrecorded: a recorder lengthens ops, and both steps. Printed are medians over the rounds, and how far a
program is from itself in another round: smaller differences than that are noise.

An example whose fault a processor cannot show promises nothing: then its twins are measured all the same, to see
whether that is true.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfdoctor.vocabulary.examples import examples_folder, load_examples

_ROOT = Path(__file__).parents[1]
_STEPS, _SKIP, _ALONE = 10, 5, 25
_MEDIAN = re.compile(r"^median step ([\d.]+) ms$", re.MULTILINE)
#: A promise that misses by more is not kept.
_KEPT = 0.10
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@dataclass(frozen=True)
class Round:
    """One round with one example and its twin. Times in ms a step; the promise as shares of the recorded step."""

    recorded: float
    alone: float
    fixed_recorded: float
    fixed_alone: float
    #: What is left of the step at most, likely and at least; None where the rule found nothing.
    left: tuple[float, float, float] | None


def _python() -> str | None:
    for python in (os.environ.get("PERFDOCTOR_TORCH_PYTHON"), sys.executable):
        if python and subprocess.run([python, "-c", "import torch"], check=False, capture_output=True).returncode == 0:
            return python
    return None


def _training(python: str, example: str) -> list[str]:
    """`example` may be the name of a fixed twin."""
    ranks = load_examples()[example.removesuffix("_fixed")].ranks
    launcher = (*_TORCHRUN, str(ranks)) if ranks > 1 else ()
    return [python, *launcher, str(examples_folder() / f"{example}.py"), "--steps", str(_ALONE)]


def _run(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        sys.exit(f"promises: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _alone_ms(python: str, example: str) -> float:
    found = _MEDIAN.search(_run(_training(python, example), dict(os.environ)))
    assert found, f"{example} printed no median step"
    return float(found[1])


def _perfdoctor(command: str, *arguments: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(_ROOT / 'src')!r}); from perfdoctor.cli.main import main; main()"
    _run([sys.executable, "-c", code, command, "--quiet", "--no-html", *arguments], dict(os.environ))


def _diagnosed(python: str, example: str, folder: Path) -> dict[str, Any]:
    """The diagnosis of one recorded run."""
    file = folder.with_suffix(".json")
    window = ["--passes", "torch", "--steps", str(_STEPS), "--skip-steps", str(_SKIP)]
    _perfdoctor("run", *window, "-o", str(folder), "--json", str(file), "--", *_training(python, example))
    return _read(file)


def _read(file: Path) -> dict[str, Any]:
    diagnosis: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return diagnosis


def _step_ns(diagnosis: dict[str, Any]) -> float:
    return statistics.mean(each["step_ns"] for each in diagnosis["time"])


def _left(diagnosis: dict[str, Any], rule: str, folder: Path) -> tuple[float, float, float] | None:
    """What the fix of this rule alone leaves of the step, as `--what-if` answers: at least, likely, at most."""
    findings = [each for cause in diagnosis["findings"] for each in (cause, *cause["symptoms"])]
    if not any(each["rule"] == rule and each["saving_ns_per_step"]["likely"] for each in findings):
        return None
    file = folder.with_suffix(".what-if.json")
    _perfdoctor("analyze", str(folder), "--what-if", rule, "--json", str(file))
    prediction = _read(file)["prediction"]
    step_ns, now_ns = prediction["step_ns"], prediction["unrecorded_step_ns"] or _step_ns(diagnosis)
    least, likely, most = (step_ns[case] / now_ns for case in ("low", "likely", "high"))
    return least, likely, most


def _round(python: str, example: str, scratch: Path) -> Round:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        slow = _diagnosed(python, example, Path(folder) / "slow")
        left = _left(slow, load_examples()[example].rule, Path(folder) / "slow")
        alone, fixed_alone = _alone_ms(python, example), _alone_ms(python, f"{example}_fixed")
        fixed = _diagnosed(python, f"{example}_fixed", Path(folder) / "fixed")
    return Round(_step_ns(slow) / 1e6, alone, _step_ns(fixed) / 1e6, fixed_alone, left)


def _spread(values: Sequence[float]) -> float:
    """How far a program is from itself: half the way between its quickest and slowest round, as a share."""
    return (max(values) - min(values)) / 2 / statistics.median(values)


def _tell(example: str, rounds: Sequence[Round]) -> bool | None:
    """Print what was promised and what came of it. Was the promise kept, unrecorded? None where there was none."""
    recorded, fixed_recorded = [each.recorded for each in rounds], [each.fixed_recorded for each in rounds]
    alone, fixed_alone = [each.alone for each in rounds], [each.fixed_alone for each in rounds]
    known = load_examples()[example]
    print(f"\n{example}: {known.rule}")
    for name, slow, fixed in (("recorded", recorded, fixed_recorded), ("unrecorded", alone, fixed_alone)):
        print(
            f"  {name:10s} {statistics.median(slow):8.2f} ms (± {100 * _spread(slow):2.0f} % against itself), "
            f"fixed {statistics.median(fixed):8.2f} ms (± {100 * _spread(fixed):2.0f} %)"
        )
    promises = [each.left for each in rounds if each.left is not None]
    if not promises:
        left = statistics.median(fixed / slow for slow, fixed in zip(alone, fixed_alone, strict=True))
        why = known.cannot_show or known.saves_no_time
        print(f"  promises nothing{f': {why}' if why else ''}; unrecorded {left:.3f} of the step is left", flush=True)
        return None
    promise = [statistics.median(each[case] for each in promises) for case in range(3)]
    least, likely, most = promise
    print(
        f"  promised in {len(promises)} of {len(rounds)} rounds: {likely:.3f} of the step ({least:.3f} to {most:.3f})"
    )
    _compared("recorded", promise, recorded, fixed_recorded)
    return _compared("unrecorded", promise, alone, fixed_alone)


def _compared(name: str, promise: Sequence[float], slow: Sequence[float], fixed: Sequence[float]) -> bool:
    least, likely, most = promise
    measured = statistics.median(after / before for before, after in zip(slow, fixed, strict=True))
    error = likely / measured - 1
    inside, kept = least <= measured <= most, abs(error) <= _KEPT
    print(
        f"  left of it, {name:10s} {measured:.3f}, {'inside' if inside else 'outside'}: "
        f"{100 * error:+5.1f} %, {'kept' if kept else 'missed'}",
        flush=True,
    )
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help="of the folder examples/ (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="of each example (default: 5)")
    given = parser.parse_args()
    if unknown := set(given.examples) - set(load_examples()):
        parser.error(f"no such example: {', '.join(sorted(unknown))}")
    python = _python()
    if python is None:
        print("promises: no Python with torch (PERFDOCTOR_TORCH_PYTHON): left out.")
        return
    with tempfile.TemporaryDirectory() as scratch:
        stated = [
            _tell(example, [_round(python, example, Path(scratch)) for _ in range(given.rounds)])
            for example in given.examples or load_examples()
        ]
    promised = [kept for kept in stated if kept is not None]
    print(f"\n{sum(promised)} of {len(promised)} promises kept to {100 * _KEPT:.0f} %, unrecorded")


if __name__ == "__main__":
    main()
