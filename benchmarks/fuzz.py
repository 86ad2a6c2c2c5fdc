"""Does any file lead the program astray? Files of every reader, and of our own, changed at random, one after the other.

`make fuzz` tries 200 of each; `FUZZ="--inputs 5000 --only kineto"` more of one. A file is read in a child process that may
write into its own folder alone, and has 1.5 GB and 20 s. It is wrong if it ends in anything but a diagnosis whose parts sum,
or the two lines of a PerfdoctorError. What is wrong is kept under `--keep`, made small, with its traceback. A file with an
outcome that none had before is changed further, so that the search goes where the code goes.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import confined
import fuzz_targets
import mutations
from fuzz_targets import TARGETS, Target

#: A child is replaced behind so many files: caches of ours may grow.
_FILES_OF_A_CHILD = 400
#: Interesting files that are kept to be changed further.
_MOST_SEEDS = 300
_TRIES_TO_SHORTEN = 150


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
    _check_seeds(name, target, pool)
    with tempfile.TemporaryDirectory(prefix="perfdoctor-fuzz-") as where:
        folder = Path(where).resolve()
        (folder / "outside").write_bytes(b"not to be changed")
        while result.inputs < inputs and time.monotonic() - began < seconds:
            many = min(_FILES_OF_A_CHILD, inputs - result.inputs)
            random = Random(f"{name} {seed} {result.inputs}")
            for report in _child(
                folder,
                lambda tell, many=many, random=random: _try_many(
                    target, pool, many, random, folder, tell, began + seconds
                ),
            ):
                _note(report, result, pool, originals, keep / name, folder, target)
        if (folder / "outside").read_bytes() != b"not to be changed":
            raise AssertionError("a file outside was changed")
    return result


def _check_seeds(name: str, target: Target, pool: list[bytes]) -> None:
    """All of them must be read: changes of what is refused find nothing. Loads what children need, too."""
    with tempfile.TemporaryDirectory(prefix="perfdoctor-fuzz-") as where:
        for number, content in enumerate(pool):
            folder = Path(where).resolve() / str(number)
            folder.mkdir()
            found = fuzz_targets.outcome(target, fuzz_targets.written(target, content, folder), Random(4))
            if found.startswith("error"):
                raise SystemExit(f"{name}: seed {number} is refused: {found}")


def _note(
    report: dict[str, object],
    result: Result,
    pool: list[bytes],
    originals: int,
    keep: Path,
    folder: Path,
    target: Target,
) -> None:
    result.inputs += 1
    result.most_seconds = max(result.most_seconds, float(str(report["seconds"])))
    result.most_bytes = max(result.most_bytes, int(str(report["bytes"])))
    what = str(report["what"])
    content = bytes.fromhex(str(report["content"])) if report["content"] else b""
    if report["is_wrong"]:
        known = what[:300]
        if known not in result.wrong:
            result.wrong[known] = _kept(keep, shortened(content, known, target, folder), target, str(report["trace"]))
        return
    result.refused += what.startswith("error")
    result.outcomes[what] += 1
    if content:
        pool.append(content)
        if len(pool) > _MOST_SEEDS:
            del pool[originals]


def _kept(keep: Path, content: bytes, target: Target, trace: str) -> Path:
    folder = keep / f"{zlib.crc32(content):08x}"
    fuzz_targets.emptied(folder) if folder.exists() else folder.mkdir(parents=True)
    fuzz_targets.written(target, content, folder.resolve())
    (folder / "content").write_bytes(content)
    (folder / "trace.txt").write_text(trace, errors="replace")
    return folder


# --- children --------------------------------------------------------------------------------------------------------

Tell = Callable[[dict[str, object]], None]


def _child(folder: Path, work: Callable[[Tell], None]) -> Iterator[dict[str, object]]:
    """Yield what the work reports, done in a child that is confined; where it dies, what it was doing is the last."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as fatal:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(reading)
                os.setpgid(0, 0)
                _begin(folder, fatal.fileno())
                with os.fdopen(writing, "w") as stream:
                    work(lambda report: print(json.dumps(report), file=stream, flush=True))
                code = 0
            except BaseException:  # noqa: BLE001 shown, and the child ends
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        current: dict[str, object] | None = None
        for line in _lines(reading, child):
            report = json.loads(line)
            current = report if report.get("begins") else None
            if current is None:
                yield report
        os.close(reading)
        _, status = os.waitpid(child, 0)
        if current is not None:
            fatal.seek(0)
            trace = fatal.read().decode("utf-8", "replace")
            code = os.waitstatus_to_exitcode(status)
            is_late = "Timeout" in trace or code == -signal.SIGPROF
            what = (
                f"more than {confined.MOST_SECONDS} s{_innermost(trace)}"
                if is_late
                else f"the process ended with {code}"
            )
            yield {**current, "is_wrong": True, "what": what, "trace": trace, "seconds": 0, "bytes": 0}
        elif status:
            raise RuntimeError(f"the fuzzer's own process ended with {status}")


