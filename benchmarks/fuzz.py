"""Does any file lead the program astray? Files of every reader, and of our own, changed at random, one after the other.

`make fuzz` tries 200 of each; `FUZZ="--inputs 5000 --only kineto"` more of one. A file is read in a child process that may
write into its own folder alone, and has 1.5 GB and 20 s. It is wrong if it ends in anything but a diagnosis whose parts sum,
or the two lines of a PerfdoctorError. What is wrong is kept under `--keep`, made small, with its traceback. A file with an
outcome that none had before is changed further, so that the search goes where the code goes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import forked_readers
import fuzz_cases
import fuzz_child
import fuzz_targets
import mutations
from fuzz_targets import TARGETS, Target

#: A child is replaced behind so many files: caches of ours may grow.
_FILES_OF_A_CHILD = 1_000
#: Interesting files that are kept to be changed further.
_MOST_SEEDS = 300
_TRIES_TO_SHORTEN = 150
#: Where a file is written and removed in a tenth of the time that a disk takes.
_IN_MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)


@dataclass
class Result:
    inputs: int = 0
    refused: int = 0
    most_seconds: float = 0.0
    most_bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, Path] = field(default_factory=dict)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--inputs", type=int, default=200, help="of each reader")
    options.add_argument("--seconds", type=float, default=0, help="at most, for each reader")
    options.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="READER")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    options.add_argument("--guided", type=float, metavar="SECONDS", help="search with atheris for so long, each reader")
    options.add_argument("--json", type=Path, help="write the figures here")
    given = options.parse_args()
    if given.guided:
        wrong = [name for name in given.only if guided(name, given.guided, given.seed, given.keep)]
        sys.exit(bool(wrong))
    results = {}
    for name in given.only:
        results[name] = result = campaign(name, given.inputs, given.seed, given.keep, given.seconds or float("inf"))
        print(
            f"{name:20} {result.inputs:7,} inputs, {result.refused:7,} refused, {len(result.outcomes):5,} outcomes, at most"
            f" {result.most_seconds:5.2f} s and {result.most_bytes >> 20:5} MB, {len(result.wrong)} wrong (seed {given.seed})",
            flush=True,
        )
        for what, where in result.wrong.items():
            print(f"    {what}\n        {where}", flush=True)
    if given.json:
        rows = {
            name: {"inputs": each.inputs, "refused": each.refused, "outcomes": len(each.outcomes), "seconds": each.most_seconds,
                   "bytes": each.most_bytes, "wrong": sorted(each.wrong)}
            for name, each in results.items()
        }  # fmt: skip
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(result.wrong for result in results.values()))


def guided(name: str, seconds: float, seed: int, keep: Path) -> bool:
    """Search with atheris. Is anything wrong?"""
    before = set((keep / name).glob("*"))
    program = Path(__file__).with_name("fuzz_guided.py")
    words = [sys.executable, str(program), name, f"{seconds:.0f}", str(keep), str(seed)]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if "No module named 'atheris'" in done.stderr:
        raise SystemExit("atheris is not installed: pip install atheris, on a Python that it is built for")
    stats = dict(line[6:].split(":", 1) for line in done.stderr.splitlines() if line.startswith("stat::"))
    wrong = set((keep / name).glob("*")) - before
    print(
        f"{name:20} {int(stats.get('number_of_executed_units', 0)):7,} inputs, guided, {len(wrong)} wrong (seed {seed})",
        flush=True,
    )
    return bool(wrong)


def campaign(name: str, inputs: int, seed: int, keep: Path, seconds: float) -> Result:
    """So many changed files of one reader. What is wrong is kept once a kind."""
    target = TARGETS[name]
    pool = target.seeds()
    originals = len(pool)
    result = Result()
    began = time.monotonic()
    forked_readers.loaded()
    _check_seeds(name, target, pool)
    with tempfile.TemporaryDirectory(prefix="perfdoctor-fuzz-", dir=_IN_MEMORY) as where:
        folder = Path(where).resolve()
        (folder / "outside").write_bytes(b"not to be changed")
        while result.inputs < inputs and time.monotonic() - began < seconds:
            many = min(_FILES_OF_A_CHILD, inputs - result.inputs)
            random = Random(f"{name} {seed} {result.inputs}")
            wrong: dict[str, dict[str, object]] = {}
            for report in fuzz_child.child(
                folder,
                lambda tell, many=many, random=random: fuzz_child.try_many(
                    target, pool, many, random, folder, tell, began + seconds
                ),
            ):
                _note(report, result, pool, originals)
                if report["is_wrong"]:
                    wrong.setdefault(str(report["what"])[:300], report)
            for what in wrong.keys() - result.wrong.keys():  # when the child is gone, whose folder this is
                content = shortened(bytes.fromhex(str(wrong[what]["content"])), what, target, folder)
                result.wrong[what] = _kept(keep / name, content, target, str(wrong[what]["trace"]))
        if (folder / "outside").read_bytes() != b"not to be changed":
            raise AssertionError("a file outside was changed")
    return result


def _check_seeds(name: str, target: Target, pool: list[bytes]) -> None:
    """All of them must be read: changes of what is refused find nothing. Loads what children need, too."""
    with tempfile.TemporaryDirectory(prefix="perfdoctor-fuzz-") as where:
        for number, content in enumerate(pool):
            folder = Path(where).resolve() / str(number)
            folder.mkdir()
            path = fuzz_cases.written(target.name, content, folder)
            found = fuzz_targets.outcome(target.use, path, Random(4))
            if found.startswith("error"):
                raise SystemExit(f"{name}: seed {number} is refused: {found}")


def _note(report: dict[str, object], result: Result, pool: list[bytes], originals: int) -> None:
    result.inputs += 1
    result.most_seconds = max(result.most_seconds, float(str(report["seconds"])))
    result.most_bytes = max(result.most_bytes, int(str(report["bytes"])))
    if report["is_wrong"]:
        return
    what = str(report["what"])
    result.refused += bool(report["refused"])
    result.outcomes.update(what.split("\n"))
    if fuzz_child.is_worth_changing(report):
        pool.append(bytes.fromhex(str(report["content"])))
        if len(pool) > _MOST_SEEDS:
            del pool[originals]


def _kept(keep: Path, content: bytes, target: Target, trace: str) -> Path:
    folder = keep / f"{zlib.crc32(content):08x}"
    fuzz_cases.emptied(folder) if folder.exists() else folder.mkdir(parents=True)
    fuzz_cases.written(target.name, content, folder.resolve())
    (folder / "content").write_bytes(content)
    (folder / "trace.txt").write_text(trace, errors="replace")
    return folder


# --- small files -----------------------------------------------------------------------------------------------------


def shortened(content: bytes, what: str, target: Target, folder: Path) -> bytes:
    """A shorter content that is wrong in the same way; the same one where none is found."""
    random = Random(what)
    for _ in range(_TRIES_TO_SHORTEN):
        shorter = _cut(content, random) if target.name else _cut_member(content, random)
        if len(shorter) < len(content) and _is_wrong_so(shorter, what, target, folder):
            content = shorter
    return content


def _cut(content: bytes, random: Random) -> bytes:
    """Without a part: of a list in JSON, else of bytes."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        size = max(int(len(content) * random.choice((0.5, 0.2, 0.05, 0.01))), 1)
        at = random.randrange(len(content) - size + 1) if content else 0
        return content[:at] + content[at + size :]
    places = [(node, key) for node, key in mutations.places(tree)]
    if not places:
        return content
    node, key = random.choice(places)
    if isinstance(node, list) and random.random() < 0.8:
        begin = random.randrange(len(node))
        del node[begin : begin + max(len(node) // random.choice((2, 3, 8)), 1)]
    else:
        del node[key]
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def _cut_member(content: bytes, random: Random) -> bytes:
    members = mutations.unpacked(content)
    if members:
        del members[random.choice(list(members))]
    return mutations.packed(members)


def _is_wrong_so(content: bytes, what: str, target: Target, folder: Path) -> bool:
    report = tried_apart(target, content, Random(0), folder)
    return bool(report["is_wrong"]) and str(report["what"])[:300] == what


def tried_apart(target: Target, content: bytes, random: Random, folder: Path) -> dict[str, object]:
    """What comes of one content, read by a child that is confined to the folder: `is_wrong`, `what`, `trace`."""

    def work(tell: fuzz_child.Tell) -> None:
        fuzz_child.tried(target, content, random, folder.resolve(), tell)

    (report,) = list(fuzz_child.child(folder.resolve(), work))
    return report


if __name__ == "__main__":
    main()
