"""What did NCCL build for a job, by the logs of all of its ranks: a file each, or one that all wrote into?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.model.timeline import Frame, Timeline

_SIGNALS = ("nccl_facts", "transports")
#: So many ways and sizes of communicators are named in a note.
_NAMED = 4


def of_one_job(sides: Sequence[Timeline]) -> list[Timeline]:
    """The sides, where the logs of NCCL among them are those of one job.

    A host has the same number in all of them, from 0 on, and the first has one note about all.
    """
    is_log = ["nccl_facts" in side.recorded for side in sides]
    logs = [side for side, wanted in zip(sides, is_log, strict=True) if wanted]
    if not logs:
        return list(sides)
    met = (host for log in logs for signal in _SIGNALS for host in log[signal]["host"].tolist() if host >= 0)
    numbers = {host: number for number, host in enumerate(dict.fromkeys(met))}
    numbered = [_numbered(log, numbers) for log in logs]
    numbered[0] = replace(numbered[0], notes=(_note(numbered), *numbered[0].notes))
    following = iter(numbered)
    return [next(following) if wanted else side for side, wanted in zip(sides, is_log, strict=True)]


def _numbered(log: Timeline, numbers: Mapping[int, int]) -> Timeline:
    def frame(rows: Frame) -> Frame:
        return rows.with_columns(host=np.array([numbers.get(host, -1) for host in rows["host"].tolist()], np.int64))

    return replace(log, frames={**log.frames, **{signal: frame(log[signal]) for signal in _SIGNALS}})


def communicators(facts: Frame) -> dict[int, int]:
    """How many communicators of each size the job built, by size, the largest first.

    They have numbers since NCCL 2.17. Of older ones each rank names its own: as many as there are whole sets of ranks.
    """
    rows = facts.take(facts.name.equals("communicator"))
    numbered: dict[int, set[str]] = {}
    others: Counter[int] = Counter()
    sizes = rows.floats("amount").astype(np.int64).tolist()
    for number, size, count in zip(rows.text("value"), sizes, rows["count"].tolist(), strict=True):
        if number:
            numbered.setdefault(size, set()).add(number)
        else:
            others[size] += count
    return {
        size: len(numbered.get(size, ())) + ceil(others[size] / max(size, 1))
        for size in sorted({*numbered, *others}, reverse=True)
    }


class LoggedCollective(Struct, frozen=True):
    """Calls of one kind on communicators of one size. `calls`: of one rank, the mean; `bytes_a_rank`: of its messages.

    NaN bytes where the log has a type that is not known.
    """

    kind: str
    ranks: int
    calls: float
    bytes_a_rank: float
    largest_bytes: float


def logged_collectives(facts: Frame) -> list[LoggedCollective]:
    """What a rank called by NCCL's log (NCCL_DEBUG_SUBSYS=COLL), of most bytes first.

    Each call of a rank is a line; a process with several communicators of a size stands for as many ranks.
    """
    calls, callers = (facts.take(facts.name.equals(name)) for name in ("collective", "callers"))
    ranks = Counter[str]()
    for value, amount in zip(callers.text("value"), callers.floats("amount").tolist(), strict=True):
        ranks[value] += int(amount)
    found: dict[str, list[tuple[int, float]]] = {}
    for value, count, size in zip(
        calls.text("value"), calls["count"].tolist(), calls.floats("amount").tolist(), strict=True
    ):
        found.setdefault(value, []).append((count, size))
    rows = []
    for value, each in found.items():
        kind, _, size = value.rpartition(" of ")
        of = max(ranks[value], 1)
        total = sum(count * own for count, own in each)
        rows.append(
            LoggedCollective(kind, int(size), sum(n for n, _ in each) / of, total / of, max(own for _, own in each))
        )
    return sorted(rows, key=lambda row: -row.bytes_a_rank if row.bytes_a_rank == row.bytes_a_rank else 0.0)


def _note(logs: Sequence[Timeline]) -> str:
    facts, ways = (Frame.join([log[signal] for log in logs]) for signal in _SIGNALS)
    versions = dict.fromkeys(log.sources[0].tool_version for log in logs)
    name = f"{logs[0].sources[0].file}" if len(logs) == 1 else f"{len(logs)} logs"
    library = " ".join(("NCCL", *(version for version in versions if version)))
    return f"{name}: {', '.join((library, *_said(facts, ways)))}."


def _said(facts: Frame, ways: Frame) -> Iterator[str]:
    built = communicators(facts)
    if built:
        each = [f"{count} of {size} rank{'s' * (size != 1)}" for size, count in built.items()]
        more = [f"{len(each) - _NAMED} more sizes"] if len(each) > _NAMED else []
        yield f"communicators: {' and '.join((*each[:_NAMED], *more))}"
    elif (members := facts.floats("amount")[facts.name.equals("members")]).size:
        yield f"{members.max():.0f} ranks"
    processes = {
        each
        for frame in (facts, ways)
        for each in zip(frame["host"].tolist(), frame["process"].tolist(), strict=True)
        if each[0] >= 0
    }
    hosts = len({host for host, _ in processes})
    yield f"{len(processes)} process{'es' * (len(processes) != 1)} on {hosts} machine{'s' * (hosts != 1)}"
    kinds = Counter(map(_family, ways.name))
    if kinds:
        has_nvlink = bool(facts.name.equals("nvlink").any())
        said = {"SHM": "SHM" if has_nvlink else "SHM (host memory, as usual between cards without NVLink)"}
        yield "connections over " + " and ".join(said.get(kind, kind) for kind, _ in kinds.most_common(_NAMED))
    if called := logged_collectives(facts):
        each = [f"{row.calls:,.0f} {row.kind} of {row.ranks}" for row in called]
        more = [f"{len(each) - _NAMED} more kinds"] if len(each) > _NAMED else []
        yield f"calls of a rank: {' and '.join((*each[:_NAMED], *more))}"


def _family(way: str) -> str:
    """The kind of a way: P2P, SHM, NET/IB/GDRDMA, NET/Socket."""
    parts = way.split("/")
    if parts[0] != "NET":
        return parts[0][:20]
    return "/".join(parts[:2])[:30] + ("/GDRDMA" if "GDRDMA" in way else "")
