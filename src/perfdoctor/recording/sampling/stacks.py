"""What is kept of the sampled stacks in the run folder?

A file for each sampled process, `stacks/PASS-PID.json.gz`, columns of equal length in `samples`:

    {"format": 1, "tool": "py-spy 0.4.3", "hertz": 57, "pid": 12, "of": 12, "is_worker": false,
     "frames": ["train.py(12): forward", …], "stacks": [[0, 4, 7], …],     outermost frame first
     "own": [0, …],     frames of the user's own code; without it, names say which ones are
     "threads": [{"tid": 12, "name": "MainThread"}], "source": {"train.py(12)": ["loss = model(batch)"]},
     "samples": {"thread": […], "start_unix_ns": […], "end_unix_ns": […], "stack": […], "count": […]}}

From start to end a thread had the same stack in all samples, `count` of them; 0, and older files without it,
leave that open. Only stacks: no arguments, no values, no command line.
Paths are cut at the working directory and at the folder of packages; cells of a notebook are called as in IPython's
tracebacks, `Cell In[3]`.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.recording.sampling.counts import matched
from perfdoctor.recording.sampling.sampler import INDEX
from perfdoctor.recording.tools import py_spy
from perfdoctor.recording.tools.py_spy import ThreadSample
from perfdoctor.system.masking import masked
from perfdoctor.system.paths import draft
from perfdoctor.vocabulary.names.python_code import IN_PACKAGES, is_user_function

FORMAT = 1
#: One of these lies in the outermost folder of an environment (venv, conda).
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
#: What is shown of one line of source, and of one statement.
_LONGEST_LINE, _MOST_LINES = 200, 5
#: A larger file was not written by hand.
_LARGEST_SOURCE_BYTES = 2_000_000


class Sampled(Struct, frozen=True):
    """What one py-spy sampled; see the index of `sampler.py`."""

    pid: int
    of: int
    hertz: int
    file: Path
    log: Path
    spawned_unix_ns: int
    ready_unix_ns: int
    begin_unix_ns: int
    end_unix_ns: int
    taken_unix_ns: Sequence[int] = ()

    def samples(self) -> list[ThreadSample]:
        """The samples of the recorded steps, with times since 1970, to some ms. Raises ValueError for a damaged file.

        py-spy counts from its own start. That is not before it was spawned, and its first sample came after it said
        that it samples: against functions of known times the later of both was early by 0 to 3 ms.
        """
        found = list(py_spy.samples(self.file))
        first_ns = min((each.start_ns for each in found), default=0)
        zero_ns = max(self.spawned_unix_ns, self.ready_unix_ns - first_ns)
        counted = _SampleCounts(found, zero_ns, self.taken_unix_ns)
        kept = []
        for each in found:
            start_ns, end_ns = each.start_ns + zero_ns, each.end_ns + zero_ns
            if self.end_unix_ns:  # else the process ended in its recorded steps
                start_ns, end_ns = max(start_ns, self.begin_unix_ns), min(end_ns, self.end_unix_ns)
            count = counted.samples(each, start_ns, end_ns)
            if start_ns < end_ns and (count or not counted.is_known):
                kept.append(ThreadSample(each.thread, each.thread_name, start_ns, end_ns, each.stack, count))
        return kept


class _SampleCounts:
    """How many samples there are in each stretch of a stack, where that was counted."""

    def __init__(self, found: Sequence[ThreadSample], zero_ns: int, taken_unix_ns: Sequence[int]) -> None:
        changes = sorted({ns for each in found for ns in (each.start_ns, each.end_ns)})
        self.taken = [ns - zero_ns for ns in taken_unix_ns]
        self.number = dict(zip(changes, matched(changes, self.taken), strict=False))
        self.is_known, self.zero_ns = bool(self.number), zero_ns

    def samples(self, each: ThreadSample, start_unix_ns: int, end_unix_ns: int) -> int:
        """How many samples of `each` lie in this part of its time; 0 if unknown. The first one is where it begins."""
        if not self.is_known:
            return 0
        first, end = self.number[each.start_ns], self.number[each.end_ns]
        at_ns = [each.start_ns, *self.taken[first + 1 : end]]
        return sum(start_unix_ns <= ns + self.zero_ns < end_unix_ns for ns in at_ns)


def sampled(folder: Path) -> Iterator[Sampled]:
    """Yield what the sampler's index lists."""
    with contextlib.suppress(OSError), (folder / INDEX).open(encoding="utf-8") as index:
        for line in index:
            fact = json.loads(line)
            yield Sampled(**{**fact, "file": folder / fact["file"], "log": folder / fact["log"]})


def document(each: Sampled, tool: str, project: Path, *, with_source: bool) -> dict[str, object] | None:
    """What is kept of one process; None where it was not sampled. ValueError where py-spy's file is damaged.

    `tool`: py-spy's name and version; `project`: the working directory.
    """
    found = each.samples()
    if not found:
        return None
    frames: dict[str, int] = {}
    own: set[int] = set()
    stacks: dict[tuple[int, ...], int] = {}
    threads: dict[tuple[int, str], int] = {}
    lines: dict[str, tuple[Path, int]] = {}
    cells, of_cells = cells_of(each.file.parent, each.of), dict[str, list[str]]()
    columns: dict[str, list[int]] = {"thread": [], "start_unix_ns": [], "end_unix_ns": [], "stack": [], "count": []}
    for sample in found:
        stack = []
        for function, file, line in sample.stack:
            cell = cells.get(file)
            place = cell.place if cell else place_of(file, project)
            name = f"{place.path}({line})"
            number = frames.setdefault(f"{name}: {function}", len(frames))
            if place.is_own:
                own.add(number)
            if place.is_own and place.is_inside:
                lines.setdefault(name, (project / place.path, line))
            if cell and name not in of_cells:
                of_cells.update(cell.source(name, line))
            stack.append(number)
        columns["thread"].append(threads.setdefault((sample.thread, sample.thread_name), len(threads)))
        columns["start_unix_ns"].append(sample.start_ns)
        columns["end_unix_ns"].append(sample.end_ns)
        columns["stack"].append(stacks.setdefault(tuple(stack), len(stacks)))
        columns["count"].append(sample.samples)
    return {
        "format": FORMAT, "tool": tool, "hertz": each.hertz, "pid": each.pid, "of": each.of,
        "is_worker": each.pid != each.of, "frames": list(frames), "own": sorted(own),
        "stacks": [list(stack) for stack in stacks],
        "threads": [{"tid": number, "name": name} for number, name in threads],
        "source": {**source(lines, each.spawned_unix_ns), **of_cells} if with_source else {}, "samples": columns,
    }  # fmt: skip


