"""What have the agents written of the steps so far? Their files, read on from where they were read last.

The agent's `light.py` says what the lines are. They come from the program's processes: a line that is none of ours, is
cut off, or holds what no agent writes, is left out.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct, field

from perfdoctor.model.timeline import Floats, Ints

FORMAT = 1
#: A file that grew by more since the last time is read in parts.
_MOST_AT_ONCE = 1 << 24
#: Of so many stretches some have a length by the GPU's clock, where there is one.
_LATEST = 8
#: Slow steps of a rank that are kept, the latest: periods are found in the latest steps.
MOST_SLOW = 512
#: Stretches and uses that are kept as they are, at least: eleven hours. Periods are found in as many.
KEPT = 4096

_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Text = Annotated[str, Meta(max_length=200)]


class Stretch(Struct, frozen=True):
    """Some steps one behind the other, from number `first` on; times in ns. `q`: least, quartiles, most.

    `by_gpu`: `q` and `slow` are by the GPU's clock; `busy`: steps through which the GPU had work.
    """

    first: _Count
    steps: Annotated[int, Meta(ge=1, lt=1 << 40)]
    end: _Count = field(name="end")
    sum: _Count = 0
    q: tuple[_Count, _Count, _Count, _Count, _Count] = (0, 0, 0, 0, 0)
    wait: _Count = 0
    host: _Count = 0
    device: _Count = 0
    busy: _Count = 0
    slow: tuple[tuple[_Count, _Count], ...] = ()
    by_gpu: bool = False
    recorded: bool = False

    @property
    def last(self) -> int:
        return self.first + self.steps - 1


class Use(Struct, frozen=True):
    """What the process used up to the time `at`: `cpu` and `delay` in ns since it began, memory in bytes.

    `batch`: ns since a DataLoader gave its last batch; None where none has.
    """

    at: _Count
    cpu: _Count = 0
    rss: _Count = 0
    delay: _Count = 0
    batch: _Count | None = None
    gpu: tuple[_Count, _Count] = (0, 0)


class Process(Struct, frozen=True):
    """The first line of a file. `ranks_here`: how many of its job run on this machine."""

    format: int
    pid: _Count
    begun: _Count
    rank: _Count | None = None
    world_size: _Count | None = None
    parent: _Count = 0
    job: _Text = ""
    process_name: _Text = ""
    torch: _Text = ""
    step_found_by: _Text = ""
    started: _Count = 0
    ranks_here: _Count = 1


class _End(Struct, frozen=True):
    ended: _Count
    why: _Text = ""


#: Why a process has ended that has not said so: it was killed, or its disk was full.
GONE = "without a word"


class RankSteps:
    """One process: its stretches, uses, the last slow steps, and how it ended, if it has. `thin` drops old ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read, self._rest = 0, b""
        self._forget()

    def _forget(self) -> None:
        self.process: Process | None = None
        self.stretches: list[Stretch] = []
        self.dropped = 0  # stretches before those
        self._past = [array("q") for _ in range(5)]  # of what was dropped, as in `curve`
        self.uses: list[Use] = []
        self.slow: list[tuple[int, int]] = []
        self.longest_ns = 0  # of all unrecorded steps
        self.ended_ns = 0
        self.why = ""

    @property
    def rank(self) -> int:
        return (self.process.rank if self.process else None) or 0

    @property
    def steps(self) -> int:
        """The number of the last step that is known to have ended."""
        return self.stretches[-1].last if self.stretches else 0

    def thin(self) -> None:
        """Drop what has been judged and is long ago: a week has sixty thousand stretches, 100 MB of them.

        Of old uses there are fewer and fewer: whether memory grows shows in some samples of any time.
        """
        if len(self.stretches) >= 2 * KEPT:
            old, self.stretches = self.stretches[:-KEPT], self.stretches[-KEPT:]
            self.dropped += len(old)
            for column, values in zip(self._past, _curve_of(old), strict=True):
                column.extend(values)
        if len(self.uses) >= 2 * KEPT:
            self.uses[:-KEPT] = self.uses[:-KEPT:2]

    def curve(self) -> tuple[Ints, ...]:
        """Return columns over all stretches: first step, three quartiles in ns, and 1 if it was recorded, else 0."""
        columns = zip(self._past, _curve_of(self.stretches), strict=True)
        return tuple(np.array([*old, *new], dtype=np.int64) for old, new in columns)

    @property
    def uses_gpu(self) -> bool:
        """Does it train on a GPU? There a thread that waits for the GPU spins: it is on a core all the time."""
        return bool(self.uses and any(self.uses[-1].gpu)) or any(each.device for each in self.stretches[-_LATEST:])

    def is_gone(self) -> None:
        """The process does not run any more, and what it wrote has been read: it has ended, whatever its file says."""
        if not self.ended_ns:
            self.ended_ns, self.why = self.stretches[-1].end if self.stretches else 1, GONE

    def read(self) -> bool:
        """Read what was added; True if that was anything."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read(_MOST_AT_ONCE)
        except OSError:
            return False
        self._read += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        if content and _is_whole(self._rest):
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._add(line)
        return bool(content)

    def _add(self, line: bytes) -> None:
        try:
            if line.startswith(b'{"first"'):
                self._add_stretch(msgspec.json.decode(line, type=Stretch))
            elif line.startswith(b'{"at"'):
                self.uses.append(msgspec.json.decode(line, type=Use))
            elif line.startswith(b'{"format"'):
                process = msgspec.json.decode(line, type=Process)
                if process.format == FORMAT:
                    self._forget()  # another program in the place of this one (exec)
                    self.process = process
            elif line.startswith(b'{"ended"'):
                end = msgspec.json.decode(line, type=_End)
                self.ended_ns, self.why = end.ended, end.why
        except msgspec.MsgspecError:
            return

    def _add_stretch(self, stretch: Stretch) -> None:
        if self.stretches and stretch.first <= self.stretches[-1].last:
            return
        self.stretches.append(stretch)
        if not stretch.recorded:
            self.longest_ns = max(self.longest_ns, stretch.q[4])
            self.slow = [*self.slow, *stretch.slow][-MOST_SLOW:]


def _curve_of(stretches: Sequence[Stretch]) -> Iterator[Iterator[int]]:
    yield (each.first for each in stretches)
    for quartile in (1, 2, 3):
        yield (each.q[quartile] for each in stretches)
    yield (int(each.recorded) for each in stretches)


def _is_whole(line: bytes) -> bool:
    """A line has its line break in front: the last one is whole where its object is closed."""
    return line.startswith(b"{") and line.endswith(b"}") and line.count(b"{") == line.count(b"}")


def per_step(stretches: Sequence[Stretch], name: str) -> Floats:
    """A sum of each stretch (`sum`, `wait`, `host`), in ns a step."""
    return np.array([getattr(each, name) / each.steps for each in stretches], dtype=np.float64)


def ranks_of(found: Sequence[RankSteps]) -> dict[int, RankSteps]:
    """The process of each rank, by rank: of several the one that runs, and of those the one that made a step last.

    A rank may have been started again, or have started another program that took its number from the environment.
    Only those that make steps.
    """
    ordered = sorted((each for each in found if each.process and each.stretches), key=_how_likely)
    return dict(sorted({each.rank: each for each in ordered}.items()))


def _how_likely(each: RankSteps) -> tuple[bool, int]:
    return not each.ended_ns, each.stretches[-1].end
