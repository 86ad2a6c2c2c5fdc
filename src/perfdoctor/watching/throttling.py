"""Is a GPU held back by heat, power or its hardware? The samples that the driver gave meanwhile, read on."""

from __future__ import annotations

import contextlib
import csv
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from perfdoctor.metrics.machine.gpu_samples import HELD_BY
from perfdoctor.recording.tools import nvml
from perfdoctor.system.paths import write_whole

#: Of the last so many samples of a GPU at work, so many: a clock that is lowered for a moment is nothing. It is over
#: when none of them is left: a GPU at its limit of heat is held back for some seconds, again and again.
_SAMPLES, _HELD = 20, 10
#: A GPU that works less than this share of the time is idle, and its clock is low for that.
_AT_WORK_PERCENT = 50
#: By what it may be held: clocks that somebody set are as they are, and a limit of power is what a GPU works at.
_TROUBLE = ("heat", "brake", "hardware")
#: Of a file of samples so much is searched for those of a window: five minutes of eight GPUs, ten times a second.
_LATEST_BYTES = 4 << 20


class Throttled(Struct, frozen=True):
    device: int
    by: str
    clock_mhz: float
    most_mhz: float


def visible(environment: Mapping[str, str]) -> frozenset[int] | None:
    """The GPUs that a program may use, where they are named by number; None where that may be any."""
    numbers = [each.strip() for each in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return frozenset(map(int, numbers)) if all(each.isdecimal() for each in numbers) else None


def keep_since(path: Path, since_ns: int, target: Path) -> None:
    """Copy the samples that were taken since this time, in ns since 1970; no file without any. Raises OSError."""
    header, kept = b"", list[bytes]()
    for each in (nvml.before(path), path):
        with contextlib.suppress(FileNotFoundError), each.open("rb") as file:
            header = file.readline()
            file.seek(max(file.seek(0, os.SEEK_END) - _LATEST_BYTES, len(header)))
            kept += [line for line in file if line.endswith(b"\n") and _taken_ns(line) >= since_ns]
    if kept:
        target.parent.mkdir(exist_ok=True)
        write_whole(target, header + b"".join(kept))


def _taken_ns(line: bytes) -> int:
    """When a row was sampled, its first column; 0 of a line that is damaged."""
    first = line.partition(b",")[0].decode("ascii", "replace")
    return int(first) if first.isdecimal() and len(first) < 20 else 0


class GpuSamples:
    """The samples of `recording.tools.nvml`, from where they were read last. `devices`: the program's, None for all."""

    def __init__(self, path: Path, devices: frozenset[int] | None = None) -> None:
        self._path, self._read, self._devices = path, 0, devices
        self._held: set[str] = set()
        self._columns: list[str] = []
        self._latest: dict[str, deque[tuple[str, float, float]]] = {}

    def throttled(self) -> list[Throttled]:
        """The GPUs that are held back now; none where none is sampled."""
        self._read_on()
        found = []
        for device, latest in self._latest.items():
            reasons = [by for by, _, _ in latest if by]
            if len(reasons) >= _HELD:
                self._held.add(device)
            elif not reasons:
                self._held.discard(device)
            if device in self._held:
                _, clock, most = latest[-1]
                found.append(Throttled(int(device), max(set(reasons), key=reasons.count), clock, most))
        return found

    def _read_on(self) -> None:
        try:
            with self._path.open(encoding="utf-8", errors="replace", newline="") as file:
                if os.fstat(file.fileno()).st_size < self._read:
                    self._read = 0  # another one was begun
                file.seek(self._read)
                lines = file.readlines()
                whole = lines if not lines or lines[-1].endswith("\n") else lines[:-1]
                self._read += sum(len(line.encode()) for line in whole)
        except OSError:
            return
        for row in csv.reader(whole):
            if not self._columns:
                self._columns = row
            elif len(row) == len(self._columns):
                self._add(dict(zip(self._columns, row, strict=True)))

    def _add(self, row: dict[str, str]) -> None:
        try:
            used = float(row["utilization_percent"] or 100)
            reasons = int(row["throttle_reasons"] or "0", 16)
            clocks = float(row["sm_clock_mhz"] or 0), float(row["max_sm_clock_mhz"] or 0)
            device = str(int(row["device"]))
        except (KeyError, ValueError):
            return
        if self._devices is not None and int(device) not in self._devices:
            return
        by = next((name for name in _TROUBLE if reasons & HELD_BY[name]), "") if used >= _AT_WORK_PERCENT else ""
        self._latest.setdefault(device, deque(maxlen=_SAMPLES)).append((by, *clocks))