class SourcePlace(Struct, frozen=True):
    """A source file as it is shown. `is_inside`: below the working directory; `is_own`: the user's code."""

    path: str
    is_inside: bool
    is_own: bool


class Cell(Struct, frozen=True):
    """A cell of a notebook, whose code is in no file."""

    number: int
    text: str

    @property
    def place(self) -> SourcePlace:
        return SourcePlace(f"Cell In[{self.number}]", False, True)

    def source(self, name: str, line: int) -> dict[str, list[str]]:
        """The text of a line, by the `name` of its place; empty for a cell that is no Python."""
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return dict(_shown(self.text, {name: line}))
        return {}


def cells_of(folder: Path, pid: int) -> dict[str, Cell]:
    """A notebook's cells by the name of their code, as the agent's sampling.py wrote them; none without a notebook."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        found = json.loads((folder / f"cells-{pid}.json").read_text("utf-8"))
        return {str(name): Cell(int(cell["number"]), str(cell["text"])) for name, cell in found.items()}
    return {}


@lru_cache(maxsize=10_000)
def place_of(file: str, project: Path) -> SourcePlace:
    """The file without the user's folders: from the project or the folder of packages on, else the whole path."""
    inside = _below(file, project)
    # A project may itself lie in a folder of packages: what counts is where the file lies in it.
    found = IN_PACKAGES.match(f"/{inside}" if inside else file)
    if found:
        return SourcePlace(inside or found[1] or found[2], bool(inside), False)
    if inside:
        return SourcePlace(inside, True, not _in_environment(inside, project))
    return SourcePlace(file, False, is_user_function(f"{file}(1): f"))


def _below(file: str, project: Path) -> str:
    """The path from the project on, "" for a file elsewhere. Python before 3.9 has relative paths of scripts.

    Where a program was started by a link, its files have the link's path, and the working directory has not.
    """
    whole = Path(os.path.normpath(project / file))  # a folder of sys.path may end in `..`
    if not file.startswith("/") and not whole.is_file():
        return ""
    for path, folder in ((whole, project), (whole.resolve(), project.resolve())):
        with contextlib.suppress(ValueError):
            return path.relative_to(folder).as_posix()
    return ""


def _in_environment(inside: str, project: Path) -> bool:
    """Was the file installed below an environment of the project, though not in its folder of packages?"""
    folders = list(Path(inside).parents)[:-1]
    return any((project / folder / mark).exists() for folder in folders for mark in _ENVIRONMENT)


def source(lines: Mapping[str, tuple[Path, int]], before_unix_ns: int) -> dict[str, list[str]]:
    """The text of each line with its statement, at most five lines, from files that have not changed since."""
    by_file: dict[Path, dict[str, int]] = {}
    for name, (file, line) in lines.items():
        by_file.setdefault(file, {})[name] = line
    found: dict[str, list[str]] = {}
    for file, wanted in by_file.items():
        # The file may be gone, or no Python of this version.
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found.update(_shown(text_of_source(file, before_unix_ns), wanted))
    return found


def text_of_source(file: Path, before_unix_ns: float = math.inf) -> str:
    """The text of a file that has not changed since; "" where it cannot be read, or was not written by hand."""
    with contextlib.suppress(OSError, ValueError):
        facts = file.stat()
        if facts.st_mtime_ns <= before_unix_ns and facts.st_size <= _LARGEST_SOURCE_BYTES:
            return file.read_text("utf-8")
    return ""


def _shown(text: str, wanted: Mapping[str, int]) -> Iterator[tuple[str, list[str]]]:
    """The statements of these lines. Raises where the text is no Python of this version."""
    statements, numbered = _statements(ast.parse(text)), text.split("\n")
    for name, line in wanted.items():
        begin, end = next(((a, b) for a, b in statements if a <= line <= b), (line, line))
        shown = numbered[begin - 1 : min(end, begin + _MOST_LINES - 1)]
        margin = min((len(each) - len(each.lstrip()) for each in shown if each.strip()), default=0)
        if shown:
            yield name, [masked(each[margin:].rstrip())[:_LONGEST_LINE] for each in shown]


def _statements(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last line of each statement, shortest first; of one with a body only its head."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            found.append((node.lineno, max(end, node.lineno)))
    return sorted(found, key=lambda lines: lines[1] - lines[0])


def write(folder: Path, name: str, content: Mapping[str, object]) -> Path:
    """Store one process's stacks as the file `name`, whole or not at all. Raises OSError."""
    folder.mkdir(exist_ok=True)
    target = folder / f"{name}.json.gz"
    with draft(target) as made, gzip.open(made, "wt", encoding="utf-8", compresslevel=6) as stream:
        json.dump(content, stream, separators=(",", ":"))
    return target
