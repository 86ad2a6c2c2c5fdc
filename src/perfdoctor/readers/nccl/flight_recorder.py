"""What did PyTorch's flight recorder keep of the last collectives? Its dumps are pickles or JSON, one a rank.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp. `duration_ms` exists only with TORCH_NCCL_ENABLE_TIMING=1,
and includes the wait for the last rank: the fastest of many equal messages is a lower bound of the links' bandwidth.
Starts and ends as the watchdog discovers them are polled, and do not measure a transfer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Source, Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers import plain_pickle, text_rows
from perfdoctor.readers.leaving_out import unopened

_KEYS = (b"record_id", b"nccl_comm_state", b"pg_config", b"profiling_name", b"collective_seq_id")
_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "short": 2, "char": 1, "byte": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
#: Pattern of `profiling_name` → kind.
_KINDS = (
    (regex(r"all_?reduce"), "all_reduce"),
    (regex(r"all_?gather"), "all_gather"),
    (regex(r"reduce_?scatter"), "reduce_scatter"),
    (regex(r"all_?to_?all"), "all_to_all"),
    (regex(r"broadcast"), "broadcast"),
    (regex(r"\breduce\b"), "reduce"),
)


def looks_like(head: bytes) -> bool:
    """Do these first bytes begin a dump? Memory snapshots are pickles and profiler traces JSON, with other keys."""
    if plain_pickle.is_pickle(head):
        return any(key in head for key in _KEYS)
    return head.lstrip()[:1] == b"{" and any(b'"' + key + b'"' in head for key in _KEYS if key != b"pg_config")


def read(path: Path) -> Timeline:
    """Finished collectives with a known duration. PerfdoctorError where the file is no dump."""
    loaded = _loaded(path)
    dump = loaded if isinstance(loaded, dict) else {}
    entries = dump.get("entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise PerfdoctorError(f"{path.name} is no dump of the flight recorder", do="Pass the file as PyTorch wrote it.")
    groups = _groups(dump.get("pg_config"))
    rows = [row for entry in entries if (row := _row(entry, groups)) is not None]
    return Timeline.build(
        {"link_tests": text_rows.frame("link_tests", rows)},
        {"link_tests"} if rows else (),
        sources=[Source("flight-recorder", path.name, str(dump.get("version", ""))[:20])],
        notes=list(_notes(path.name, entries, len(rows))),
    )


def _loaded(path: Path) -> object:
    """The content of a pickle or of JSON. PerfdoctorError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            is_pickle = plain_pickle.is_pickle(stream.read(3))
        return plain_pickle.load(path) if is_pickle else json.loads(path.read_bytes())
    except OSError as error:
        raise unopened(path, error) from error
    except (ValueError, RecursionError) as error:
        raise PerfdoctorError(f"{path.name} is damaged JSON: {str(error)[:80]}", do="Write it again.") from error


class _Group(NamedTuple):
    """A process group. `members`: its ranks, ascending, as a text that all of its messages share."""

    ranks: int
    members: str


def _groups(config: object) -> dict[str, _Group]:
    """The process groups by their ids and by their names."""
    found: dict[str, _Group] = {}
    for key, group in config.items() if isinstance(config, dict) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        listed = map(int, re.findall(r"\d{1,9}", ranks)) if isinstance(ranks, str) else ranks
        listed = listed if isinstance(listed, (list, map)) else ()
        members = sorted(each for each in listed if isinstance(each, int) and 0 <= each < 1 << 31)
        found[str(key)] = own = _Group(len(members), " ".join(map(str, members)))
        if isinstance(group, dict):
            found[str(group.get("name", key))] = own
    return found


def _row(entry: Mapping[str, object], groups: Mapping[str, _Group]) -> dict[str, object] | None:
    """The row of `link_tests` for a message; None where it is unfinished or lacks kind, size, ranks or duration."""
    name, duration_ms = str(entry.get("profiling_name", "")), entry.get("duration_ms")
    kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), None)
    size = max(_bytes(entry, "input"), _bytes(entry, "output"))
    group = entry.get("process_group")
    named = str(group[0]) if isinstance(group, (list, tuple)) and group else ""
    by_id = groups.get(str(entry.get("pg_id", "")), _Group(0, ""))
    own = groups.get(named, by_id)
    ranks, members = own if own.ranks else by_id
    if kind is None or entry.get("state") != "completed" or size <= 0 or ranks < 2:
        return None
    if not isinstance(duration_ms, (int, float)) or not 0 < duration_ms < 1e9:
        return None
    time_ns = max(round(duration_ms * 1e6), 1)
    # Bus bandwidth of n ranks as in nccl-tests, doc/PERFORMANCE.md.
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0, "reduce": 1.0}.get(kind, (ranks - 1) / ranks)
    return {
        "name": kind, "source": "flight recorder", "group_name": named[:60], "ranks": ranks,
        "members": members, "bytes": size, "time_ns": time_ns,
        "bus_bytes_per_second": size / time_ns * 1e9 * factor,
    }  # fmt: skip


def _bytes(entry: Mapping[str, object], side: str) -> int:
    """Bytes of all tensors of one side; 0 where a size or type is unknown."""
    sizes, types = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    if not isinstance(sizes, (list, tuple)) or not isinstance(types, (list, tuple)) or len(sizes) != len(types):
        return 0
    total = 0
    for size, kind in zip(sizes, types, strict=True):
        width = _BYTES.get(str(kind).lower(), 0)
        if not width or not isinstance(size, (list, tuple)) or not all(isinstance(side, int) for side in size):
            return 0
        total += prod(size) * width
    return total if 0 <= total < 1 << 62 else 0


def _notes(name: str, entries: list[dict[str, object]], measured: int) -> Iterator[str]:
    states = Counter(str(entry.get("state", ""))[:20] for entry in entries)
    open_ = [entry for entry in entries if entry.get("state") in ("scheduled", "started")]
    yield f"{name}: {len(entries):,} collectives of the flight recorder, {measured:,} of them with a duration."
    if open_:
        first = open_[0]
        what = str(first.get("profiling_name", "a collective")).removeprefix("nccl:")[:60]
        yield (
            f"{name}: {len(open_):,} collectives had not ended ({states['started']:,} started), the first {what}, "
            f"number {first.get('collective_seq_id', 'unknown')} of its group."
        )
