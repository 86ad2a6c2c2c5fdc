"""What was recorded? One Timeline for every tool: frames of columns, one frame a signal.

Times are integer nanoseconds. Text columns hold each different value once (`Text`), so a question about names is asked
once per name and not once per row. `Timeline.recorded` says which signals *were recorded*: an empty frame of a recorded
signal is an answer, a signal that is not in it was not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfdoctor.timeline.columns import UNKNOWN, Column, Ints, Mask, Text

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "PROFILE_NUMBERS", "SAMPLE_NUMBERS", "SIGNALS", "UNKNOWN", "Column", "Device", "Frame", "Ints", "Mask", "Source",
    "Stated", "Text", "Timeline", "merge",
]  # fmt: skip

_WHERE_ON_DEVICE = {"rank": np.int64, "device": np.int64, "stream": np.int64, "process": np.int64}
_WHERE_ON_HOST = {"rank": np.int64, "process": np.int64, "thread": np.int64}
_WHEN = {"start_ns": np.int64, "end_ns": np.int64}
_DEVICE_WORK = {**_WHERE_ON_DEVICE, **_WHEN, "correlation": np.int64, "name": Text}
_HOST_WORK = {**_WHERE_ON_HOST, **_WHEN, "name": Text}

#: What Nsight Compute measures of a kernel: the float columns of `kernel_profiles`.
PROFILE_NUMBERS = (
    "gpu_time_ns", "sm_share", "memory_share", "dram_share", "l2_share", "l1_share", "tensor_share", "occupancy_share",
    "occupancy_limit_share", "waves_per_sm", "sm_count", "registers_per_thread", "sm_clock_hz", "memory_clock_hz",
    "dram_bytes", "flop", "excess_sector_share", "useful_bytes", "stall_share",
)  # fmt: skip

#: What a GPU told of itself at one moment: the float columns of `device_samples`. Rates are one way, shares 0 to 1.
SAMPLE_NUMBERS = (
    "power_w", "power_limit_w", "default_power_limit_w", "sm_clock_mhz", "max_sm_clock_mhz", "application_clock_mhz",
    "memory_clock_mhz", "temperature_c", "utilization_share", "memory_utilization_share", "memory_used_bytes",
    "memory_total_bytes", "pcie_generation", "max_pcie_generation", "pcie_width", "max_pcie_width",
    "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second", "nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second",
    "processes", "sm_active_share", "tensor_active_share", "dram_active_share", "power_violation_share",
)  # fmt: skip

#: Every signal and its columns. `UNKNOWN` stands where a recording does not tell a number, "" where it tells no text.
SIGNALS: Mapping[str, Mapping[str, type]] = {
    # Executions on the device that are not collectives. `is_graph`: the row is one launch of a whole CUDA graph.
    "kernels": {**_DEVICE_WORK, "blocks": np.int64, "threads_per_block": np.int64, "is_graph": np.bool_},
    # memcpy and memset. direction: h2d d2h d2d p2p h2h memset unknown
    # host_memory: pageable pinned managed unknown, none where the host has no part
    "copies": {**_DEVICE_WORK, "bytes": np.int64, "direction": Text, "host_memory": Text},
    # Collective kernels. kind: all_reduce all_gather reduce_scatter all_to_all send_recv broadcast reduce barrier other
    "collectives": {
        **_DEVICE_WORK, "kind": Text, "bytes": np.int64, "group": Text, "group_size": np.int64, "data_type": Text,
    },
    # Calls of the CUDA/HIP runtime and driver on the host; name without version suffix; correlation joins device work.
    "calls": {**_HOST_WORK, "correlation": np.int64},
    # Framework calls on the host (aten::…, autograd::…); shapes and types as the recording writes them, "" if not, and
    # so the inputs that are no tensors, of convolutions and attention only (stride, padding, causal or not).
    "ops": {**_HOST_WORK, "input_shapes": Text, "input_types": Text, "input_values": Text},
    # User annotations and NVTX ranges on the host.
    "ranges": _HOST_WORK,
    # Python functions, where stacks were recorded.
    "functions": _HOST_WORK,
    # Calls of the operating system's runtime (read, poll, pthread_cond_wait, …).
    "os_calls": _HOST_WORK,
    # Stretches that the profiler itself took (flushing, buffer requests). thread UNKNOWN: not told.
    "overheads": _HOST_WORK,
    # What a process held at the end of a recorded step; both times are that moment. name: cuda (what torch allocated
    # and reserved on its device) or heap (what malloc had handed out, and the resident set; device UNKNOWN).
    "memory": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN,
        "allocated_bytes": np.int64, "reserved_bytes": np.int64, "name": Text,
    },
    # What torch's allocator handed out, from a memory snapshot. made_at and freed_at are places in the device's row of
    # events: UNKNOWN where it was made before the recording, or never freed in it. bytes: what it occupies. name: the
    # innermost line of own code; stack: it and its callers; category: see `ingest/memory_stacks.py`.
    "allocations": {
        **_WHERE_ON_DEVICE, **_WHEN, "made_at": np.int64, "freed_at": np.int64, "bytes": np.int64,
        "requested_bytes": np.int64, "address": np.int64, "name": Text, "stack": Text, "category": Text,
    },
    # What it had reserved from the driver at the moment of the snapshot. name: small or large blocks.
    "memory_segments": {
        **_WHERE_ON_DEVICE, **_WHEN, "address": np.int64, "bytes": np.int64, "allocated_bytes": np.int64,
        "active_bytes": np.int64, "requested_bytes": np.int64, "is_expandable": np.bool_, "name": Text,
    },
    # segment_alloc, segment_free, segment_map, segment_unmap: memory from the driver and back to it; oom: it had only
    # device_free_bytes left; mark: a step of the program (line) began. `at` is the place in the row of
    # events, of a mark that of the event before it.
    "memory_events": {
        **_WHERE_ON_DEVICE, **_WHEN, "at": np.int64, "bytes": np.int64, "address": np.int64,
        "device_free_bytes": np.int64, "name": Text, "line": Text, "stack": Text,
    },
    # What torch.profiler counted by purpose (name: parameters, gradients, …), in the order of changes: bytes given to
    # it, or taken if negative. Rows of one moment keep their order.
    "memory_changes": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "bytes": np.int64, "name": Text,
    },
    # Running totals of torch's allocator, at each of its changes (torch.profiler with profile_memory).
    "memory_totals": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN,
        "allocated_bytes": np.int64, "reserved_bytes": np.int64, "name": Text,
    },
    # Kernels that Nsight Compute measured, a row a launch, one behind the other on a clock of their own. Numbers are
    # NaN where they were not measured; shares are of the device's peak, `excess_sector_share` of the sectors asked for,
    # of which `useful_bytes` would be enough.
    # compute_capability: 90 for 9.0. stall: what warps waited for most. occupancy_limiter: registers, shared memory, …
    "kernel_profiles": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "name": Text, "launch": np.int64,
        "blocks": np.int64, "threads_per_block": np.int64, "gpu": Text, "compute_capability": np.int64,
        "stall": Text, "occupancy_limiter": Text, **dict.fromkeys(PROFILE_NUMBERS, np.float64),
    },
    # What NVIDIA's rules (name) said of them, by `launch`. speedup_share: of the kernel's time if is_global, else of a
    # part of it; NaN where they estimate nothing.
    "kernel_advice": {
        "rank": np.int64, **_WHEN, "name": Text, "launch": np.int64, "speedup_share": np.float64, "is_global": np.bool_,
        "message": Text,
    },
    # What the driver told of the GPUs of a machine, a row a GPU and moment; rank UNKNOWN: a driver knows no ranks, and
    # `device` is its own index. Numbers are NaN where they were not told. reasons: why the clocks were held down, as
    # NVML's bits, UNKNOWN if not told. is_on_clock: its time is on the recording's clock; else only the order counts.
    "device_samples": {
        "rank": np.int64, "device": np.int64, **_WHEN, "name": Text, "gpu": Text, "reasons": np.int64,
        "is_on_clock": np.bool_, **dict.fromkeys(SAMPLE_NUMBERS, np.float64),
    },
    # How two GPUs, or a GPU and a NIC, of one machine are joined (`nvidia-smi topo -m`), a row each way. Times are 0.
    # name: NV4, PIX, PXB, PHB, NODE, SYS; numa: the node of the source, UNKNOWN if not told.
    "links": {"rank": np.int64, **_WHEN, "name": Text, "source": Text, "target": Text, "numa": np.int64},
    # Which way NCCL goes between two members of a communicator, a row a pair and way. name: P2P/CUMEM/read,
    # SHM/direct/direct, NET/IB/0/GDRDMA, NET/Socket/1. host: a number for each machine; device: the GPU that told it.
    "transports": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "name": Text, "host": np.int64,
        "member": np.int64, "peer": np.int64, "channels": np.int64,
    },
    # What else NCCL's log tells, each value once a process and GPU. name: see `ingest/nccl_log.py`; amount: the number
    # in it, NaN if there is none; count: how often it was told.
    "nccl_facts": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "name": Text, "host": np.int64,
        "value": Text, "amount": np.float64, "count": np.int64,
    },
    # How fast the links moved one message when nothing else ran (nccl-tests), or at most (flight recorder). name: the
    # kind of collective; algorithm and bus bandwidth as nccl-tests define them.
    "link_tests": {
        "rank": np.int64, **_WHEN, "name": Text, "source": Text, "gpu": Text, "group": Text, "ranks": np.int64,
        "bytes": np.int64, "time_ns": np.int64, "bus_bytes_per_second": np.float64,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """One signal's rows as columns of equal length. Rows are sorted by `start_ns`."""

    columns: Mapping[str, Column]

    @classmethod
    def empty(cls, signal: str) -> Frame:
        return cls({name: Text.of(()) if kind is Text else np.empty(0, kind) for name, kind in SIGNALS[signal].items()})

    def __len__(self) -> int:
        return len(self.columns["start_ns"])

    def __getitem__(self, column: str) -> npt.NDArray[np.int64]:
        """A number column (int64; bool for flags). Text columns: `text`."""
        values = self.columns[column]
        assert not isinstance(values, Text), f"{column} is text: use .text({column!r})"
        return values  # type: ignore[return-value]

    def floats(self, column: str) -> npt.NDArray[np.float64]:
        """A column of measured numbers; NaN is unknown."""
        return self[column].astype(np.float64, copy=False)

    def text(self, column: str) -> Text:
        values = self.columns[column]
        assert isinstance(values, Text), f"{column} is not text"
        return values

    @property
    def start_ns(self) -> Ints:
        return self["start_ns"]

    @property
    def end_ns(self) -> Ints:
        return self["end_ns"]

    @property
    def duration_ns(self) -> Ints:
        return self["end_ns"] - self["start_ns"]

    @property
    def name(self) -> Text:
        return self.text("name")

    def take(self, rows: npt.NDArray[np.generic]) -> Frame:
        """The rows that a mask or an array of indices names."""
        return Frame({n: c.take(rows) if isinstance(c, Text) else c[rows] for n, c in self.columns.items()})

    def of(self, **equal: int) -> Frame:
        """The rows in which each named number column has the given value: `kernels.of(rank=0, device=3)`."""
        mask = np.ones(len(self), dtype=bool)
        for column, value in equal.items():
            mask &= self[column] == value
        return self if mask.all() else self.take(mask)

    def with_columns(self, **columns: Column) -> Frame:
        return Frame({**self.columns, **columns})

    def sorted(self) -> Frame:
        start = self.start_ns
        if len(self) < 2 or not (start[1:] < start[:-1]).any():
            return self
        return self.take(np.argsort(start, kind="stable"))

    @staticmethod
    def join(frames: Sequence[Frame]) -> Frame:
        """All rows of frames with the same columns, sorted again."""
        if len(frames) == 1:
            return frames[0]
        columns: dict[str, Column] = {}
        for name, first in frames[0].columns.items():
            if isinstance(first, Text):
                columns[name] = Text.join([frame.text(name) for frame in frames])
            else:
                columns[name] = np.concatenate([frame[name] for frame in frames])
        return Frame(columns).sorted()

    def to_pandas(self) -> pd.DataFrame:
        """The same rows as a DataFrame, for notebooks; text columns become categories."""
        import pandas as pd  # noqa: PLC0415 half a second that no command should wait for

        def series(column: Column) -> object:
            if not isinstance(column, Text):
                return column
            unique = list(dict.fromkeys(column.values))
            place = np.array([unique.index(value) for value in column.values], dtype=np.int32)
            return pd.Categorical.from_codes(place[column.codes] if place.size else column.codes, categories=unique)  # type: ignore[call-overload]

        frame: pd.DataFrame = pd.DataFrame({name: series(column) for name, column in self.columns.items()})
        return frame