def _lines(reading: int, child: int) -> Iterator[bytes]:
    """Yield the lines of a pipe until its end. The child's own clock is to end it, with a traceback, before ours does."""
    pending = b""
    while True:
        if not select.select([reading], [], [], 2 * confined.CLOCK_FACTOR * confined.MOST_SECONDS)[0]:
            os.killpg(child, signal.SIGKILL)
        if not (piece := os.read(reading, 1 << 20)):
            return
        *whole, pending = (pending + piece).split(b"\n")
        yield from whole


def _innermost(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if "/perfdoctor/" in line]
    return f" in {lines[0].rpartition('/')[2]}" if lines else ""


def _begin(folder: Path, fatal: int) -> None:
    for name, inside in (("HOME", "home"), ("TMPDIR", "tmp"), ("XDG_CACHE_HOME", "home/cache")):
        (folder / inside).mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(folder / inside)
    os.environ |= {"PERFDOCTOR_HISTORY": "off", "PERFDOCTOR_NSYS": "", "PERFDOCTOR_NCU": "", "PATH": os.defpath}
    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder)
    warnings.simplefilter("error", RuntimeWarning)  # of numpy: what it computed there is no number
    faulthandler.enable(fatal)
    faulthandler.register(signal.SIGPROF, fatal, chain=True)  # and then ends, as it does by default
    global _tried, _fatal  # noqa: PLW0603 of this process
    _fatal = fatal
    _tried = confined.confine(folder)


_tried: list[str] = []
_fatal = 2


def _try_many(
    target: Target, pool: list[bytes], many: int, random: Random, folder: Path, tell: Tell, until: float
) -> None:
    known: set[str] = set()
    own = list(pool)
    for _ in range(many):
        if time.monotonic() > until:
            return
        content = target.mutation(random.choice(own), random)
        tell({"begins": True, "content": content.hex()})
        report = _tried_once(target, content, Random(random.random()), folder / "case")
        is_new = report["what"] not in known
        known.add(str(report["what"]))
        if is_new and not report["is_wrong"]:
            own.append(content)
        tell({**report, "content": content.hex() if is_new else ""})


def _tried_once(target: Target, content: bytes, random: Random, folder: Path) -> dict[str, object]:
    fuzz_targets.emptied(folder)
    path = fuzz_targets.written(target, content, folder)
    before = len(_tried)
    trace, is_wrong = "", True
    signal.setitimer(signal.ITIMER_PROF, confined.MOST_SECONDS)
    faulthandler.dump_traceback_later(confined.MOST_SECONDS * confined.CLOCK_FACTOR, exit=True, file=_fatal)
    begun = time.process_time()
    try:
        what, is_wrong = fuzz_targets.outcome(target, path, random), False
    except MemoryError as error:
        trace = traceback.format_exc()
        what = f"no memory: {_place(error)}"
    except Exception as error:  # noqa: BLE001 all are wrong
        trace = traceback.format_exc()
        what = f"{type(error).__name__} {_place(error)}: {fuzz_targets._kind(str(error))}"  # noqa: SLF001
    seconds = time.process_time() - begun
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_PROF, 0)
    if outside := _tried[before:]:
        what, is_wrong = f"outside: {outside[0].replace(str(folder), '')}", True
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"what": what, "is_wrong": is_wrong, "trace": trace, "seconds": seconds, "bytes": most}


def _place(error: BaseException) -> str:
    """Where in the program it was raised: the innermost line of ours."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/perfdoctor/" in frame.filename]
    return f"in {ours[-1].filename.rpartition('/perfdoctor/')[2]}:{ours[-1].name}" if ours else ""


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

    def work(tell: Tell) -> None:
        tell({"begins": True, "content": ""})
        tell({**_tried_once(target, content, random, folder / "case"), "content": ""})

    (report,) = list(_child(folder.resolve(), work))
    return report


if __name__ == "__main__":
    main()
