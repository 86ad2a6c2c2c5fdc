"""What does the merged timeline look like in Perfetto? All ranks and tools on one clock, with findings as tracks.

```
perfdoctor findings                  one track a finding: the idle time or the work that it is about
rank 0 · process 1234                one process of a rank
    steps                            on the device; those that are not analysed are "left out"
    idle and exposed, by cause       when the device computes nothing, and why
    GPU 0 stream 7                   kernels, copies, collectives; an arrow from the call that launched each
    GPU 0 memory allocated …         counters
    main thread 1234                 ranges, Python functions, ops, calls, nested
machine                              samples of the GPUs from the driver
```
Times are the recording's own. What has no timestamps (memory snapshots, Nsight Compute's kernels, logs) is not shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from perfdoctor.diagnosis.records import Examination
from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.findings import FIRST_TRACK, add_findings, place_name, slices_of
from perfdoctor.export.slices import Slices
from perfdoctor.export.trace import Trace, groups
from perfdoctor.metrics.program import noun_of
from perfdoctor.model.device_work import SIGNALS as WORK
from perfdoctor.model.device_work import launching_calls
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Timeline
from perfdoctor.vocabulary.gpu_counters import COUNTERS
from perfdoctor.vocabulary.parts import PARTS
from perfdoctor.vocabulary.signals import SIGNALS, host_events

__all__ = ["FIRST_TRACK", "render"]

#: Signals of the host from the outermost to the innermost.
_ON_HOST = host_events("ranges", "functions", "ops", "calls")
#: The driver's numbers that change during a training, with their units.
_SAMPLED = {
    "power_w": "W", "sm_clock_mhz": "MHz", "memory_clock_mhz": "MHz", "temperature_c": "°C",
    "utilization_share": "share", "memory_utilization_share": "share", "memory_used_bytes": "bytes",
    "sm_active_share": "share", "tensor_active_share": "share", "dram_active_share": "share",
    "pcie_rx_bytes_per_second": "bytes/s", "pcie_tx_bytes_per_second": "bytes/s",
    "nvlink_rx_bytes_per_second": "bytes/s", "nvlink_tx_bytes_per_second": "bytes/s",
}  # fmt: skip
#: Process ids that do not fit into 32 bits, or that two ranks share, are replaced by numbers from here on.
_FREE_PID = 1_000_000_000
_LARGEST = 2**31
#: Rows of a process's tracks.
_STEPS, _CAUSES, _STREAMS, _COUNTERS = 0, 1, 2, 3


def render(examination: Examination) -> Iterator[bytes]:
    """The contents of the file, in chunks. PerfdoctorError if nothing recorded has a timestamp."""
    trace, run = Trace(), examination.run
    add_findings(trace, examination)
    _Recording(trace, run).add()
    if trace.is_empty:
        raise PerfdoctorError(
            "nothing in this recording has timestamps: there is no timeline to export",
            do="Pass a trace of torch.profiler or Nsight Systems, alone or together with these files.",
        )
    return trace.written(run.timeline.epoch_ns)


class _Recording:
    """The tracks of what was recorded."""

    def __init__(self, trace: Trace, run: Run) -> None:
        self.trace = trace
        self.run = run
        self.timeline: Timeline = run.timeline
        #: By rank and process: its track, and the number under which it is shown.
        self.processes: dict[tuple[int, int], tuple[int, int]] = {}
        self.pids: set[int] = set()

    def add(self) -> None:
        """Processes in order of ranks, each with all that is its own."""
        host, device = self._host_threads(), self._streams()
        counted = [
            key
            for signal in ("memory", "memory_totals", "memory_changes")
            for key, _ in groups([self.timeline[signal]["rank"], self.timeline[signal]["process"]])
        ]
        for rank, process in sorted({key[:2] for key in (*host, *device, *counted)}):
            self._process(rank, process)
        for place in self.run.places:
            self._place(place)
        for (rank, process, number, stream), parts in sorted(device.items()):
            self._row(self._process(rank, process), f"GPU {number} stream {stream}", _STREAMS, parts)
        self._memory()
        for (rank, process, thread), parts in sorted(host.items()):
            self._thread(rank, process, thread, parts)
        self._counters()
        self._machine()

    # --- where ---

    def _process(self, rank: int, process: int) -> int:
        """The track of a rank's process. Ranks on several machines may share numbers of processes."""
        if (rank, process) not in self.processes:
            pid = process if 0 < process < _LARGEST and process not in self.pids else _FREE_PID + len(self.pids)
            self.pids.add(pid)
            suffix = f" · process {process}" if process != UNKNOWN else ""
            track = self.trace.process(f"rank {rank}{suffix}", pid, len(self.processes))
            self.processes[rank, process] = track, pid
        return self.processes[rank, process][0]

    def _of_rank(self, rank: int) -> int:
        """The track of a rank's first process."""
        known = (track for (of, _), (track, _) in self.processes.items() if of == rank)
        return next(known, 0) or self._process(rank, UNKNOWN)

    # --- what ran ---

    def _streams(self) -> dict[tuple[int, ...], list[Slices]]:
        """Slices by rank, process, device, stream. An arrow has the number of its call, and leads to all its work."""
        found: dict[tuple[int, ...], list[Slices]] = defaultdict(list)
        for signal in WORK:
            frame = self.timeline[signal]
            flow = launching_calls(self.timeline, signal) + 1  # UNKNOWN becomes 0: none
            rows = self._slices(signal, frame, 0, flow)
            for key, own in groups([frame[name] for name in ("rank", "process", "device", "stream")]):
                found[key].append(rows.take(own))
        return found

    def _host_threads(self) -> dict[tuple[int, ...], list[Slices]]:
        """Slices by rank, process and thread."""
        found: dict[tuple[int, ...], list[Slices]] = defaultdict(list)
        for level, signal in enumerate(_ON_HOST):
            frame = self.timeline[signal]
            flow = self._launching() if signal == "calls" else np.zeros(len(frame), np.int64)
            rows = self._slices(signal, frame, level, flow)
            for key, own in groups([frame[name] for name in ("rank", "process", "thread")]):
                found[key].append(rows.take(own))
        return found

    def _launching(self) -> Ints:
        """The arrow of each call, 0 if it launched nothing."""
        calls = self.timeline.calls
        launched = np.zeros(len(calls), dtype=bool)
        for signal in WORK:
            rows = launching_calls(self.timeline, signal)
            launched[rows[rows != UNKNOWN]] = True
        return np.where(launched, np.arange(len(calls)) + 1, 0)

    def _slices(self, signal: str, frame: Frame, level: int, flow: Ints) -> Slices:
        category = self.trace.category(SIGNALS[signal].event)
        columns = {column.label: name for name, column in SIGNALS[signal].details.items()}
        names, args = self.trace.names(frame.name), self.trace.arguments_of(frame, columns)
        level_of, category_of = (np.full(len(frame), value, np.int64) for value in (level, category))
        return Slices(frame.start_ns, frame.end_ns, level_of, names, category_of, args, flow)

    def _thread(self, rank: int, process: int, thread: int, parts: list[Slices]) -> None:
        parent, (_, pid) = self._process(rank, process), self.processes[rank, process]
        name = self.timeline.thread_names.get((process, thread)) or (
            "main thread" if thread == process else "thread" if thread != UNKNOWN else "unknown thread"
        )
        fits = 0 < thread < _LARGEST
        track = self.trace.thread(name, parent, pid, thread) if fits else self.trace.track(f"{name} {thread}", parent)
        self.trace.add(track, "overlapping", track, Slices.join(parts))

    # --- from the accounting ---

    def _place(self, place: Place) -> None:
        parent, trace = self._of_rank(place.rank), self.trace
        several = sum(each.rank == place.rank for each in self.run.places) > 1
        suffix = f" ({place_name(place)})" if several else ""
        steps, what = place.steps, noun_of(place)
        before = 0 if place.asked is not None else steps.warm_up
        numbered = [
            (f"{what} " + (str(number - before + 1) if steps.first <= number < steps.last else "left out"), edges)
            for number, edges in enumerate(zip(steps.bounds[:-1].tolist(), steps.ends_ns.tolist(), strict=True))
        ]
        rows = [slices_of(trace, name, Intervals.single(*at), "step") for name, at in numbered]
        self._row(parent, f"{what}s{suffix}", _STEPS, rows)
        waits = ((PARTS[part].label, pieces) for part, pieces in place.parts.items() if part != "compute")
        rows = [slices_of(trace, name, pieces, "idle") for name, pieces in waits]
        self._row(parent, f"idle and exposed, by cause{suffix}", _CAUSES, rows)

    def _row(self, parent: int, name: str, place: int, parts: list[Slices]) -> None:
        if any(map(len, parts)):
            self.trace.add(self.trace.track(name, parent, place=place), name, parent, Slices.join(parts), place=place)

    # --- counters ---

    def _memory(self) -> None:
        for signal, when in (("memory", " at the end of steps"), ("memory_totals", "")):
            frame = self.timeline[signal]
            for (rank, process, device, _), own in groups([
                *(frame[name] for name in ("rank", "process", "device")), frame.name.codes.astype(np.int64),
            ]):  # fmt: skip
                rows = frame.take(own)
                whose = f"GPU {device} memory" if device != UNKNOWN else f"{rows.name[0]} memory"
                for column, word in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
                    known = rows[column] != UNKNOWN
                    self._bytes(rank, process, f"{whose} {word}{when}", rows.start_ns[known], rows[column][known])
        changes = self.timeline["memory_changes"]
        columns = [changes[name] for name in ("rank", "process", "device")]
        for (rank, process, device, _), own in groups([*columns, changes.name.codes.astype(np.int64)]):
            rows = changes.take(own)
            whose = f"GPU {device}" if device != UNKNOWN else "host"
            self._bytes(rank, process, f"{whose} memory for {rows.name[0]}", rows.start_ns, np.cumsum(rows["bytes"]))

    def _bytes(self, rank: int, process: int, name: str, at_ns: Ints, values: Ints) -> None:
        if at_ns.size:
            self.trace.count(name, self._process(rank, process), at_ns, values, "bytes", place=_COUNTERS)

    def _counters(self) -> None:
        """The GPUs' own counters; those that are 0 all the time are left out."""
        samples = self.timeline["gpu_counters"]
        for (rank, device), own in groups([samples["rank"], samples["device"]]):
            rows, parent = samples.take(own), self._of_rank(rank)
            for column, counted in COUNTERS.items():
                values = rows.floats(column)
                known = np.isfinite(values)
                if values[known].any():
                    name, unit = f"GPU {device} {counted.label}", "share" if counted.is_share else "Hz"
                    self.trace.count(name, parent, rows.start_ns[known], values[known], unit, place=_COUNTERS)

    def _machine(self) -> None:
        """The driver's samples with timestamps; they belong to no rank."""
        samples = self.timeline["device_samples"]
        samples = samples.take(samples["is_on_clock"])
        if not len(samples):
            return
        machine = self.trace.track("machine")
        for (device,), own in groups([samples["device"]]):
            rows = samples.take(own)
            parent = self.trace.track(f"GPU {device} ({rows.text('gpu')[0] or 'driver'})", machine)
            for number, (column, unit) in enumerate(_SAMPLED.items()):
                values = rows.floats(column)
                known = np.isfinite(values)
                if known.any():
                    self.trace.count(column, parent, rows.start_ns[known], values[known], unit, place=number)
