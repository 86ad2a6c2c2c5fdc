"""What did a training process do from its first step to its last? As recording/sampling/whole_run.py stores it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.readers.kineto.inflate import whole_text

#: Fewer steps have no usual length.
_FEWEST_STEPS = 8
_FORMAT = 1
#: What a column of int64 holds, with room for sums.
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


class _Samples(Struct):
    at_ns: list[_Int]
    stack: list[_Int]
    evaluating: list[_Int]
    written_bytes: list[_Int]


class _Document(Struct):
    format: _Int
    start_unix_ns: _Int
    process_unix_ns: _Int
    end_ns: _Int
    parameter_bytes: _Int
    ends_ns: list[_Int]
    sites: list[_Int]
    windows: list[tuple[_Int, _Int]]
    site_lines: list[str]
    site_callers: list[str]
    frames: list[str]
    begins: list[_Int]
    own: list[_Int]
    without_gradients: list[_Int]
    stacks: list[list[_Int]]
    samples: _Samples
    iterators: list[tuple[_Int, _Int, _Int]]
    source: Mapping[str, Sequence[str]]
    rank: _Int | None = None
    acting: list[_Int] = []


def read(file: Path) -> WholeRun | None:
    """Read the steps and samples of one process.

    Args:
        file: A file of the run folder's `stacks`.

    Returns:
        What it holds; None where the run was too short to know a usual step.

    Raises:
        PerfdoctorError: The file is damaged, or its format is unknown here.
    """
    try:
        found = msgspec.json.decode(whole_text(file.read_bytes()), type=_Document)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(file) from error
    if found.format != _FORMAT or not _agrees(found):
        raise _unreadable(file)
    if len(found.ends_ns) <= _FEWEST_STEPS:
        return None
    ends = np.array(found.ends_ns, dtype=np.int64)
    behind = len(ends) - 1
    samples = found.samples
    return WholeRun(
        rank=found.rank or 0,
        start_unix_ns=found.start_unix_ns,
        process_unix_ns=found.process_unix_ns,
        end_ns=max(found.end_ns, int(ends[-1])),
        parameter_bytes=found.parameter_bytes,
        ends_ns=ends,
        sites=np.array(found.sites, dtype=np.int64),
        site_lines=found.site_lines,
        site_callers=found.site_callers,
        windows=[(max(first, 0), behind if last < 0 else min(last, behind)) for first, last in found.windows],
        at_ns=np.array(samples.at_ns, dtype=np.int64),
        stack=np.array(samples.stack, dtype=np.int64),
        evaluating=np.array(samples.evaluating, dtype=bool),
        written_bytes=np.array(samples.written_bytes, dtype=np.int64),
        frames=found.frames,
        begins=found.begins,
        own=frozenset(found.own),
        without_gradients=frozenset(found.without_gradients),
        acting=frozenset(found.acting),
        stacks=found.stacks,
        iterators=np.array(found.iterators, dtype=np.int64).reshape(-1, 3),
        code=found.source,
    )


def _unreadable(file: Path) -> PerfdoctorError:
    return PerfdoctorError(
        f"{file.name} is damaged, or of another version: what lies between the steps of the whole run is not known",
        do="Record again with this perfdoctor, or copy the run folder again",
    )


def _agrees(found: _Document) -> bool:
    """Have columns the same length, and does each number name something?"""
    samples = found.samples
    lengths = {len(samples.at_ns), len(samples.stack), len(samples.evaluating), len(samples.written_bytes)}
    return (
        len(lengths) == 1
        and len(found.sites) == len(found.ends_ns)
        and len(found.begins) == len(found.frames)
        and len(found.site_callers) == len(found.site_lines)
        and _within(samples.stack, found.stacks)
        and _within(chain.from_iterable(found.stacks), found.frames)
        and all(-1 <= site < len(found.site_lines) for site in found.sites)
        and found.ends_ns == sorted(found.ends_ns)
        and samples.at_ns == sorted(samples.at_ns)
    )


def _within(numbers: object, named: Sequence[object]) -> bool:
    return all(0 <= number < len(named) for number in numbers)  # type: ignore[attr-defined]
