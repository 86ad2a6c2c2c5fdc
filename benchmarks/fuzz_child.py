"""How are many files of a stranger read, one after the other, in a process that may die of any of them?

A forked child reads some hundred and says of each what came of it. It writes into its own folder alone, and has so much
time and memory for each file. Most files are only read, as that takes a tenth of a diagnosis: one in so many, and each
that was read as none before, is diagnosed as well. What reads in a process of its own is mostly forked instead of started.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import resource
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import confined
import forked_readers
import fuzz_cases
import fuzz_targets
from fuzz_targets import Target

from perfdoctor.readers.kineto import window
from perfdoctor.system.processors import JOBS

Tell = Callable[[dict[str, object]], None]

#: Of files that are only read, one in so many is diagnosed as well: that takes three to ten times as long.
_IN_FULL_EVERY = 20
#: A reader in a process of its own is started, and not forked, for one in so many: that takes half a second.
_STARTED_EVERY = 500
#: Of a trace's text in memory: with the least a small file is read in as many parts as a large one, and events are cut.
_WINDOW_BYTES = (1 << 10, 1 << 13, 1 << 16)
#: Before the outcome of the reader alone.
ONLY_READ = "read: "
#: In the folder of a child: the content that it reads now.
_CURRENT = "current"


def child(folder: Path, work: Callable[[Tell], None]) -> Iterator[dict[str, object]]:
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
        with contextlib.suppress(ProcessLookupError):  # what it has forked itself
            os.killpg(child, signal.SIGKILL)
        if current is not None:
            fatal.seek(0)
            trace = fatal.read().decode("utf-8", "replace")
            code = os.waitstatus_to_exitcode(status)
            is_late = code in (-signal.SIGPROF, -signal.SIGALRM)
            what = (
                f"more than {confined.MOST_SECONDS} s{_innermost(trace)}"
                if is_late
                else f"the process ended with {code}"
            )
            content = (folder / _CURRENT).read_bytes().hex()
            yield {"content": content, "is_wrong": True, "what": what, "trace": trace, "seconds": 0, "bytes": 0}
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
    os.environ["RUST_BACKTRACE"] = "0"  # of what reads Parquet: it takes four times as long as the reading
    os.environ[JOBS] = "1"
    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder)
    gc.freeze()  # what was loaded before is not looked through again, and its pages are not copied
    warnings.simplefilter("error", RuntimeWarning)  # of numpy: what it computed there is no number
    faulthandler.enable(fatal)
    for late in (signal.SIGPROF, signal.SIGALRM):
        faulthandler.register(late, fatal, chain=True)  # and then ends, as it does by default
    global _tried  # noqa: PLW0603 of this process
    _tried = confined.confine(folder)


_tried: list[str] = []


def try_many(
    target: Target, pool: list[bytes], many: int, random: Random, folder: Path, tell: Tell, until: float
) -> None:
    """So many changed files of the pool, and of what was new among them."""
    known: set[str] = set()
    own = list(pool)
    for _ in range(many):
        if time.monotonic() > until:
            return
        content = target.mutation(random.choice(own), random)
        report = tried(target, content, Random(random.random()), folder, tell, known)
        if is_worth_changing(report):
            own.append(content)


def is_worth_changing(report: Mapping[str, object]) -> bool:
    """Did something new come of it? What is refused stays refused, mostly for the same reason."""
    return bool(report["content"]) and not report["is_wrong"] and not report["refused"]


def tried(
    target: Target, content: bytes, random: Random, folder: Path, tell: Tell, known: set[str] | None = None
) -> dict[str, object]:
    """Tell what comes of one content; with the content where that was not `known`. Without `known` it is used in full."""
    (folder / _CURRENT).write_bytes(content)
    tell({"begins": True})
    what, trace, is_wrong, seconds = _outcome(target, content, random, folder / "case", known)
    is_new = known is None or _is_new(what, known)
    is_refused = what.removeprefix(ONLY_READ).startswith("error")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    report = {
        "what": what, "is_wrong": is_wrong, "trace": trace, "seconds": seconds, "bytes": most,
        "refused": is_refused, "content": content.hex() if is_new else "",
    }  # fmt: skip
    tell(report)
    return report


def _outcome(
    target: Target, content: bytes, random: Random, folder: Path, known: set[str] | None
) -> tuple[str, str, bool, float]:
    """What came out, the traceback, whether it is wrong, and the seconds of the processor that it took."""
    fuzz_cases.emptied(folder)
    path = fuzz_cases.written(target.name, content, folder)
    before = len(_tried)
    trace, is_wrong = "", True
    signal.setitimer(signal.ITIMER_PROF, confined.MOST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, confined.MOST_SECONDS * confined.CLOCK_FACTOR)
    begun = time.process_time()
    try:
        what, is_wrong = _used(target, path, random, known), False
    except MemoryError as error:
        trace = traceback.format_exc()
        what = f"no memory: {_place(error)}"
    except Exception as error:  # noqa: BLE001 all are wrong
        trace = traceback.format_exc()
        what = f"{type(error).__name__} {_place(error)}: {fuzz_targets.kind(str(error))}"
    seconds = time.process_time() - begun
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    if outside := _tried[before:]:
        what, is_wrong = f"outside: {outside[0].replace(str(folder.parent), '')}", True
    return what, trace, is_wrong, seconds


def _used(target: Target, path: Path, random: Random, known: set[str] | None) -> str:
    """What came of it: of the reader alone, or in full where that is drawn, or new."""
    window.BYTES = random.choice(_WINDOW_BYTES)
    is_started = known is None or random.randrange(_STARTED_EVERY) == 0
    with contextlib.ExitStack() as quickly:
        if not is_started:
            quickly.enter_context(forked_readers.forked())
        if not is_started and not target.name:
            quickly.enter_context(forked_readers.remembering())
        if target.reads is not None and known is not None:
            what = f"{ONLY_READ}{fuzz_targets.outcome(target.reads, path, random)}"
            if not _is_new(what, known) and random.randrange(_IN_FULL_EVERY):
                return what
        return fuzz_targets.outcome(target.use, path, random)


def _is_new(what: str, known: set[str]) -> bool:
    """Is any line of an outcome not known yet? It is from now on."""
    new = {line for line in what.split("\n") if line not in known}
    known |= new
    return bool(new)


def _place(error: BaseException) -> str:
    """Where in the program it was raised: the innermost line of ours."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/perfdoctor/" in frame.filename]
    return f"in {ours[-1].filename.rpartition('/perfdoctor/')[2]}:{ours[-1].name}" if ours else ""
