"""What does a recording look like that is drawn as text? One character is one unit of time, a run of one is one row.

```
draw(
    kernels="####    ####",          # two kernels; "##++" would be two that touch
    host=["l      l    ",            # the n-th launching call launches the n-th work on the device
          " iiiiii     "],           # the next batch is awaited
)
```

Lanes on the device are `kernels`, `nccl` and `copies`: one text is one stream, a list several. `host` is one thread's
rows (a text, or a list of texts that nest), or a mapping of thread to rows. What a character means is in drawn.toml;
`legend` adds more. `repeat=n` draws the picture n times, a step each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from perfdoctor.metrics.communication.collectives import bus_factor
from perfdoctor.model.columns import DTYPES
from perfdoctor.model.timeline import SIGNALS, UNKNOWN, Device, Frame, Text, Timeline
from perfdoctor.own_rules.mistakes import placed
from perfdoctor.system.toml_tables import shipped_table
from perfdoctor.vocabulary.names.nccl import collective_kind

Lanes = str | Sequence[str]
_Meaning = TypeVar("_Meaning")

#: Where a picture begins, so that nothing drawn before it gets a negative time.
BASE_NS = 10_000_000_000

_MEANINGS = shipped_table(Path(__file__).with_suffix(".toml"))
KERNELS: Mapping[str, str] = _MEANINGS["kernels"]
COLLECTIVES: Mapping[str, str] = _MEANINGS["nccl"]
COPIES: Mapping[str, tuple[str, str]] = {char: tuple(both) for char, both in _MEANINGS["copies"].items()}
HOST: Mapping[str, tuple[str, str]] = {
    **{char: tuple(both) for char, both in _MEANINGS["host"].items()},
    **{digit: ("ranges", f"ProfilerStep#{digit}") for digit in "0123456789"},
}
#: Each character of these is a call of its own; the other characters make one row a run.
_ONE_EACH = "lw@q"
_LAUNCHING = "lcC@"

#: Bus bandwidth is one among so many ranks at least.
_LEAST_GROUP = 2

#: What a row may leave out without being unknown.
_DEFAULTS: Mapping[str, Any] = {
    "device": 0,
    "stream": 7,
    "direction": "h2d",
    "host_memory": "pinned",
    "kind": "all_reduce",
    "rank": 0,
    "process": 100,
    "thread": 1,
}
#: What else a row leaves out, by the type of its column.
_UNKNOWN: Mapping[type, Any] = {int: UNKNOWN, float: np.nan, bool: False, str: ""}
_ALWAYS_GIVEN = ("start_ns", "end_ns")


def frame(signal: str, rows: Iterable[Mapping[str, Any]]) -> Frame:
    """A signal's rows as literals; what a row leaves out is unknown, or rank 0, device 0, stream 7, thread 1."""
    rows = list(rows)
    columns = {}
    for column, kind in SIGNALS[signal].columns.items():
        otherwise = _DEFAULTS.get(column, _UNKNOWN[kind])
        values = [row[column] if column in _ALWAYS_GIVEN else row.get(column, otherwise) for row in rows]
        columns[column] = Text.of(values) if kind is str else np.array(values, dtype=DTYPES[kind])
    return Frame(columns)


def timeline(
    recorded: Iterable[str] | None = None, *, world_size: int = 0, devices: Sequence[Device] = (),
    **signals: Iterable[Mapping[str, Any]],
) -> Timeline:  # fmt: skip
    """A Timeline of literal rows: `timeline(kernels=[{"start_ns": 0, "end_ns": 5, "name": "k"}])`."""
    frames = {signal: frame(signal, rows) for signal, rows in signals.items()}
    return Timeline.build(frames, signals if recorded is None else recorded, devices=devices, world_size=world_size)