@dataclass(frozen=True)
class Source:
    """One file that was read. `kind`: nsys, kineto, ncu, …; `file`: its name alone; `ranks`: those found in it."""

    kind: str
    file: str
    tool_version: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Device:
    """One GPU of one rank. Numbers are 0, text is "" where the recording does not tell."""

    rank: int
    device: int
    name: str = ""
    sm_count: int = 0
    compute_capability: tuple[int, int] = (0, 0)
    memory_bytes: int = 0
    memory_bytes_per_second: int = 0


@dataclass(frozen=True)
class Stated:
    """What the user told beside the recording; empty and 0: nothing.

    `peaks`: FLOP/s and bytes/s by the names of `hardware.peaks.SETTABLE`. `tokens_per_step`: tokens (or samples) that
    one GPU trains on in a step. `parameters`: those of the model that take part in each token's products.
    """

    gpu: str = ""
    peaks: Mapping[str, float] = field(default_factory=dict)
    tokens_per_step: float = 0
    parameters: float = 0


@dataclass(frozen=True)
class Timeline:
    """Everything recorded of one run, on one clock.

    `frames` holds every signal of `SIGNALS`, empty where nothing was found. `recorded` names the signals that were
    looked at by the tool. `notes` count every row that was dropped and say what the recording lacks.
    `world_size` is the size of the job, which may exceed the ranks recorded; 0 if not told. `epoch_ns` is when time 0
    was, in ns since 1970; None if not told.
    """

    frames: Mapping[str, Frame]
    recorded: frozenset[str]
    sources: tuple[Source, ...] = ()
    devices: tuple[Device, ...] = ()
    world_size: int = 0
    thread_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stated: Stated = field(default_factory=Stated)
    epoch_ns: int | None = None

    @classmethod
    def build(
        cls,
        frames: Mapping[str, Frame],
        recorded: Iterable[str],
        *,
        sources: Sequence[Source] = (),
        devices: Sequence[Device] = (),
        world_size: int = 0,
        thread_names: Mapping[tuple[int, int], str] | None = None,
        notes: Sequence[str] = (),
    ) -> Timeline:
        """A checked Timeline: absent signals get empty frames, rows are sorted, `self_check` has passed."""
        full = {signal: frames.get(signal, Frame.empty(signal)).sorted() for signal in SIGNALS}
        timeline = cls(
            full,
            frozenset(recorded),
            tuple(sources),
            tuple(devices),
            world_size,
            dict(thread_names or {}),
            tuple(notes),
        )
        timeline.self_check()
        return timeline

    def __getitem__(self, signal: str) -> Frame:
        return self.frames[signal]

    @property
    def kernels(self) -> Frame:
        return self.frames["kernels"]

    @property
    def copies(self) -> Frame:
        return self.frames["copies"]

    @property
    def collectives(self) -> Frame:
        return self.frames["collectives"]

    @property
    def calls(self) -> Frame:
        return self.frames["calls"]

    @property
    def ops(self) -> Frame:
        return self.frames["ops"]

    @property
    def ranges(self) -> Frame:
        return self.frames["ranges"]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that any row or device belongs to, ascending. What a machine tells of itself belongs to none."""
        found = {device.rank for device in self.devices}
        for frame in self.frames.values():
            found.update(_different(frame["rank"]))
        return tuple(sorted(found - {UNKNOWN}))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Each (rank, device) on which any work ran, ascending."""
        found: set[tuple[int, int]] = set()
        for signal in ("kernels", "collectives", "copies"):
            frame = self.frames[signal]
            for rank in _different(frame["rank"]):
                found.update((rank, device) for device in _different(frame.of(rank=rank)["device"]))
        return tuple(sorted(found))

    def device_of(self, rank: int, device: int) -> Device:
        """What is known of this GPU; a Device without a name if nothing is."""
        for known in self.devices:
            if (known.rank, known.device) == (rank, device):
                return known
        return Device(rank, device)

    def with_notes(self, *notes: str) -> Timeline:
        return replace(self, notes=self.notes + notes)

    def self_check(self) -> None:
        """Raise AssertionError where a frame breaks its declaration: a reader's bug, never the user's fault."""
        assert set(self.frames) == set(SIGNALS), f"signals {set(self.frames) ^ set(SIGNALS)}"
        assert self.recorded <= set(SIGNALS), f"unknown signals {self.recorded - set(SIGNALS)}"
        for signal, declared in SIGNALS.items():
            _check_frame(signal, self.frames[signal], declared)


