"""What did a machine give when it was measured? Rates, latencies and their spread, by GPU, driver and torch.

A data sheet says what a GPU can do at most. Under its power limit, in its slot and with its driver a machine reaches
less: what it reached is the better base of a predicted saving. The document is what `recording/measuring/` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.peaks import DATA_TYPES, Peaks

FORMAT = 1
#: A document is a few kB; a file beyond this is none.
_MOST_BYTES = 1 << 20
#: Samples of a machine at rest lie within a few per cent. With more than this between the least and the most,
#: something else ran, and the median says little.
_STEADY_SHARE = 0.5

_Text = Annotated[str, msgspec.Meta(max_length=300)]
#: From a bit a second to a thousand times what any GPU does.
_Amount = Annotated[float, msgspec.Meta(ge=0.1, le=1e20)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class Measurement(msgspec.Struct, frozen=True):
    """One rate or time that was measured several times. `size`: rows of square matrices; `ranks`: of an all-reduce.

    `bytes`: of a copy, message or batch; `tensors`: of a batch that a worker of a DataLoader sends.
    """

    what: _Text
    unit: Literal["flop_per_second", "bytes_per_second", "ns"]
    median: _Amount
    least: _Amount
    most: _Amount
    samples: _Count
    data_type: _Text = ""
    size: _Count = 0
    bytes: _Count = 0
    ranks: _Count = 0
    tensors: _Count = 0
    backend: _Text = ""

    @property
    def is_steady(self) -> bool:
        """Do the samples agree?"""
        return self.most - self.least <= _STEADY_SHARE * self.median


class Failure(msgspec.Struct, frozen=True):
    """One thing that could not be measured, and why."""

    what: _Text
    error: _Text
    data_type: _Text = ""
    size: _Count = 0
    bytes: _Count = 0
    ranks: _Count = 0
    tensors: _Count = 0


class MeasuredMachine(msgspec.Struct, frozen=True):
    """The measured machine. `device`: its GPU as CUDA names it, else its processor; `gpus`: how many a program sees."""

    device: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    kind: Literal["gpu", "processor"]
    gpus: _Count
    torch: _Text
    driver: _Text = ""
    cuda: _Text = ""
    compute_capability: Annotated[list[_Count], msgspec.Meta(max_length=2)] = []
    threads: _Count = 0


class MeasuredRates(msgspec.Struct, frozen=True):
    """A whole document. `measured_on`: the day; `seconds`: how long it took; `quick`: with few samples."""

    format: Literal[1]
    measured_on: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    machine: MeasuredMachine
    measurements: Annotated[tuple[Measurement, ...], msgspec.Meta(max_length=500)]
    failed: Annotated[tuple[Failure, ...], msgspec.Meta(max_length=500)] = ()
    quick: bool = False
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0

    def steady(self, what: str) -> tuple[Measurement, ...]:
        """The measurements of `what` whose samples agree, smallest first."""
        found = (each for each in self.measurements if each.what == what and each.is_steady)
        return tuple(sorted(found, key=lambda each: (each.size, each.bytes)))

    def one(self, what: str) -> float:
        """The largest median of `what`; 0 where it was not measured, or not steadily."""
        return max((each.median for each in self.steady(what)), default=0.0)

    def matmuls(self, data_type: str) -> tuple[tuple[int, float], ...]:
        """(rows of the square matrices, FLOP/s) by size, in one of `peaks.DATA_TYPES`."""
        return tuple((each.size, each.median) for each in self.steady("matmul") if each.data_type == data_type)

    def as_peaks(self) -> Mapping[str, float]:
        """The largest rates, by the names of `peaks.SETTABLE`."""
        best = {kind: max((rate for _, rate in self.matmuls(kind)), default=0.0) for kind in DATA_TYPES}
        both = {**best, "memory": self.one("memory_copy"), "host_link": self.pinned_bytes_per_second}
        return {name: rate for name, rate in both.items() if rate}

    @property
    def pinned_bytes_per_second(self) -> float:
        """Rate of copies of pinned memory in the faster direction; 0 where it is not known."""
        return max(self.one("h2d_pinned"), self.one("d2h_pinned"))

    def pinned_speedup(self, direction: str) -> float:
        """How many times as fast pinned memory is copied as pageable, `h2d` or `d2h`; 0 where not known."""
        pageable = self.one(f"{direction}_pageable")
        return self.one(f"{direction}_pinned") / pageable if pageable else 0.0


class MeasuredRate(Struct, frozen=True):
    """A measured rate beside the data sheet's, in FLOP/s or bytes/s; 0 where the data sheet is not known."""

    name: str
    measured: float
    data_sheet: float

    @property
    def share(self) -> float | None:
        return self.measured / self.data_sheet if self.data_sheet else None


def compared(rates: MeasuredRates, peaks: Peaks | None) -> Sequence[MeasuredRate]:
    """The largest rates beside those of the table, by the names of `peaks.SETTABLE`."""
    sheet = {kind: peaks.matmul_flop_per_second(kind) for kind in DATA_TYPES} if peaks else {}
    if peaks:
        sheet |= {"memory": peaks.memory_bytes_per_second, "host_link": peaks.host_link_bytes_per_second}
    return [MeasuredRate(name, rate, sheet.get(name, 0.0)) for name, rate in rates.as_peaks().items()]


def parsed(data: bytes | str, name: str) -> MeasuredRates:
    """The document. `name`: what it is called in errors. PerfdoctorError where it is none, or damaged."""
    try:
        return msgspec.json.decode(data, type=MeasuredRates)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PerfdoctorError(
            f"{name} is no document of measured rates: {error}", do="Measure again: perfdoctor selftest --full."
        ) from error


def load(file: Path) -> MeasuredRates:
    """The document in this file. PerfdoctorError where it cannot be read, or is none."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PerfdoctorError(f"{file.name} cannot be read: {error.strerror}", do="Check the file.") from error
    if len(data) > _MOST_BYTES:
        raise PerfdoctorError(f"{file.name} is too large for measured rates", do="Remove it, and measure again.")
    return parsed(data, file.name)


def encoded(rates: MeasuredRates) -> bytes:
    """The document, as `parsed` reads it."""
    return msgspec.json.format(msgspec.json.encode(rates), indent=1) + b"\n"