@placed()
def draw(
    *,
    kernels: Lanes = "",
    nccl: Lanes = "",
    copies: Lanes = "",
    host: Lanes | Mapping[int, Lanes] = (),
    unit_us: float = 100,
    repeat: int = 1,
    mark: str | None = "ProfilerStep#{n}",
    host_ahead: int = 0,
    launched_us_before: float | None = None,
    rank: int = 0,
    device: int = 0,
    gpu: str = "",
    sm_count: int = 0,
    blocks: int = UNKNOWN,
    gigabytes_per_second: float = 25,
    group: str = "",
    group_size: int = UNKNOWN,
    data_type: str = "",
    nccl_bytes: int = UNKNOWN,
    bus_gigabytes_per_second: float = 0,
    world_size: int = 0,
    legend: Mapping[str, tuple[str, str]] | None = None,
    kernel_names: Mapping[str, str] | None = None,
    recorded: Iterable[str] | None = None,
) -> Timeline:
    """A recording that is drawn as text: a character is a unit of time, a run of one character is one row.

    A signal counts as recorded if it is drawn; those of the device all count if one of them is.

    Args:
        kernels: The kernels of one stream, or of several, a text each.
        nccl: The collectives, in the same way.
        copies: The copies, in the same way.
        host: The rows of one thread (a text, or several that nest), or a mapping of threads to rows.
        unit_us: How many µs a character is.
        repeat: How often the picture is drawn, a step each.
        mark: The name of the range around each repetition, if there are several; None for no range.
        host_ahead: By how many characters the host is moved to the left.
        launched_us_before: How many µs before its start each work is launched that no drawn call launches; None for no
            such calls.
        rank: The rank of all rows.
        device: The index of the GPU.
        gpu: The GPU's name; "" for unknown.
        sm_count: How many multiprocessors the GPU has; 0 for unknown.
        blocks: How many blocks each kernel has.
        gigabytes_per_second: How fast each copy is, in units of 1,000,000,000 bytes a second.
        group: The group of ranks of each collective.
        group_size: How many ranks it has; -1 for unknown.
        data_type: The type of each collective's elements, as `Float` or `BFloat16`; "" for unknown.
        nccl_bytes: How large the message of each collective is; -1 for unknown.
        bus_gigabytes_per_second: The bus bandwidth of each collective, in units of 1,000,000,000 bytes a second: its
            message has as many bytes as that moves while it runs, among `group_size` ranks. 0 for `nccl_bytes`.
        world_size: How many ranks the job has; 0 for unknown.
        legend: More characters of the host: of each the signal and the name, `{"~": ("ranges", "swap_in")}`.
        kernel_names: More characters of kernels, each with the kernel's name.
        recorded: The signals that count as recorded, where these are others than the drawn ones.

    Returns:
        The recording, as `perfdoctor.read` would return it.

    Raises:
        ValueError: A letter has no meaning, there are more launching calls than work, or a bus bandwidth is given
            without the number of ranks among which it is one.
    """
    if bus_gigabytes_per_second and group_size < _LEAST_GROUP:
        raise ValueError(f"bus_gigabytes_per_second is among several ranks: group_size={group_size} is none, or one")
    unit_ns = round(unit_us * 1000)
    of_threads = host if isinstance(host, Mapping) else {1: host}
    threads = {thread: _lanes(lanes) for thread, lanes in of_threads.items()}
    host_legend = {**HOST, **(legend or {})}
    device_lanes = {"kernels": _lanes(kernels), "collectives": _lanes(nccl), "copies": _lanes(copies)}
    every = [lane for lanes in (*device_lanes.values(), *threads.values()) for lane in lanes]
    width = max((len(lane) for lane in every), default=0)
    rows: dict[str, list[dict[str, Any]]] = {signal: [] for signal in SIGNALS}
    correlation = 1 + 1_000_000 * rank
    for repetition in range(repeat):
        start = BASE_NS + repetition * width * unit_ns
        on_host = {"rank": rank, "process": 100 + rank}
        work: list[dict[str, Any]] = []
        first_stream = 7
        for signal, lanes in device_lanes.items():
            for lane in lanes:
                for char, begin, end in _runs(lane):
                    row = {
                        **on_host, "device": device, "stream": first_stream,
                        "start_ns": start + begin * unit_ns, "end_ns": start + end * unit_ns,
                        **_device_columns(signal, char, {**KERNELS, **(kernel_names or {})}),
                    }  # fmt: skip
                    if signal == "kernels":
                        row["blocks"] = blocks
                    if signal == "collectives":
                        row |= {
                            "group_name": group,
                            "group_size": group_size,
                            "data_type": data_type,
                            "bytes": nccl_bytes,
                        }
                        if bus_gigabytes_per_second:
                            moved = (end - begin) * unit_ns * bus_gigabytes_per_second
                            row["bytes"] = round(moved / bus_factor(str(row["kind"]), group_size))
                    if signal == "copies":
                        row["bytes"] = round((end - begin) * unit_ns * gigabytes_per_second)
                    work.append(row)
                    rows[signal].append(row)
                first_stream += 1
        launches = []
        for thread, lanes in threads.items():
            for lane in lanes:
                for char, begin, end in _runs(lane):
                    signal, name = _known(char, host_legend, "host", 'legend={"%s": ("ranges", "…")}')
                    at, until = (start + (edge - host_ahead) * unit_ns for edge in (begin, end))
                    row = {**on_host, "thread": thread, "start_ns": at, "end_ns": until, "name": name}
                    rows[signal].append(row)
                    if char in _LAUNCHING:
                        launches.append(row)
        work.sort(key=lambda row: row["start_ns"])
        launches.sort(key=lambda row: row["start_ns"])
        if len(launches) > len(work):
            raise ValueError(
                f"{len(launches)} launching calls are drawn ({' '.join(_LAUNCHING)}), and {len(work)} kernels, "
                "collectives and copies that they launch"
            )
        for position, row in enumerate(work):
            if position < len(launches):
                call = launches[position]
            elif launched_us_before is not None:
                at = int(row["start_ns"]) - round(launched_us_before * 1000) - host_ahead * unit_ns
                call = {**on_host, "start_ns": at, "end_ns": at + 1000, "name": "cudaLaunchKernel"}
                rows["calls"].append(call)
            else:
                continue
            row["correlation"] = call["correlation"] = correlation
            correlation += 1
        if repeat > 1 and mark is not None:
            at = start - host_ahead * unit_ns
            name = mark.format(n=repetition + 1)
            rows["ranges"].append({**on_host, "start_ns": at, "end_ns": at + width * unit_ns, "name": name})
    drawn = {signal for signal in SIGNALS if rows[signal]}
    if any(device_lanes.values()):
        drawn |= {"kernels", "collectives", "copies"}
    return Timeline.build(
        {signal: frame(signal, found) for signal, found in rows.items() if found},
        drawn if recorded is None else recorded,
        devices=[Device(rank, device, gpu, sm_count)] if gpu or sm_count else (),
        world_size=world_size,
    )