def _different(values: Ints) -> list[int]:
    """Which values occur? Most columns hold one: seen without sorting."""
    if values.size and (values == values[0]).all():
        return [int(values[0])]
    return [int(value) for value in np.unique(values)]


def _check_frame(signal: str, frame: Frame, declared: Mapping[str, type]) -> None:
    assert set(frame.columns) == set(declared), f"{signal}: columns {set(frame.columns) ^ set(declared)}"
    for name, kind in declared.items():
        column = frame.columns[name]
        assert len(column) == len(frame), f"{signal}.{name}: {len(column)} rows of {len(frame)}"
        if isinstance(column, Text):
            assert kind is Text, f"{signal}.{name} is text"
        else:
            assert kind is not Text, f"{signal}.{name} is not text"
            assert column.dtype == np.dtype(kind), f"{signal}.{name}: {column.dtype}"
    start, end = frame.start_ns, frame.end_ns
    assert (end >= start).all(), f"{signal}: a row ends before it starts"
    assert not (start[1:] < start[:-1]).any(), f"{signal}: rows are not sorted"


def merge(timelines: Sequence[Timeline]) -> Timeline:
    """Several recordings of one run as one Timeline. They must already share a clock and have different ranks."""
    if len(timelines) == 1:
        return timelines[0]
    return Timeline.build(
        {signal: Frame.join([timeline[signal] for timeline in timelines]) for signal in SIGNALS},
        frozenset().union(*(timeline.recorded for timeline in timelines)),
        sources=[source for timeline in timelines for source in timeline.sources],
        devices=[device for timeline in timelines for device in timeline.devices],
        world_size=max(timeline.world_size for timeline in timelines),
        thread_names={key: name for timeline in timelines for key, name in timeline.thread_names.items()},
        notes=list(dict.fromkeys(note for timeline in timelines for note in timeline.notes)),
    )