@placed(draw)
def draw_steps(**picture: Any) -> Timeline:
    """A recording of six steps, a character a millisecond, each work launched 50 µs before it starts.

    This is what most tests of a rule want: steps are known, and what launched what.

    Args:
        **picture: The arguments of `draw`, which replace these.

    Returns:
        The recording.

    Raises:
        TypeError: An argument is none of `draw`.
        ValueError: As of `draw`.
    """
    return draw(**{"launched_us_before": 50, "repeat": 6, "unit_us": 1000, **picture})


def _lanes(lanes: Lanes) -> list[str]:
    return [lanes] if isinstance(lanes, str) and lanes else list(lanes)


def _runs(lane: str) -> Iterator[tuple[str, int, int]]:
    """Each run of one character but the space: the character, where it begins, where it ends."""
    position = 0
    for char, run in groupby(lane):
        length = len(list(run))
        if char in _ONE_EACH:
            yield from ((char, at, at + 1) for at in range(position, position + length))
        elif char != " ":
            yield char, position, position + length
        position += length


def _device_columns(signal: str, char: str, kernel_names: Mapping[str, str]) -> dict[str, Any]:
    if signal == "kernels":
        name = _known(char, kernel_names, "kernel", 'kernel_names={"%s": "…"}')
        return {"name": name, "is_graph": char == "@"}
    if signal == "collectives":
        name = _known(char, COLLECTIVES, "nccl")
        return {"name": name, "kind": collective_kind(name)}
    direction, memory = _known(char, COPIES, "copies")
    return {"name": f"Memcpy {direction}", "direction": direction, "host_memory": memory}


def _known(char: str, letters: Mapping[str, _Meaning], lane: str, how: str = "") -> _Meaning:
    if char not in letters:
        name_it = f"name it in {how % char}, or take" if how else "take"
        raise ValueError(f"no {lane} letter {char!r}: {name_it} one of {' '.join(letters)}")
    return letters[char]
