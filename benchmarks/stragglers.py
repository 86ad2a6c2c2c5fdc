"""Which ranks and stages make the steps of a pipeline long? ByteDance's public traces, one row an operation.

    python benchmarks/stragglers.py trace.parquet --json result.json

Reads a file of https://github.com/ByteDance-Seed/StragglerAnalysis into the graph of all ranks with which the product
judges its own recordings (`replay/job`), and writes how long a step is, how long a balanced one would be, and the part
that each rank and each stage has of the excess, largest first. Own work takes the mean of its kind then, a transfer the
middle one of its kind; it lasts from its last member's start, and nothing waits for launches.

Which operation waits for which is not in such a file. It follows from their order in each rank's streams (compute, one
for each kind of message, one for data parallelism) and from what they are:

    forward-recv ─► forward-compute ─► forward-send        of one micro-batch; the backward pass alike
    params-all-gather ─► the first forward-compute of the part of the model
    the last backward-compute of the part ─► grads-reduce-scatter
    last compute ─► all-reduces of what ranks share ─► optimizer-clip-main-grad ─► optimizer
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from arro3.io import read_parquet

from perfdoctor.model.timeline import UNKNOWN, Ints
from perfdoctor.replay.job.graph import JobGraph
from perfdoctor.replay.job.parts import Parts, balanced_ns, parts

Rows = list[int]
_COMPUTE = ("forward-compute", "backward-compute")
_MESSAGES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
_GATHER, _SCATTER = "params-all-gather", "grads-reduce-scatter"
_LAYERNORM, _EMBEDDING, _SEPARATE, _CLIP, _OPTIMIZER = (
    "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "separate-grads-all-reduce",
    "optimizer-clip-main-grad", "optimizer",
)  # fmt: skip
#: All replicas of a stage come together for these; the clocks of ranks agree to `_CLOCK_S`.
_OF_REPLICAS, _CLOCK_S = (_GATHER, _SCATTER, _SEPARATE), 5e-5
_TO = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}


@dataclass
class Trace:
    """The rows of a file, as columns; and what was found out about them: who waits for whom, who comes together."""

    rank: Ints
    replica: Ints
    stage: Ints
    step: Ints
    kind: list[str]
    number: Ints
    #: Which part of its stage's layers it is, and which of the whole model's.
    part: Ints
    part_of_all: Ints
    start_s: npt.NDArray[np.float64]
    end_s: npt.NDArray[np.float64]
    waits: list[tuple[int, int]] = field(default_factory=list)
    meetings: dict[tuple[object, ...], Rows] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, path: Path) -> Trace:
        table = read_parquet(str(path)).read_all()

        def column(name: str) -> list[Any]:
            return [value for chunk in table[name].chunks for value in chunk.to_pylist()]

        ints = (np.array([-1 if value is None else value for value in column(name)], np.int64) for name in (
            "rank", "dp_rank", "stage", "step"))  # fmt: skip
        rest = (np.array([-1 if value is None else value for value in column(name)], np.int64) for name in (
            "seq_id", "mc", "gmc"))  # fmt: skip
        start, took = (np.array(column(name), np.float64) for name in ("start_ts", "duration"))
        return cls(*ints, column("optype"), *rest, start, start + took)

    @property
    def stages(self) -> int:
        return int(self.stage.max()) + 1

    def chain(self, rows: Sequence[int]) -> None:
        """Each of these comes after the one before it."""
        self.waits += zip(rows[1:], rows[:-1], strict=True)


def _blocks(trace: Trace) -> Iterator[dict[str, Rows]]:
    """The rows of one rank in one step, by kind, each in their order."""
    found: dict[tuple[int, int, int], dict[str, Rows]] = defaultdict(lambda: defaultdict(list))
    for row in np.lexsort((trace.number, trace.start_s)).tolist():
        key = int(trace.step[row]), int(trace.replica[row]), int(trace.stage[row])
        found[key][trace.kind[row]].append(row)
    yield from found.values()


def _in_order(trace: Trace, *rows: Rows) -> Rows:
    return sorted((row for each in rows for row in each), key=lambda row: (trace.start_s[row], trace.number[row]))


def _messages(trace: Trace, block: dict[str, Rows], compute: Rows) -> None:
    """What is received comes before its compute and after the compute before, what is sent after its compute.

    More rows stand in such a file than were sent: before the first compute, behind the last, and at both ends of the
    pipeline. They wait for nobody.
    """
    for kind in _MESSAGES:
        rows, pass_ = block[kind], kind.split("-")[0]
        own = block[f"{pass_}-compute"]
        trace.chain(rows)
        receives = kind.endswith("recv")
        if receives:
            sent = [row for row in rows if trace.start_s[row] <= trace.start_s[own[-1]] + _CLOCK_S]
        else:
            sent = [row for row in rows if trace.end_s[row] >= trace.end_s[own].min() - _CLOCK_S]
        # The first stage has nothing to receive for its first compute, and may say nothing of it.
        first = max(len(own) - len(sent), 0) if receives else 0
        count = 0
        for row, work, before in zip(sent, own[first:], [None, *own][first:], strict=False):
            trace.waits.append((work, row) if receives else (row, work))
            if receives and before is not None:
                trace.waits.append((row, before))
            other = int(trace.part_of_all[work]) + _TO[kind]
            if 0 <= other <= int(trace.part_of_all.max()):
                here = int(trace.stage[row])
                there = (here + _TO[kind]) % trace.stages
                ends = (there, here) if receives else (here, there)
                trace.meetings[pass_, int(trace.step[row]), int(trace.replica[row]), ends, count].append(row)
                count += 1
        _first_backward(trace, block, compute, kind)


def _first_backward(trace: Trace, block: dict[str, Rows], compute: Rows, kind: str) -> None:
    """The first message of the backward pass is not asked for before the forward pass has come so far."""
    first = compute.index(block["backward-compute"][0])
    if kind.startswith("backward") and first >= 2 and block[kind]:
        trace.waits.append((block[kind][0], compute[first - 2]))


def _replicas(trace: Trace, block: dict[str, Rows], compute: Rows) -> None:
    """Parameters are gathered before a part's first compute; gradients are sent behind its last, or behind all."""
    trace.chain(_in_order(trace, block[_GATHER], block[_SCATTER]))
    for row in {int(trace.part[row]): row for row in block[_GATHER]}.values():
        first = [work for work in block["forward-compute"] if trace.part[work] == trace.part[row]]
        trace.waits += [(first[0], row)] if first else []
    behind = [compute[-1], *block[_LAYERNORM], *block[_EMBEDDING]]
    if block[_SEPARATE]:  # gradients are sent beside the backward pass
        for row in {int(trace.part[row]): row for row in reversed(block[_SCATTER])}.values():
            last = [work for work in block["backward-compute"] if trace.part[work] == trace.part[row]]
            trace.waits += [(row, last[-1])] if last else []
        trace.waits += [(row, sent) for sent in block[_SCATTER][-1:] for row in behind[1:2]]
        behind += block[_SEPARATE]
    else:
        behind += block[_SCATTER]
    trace.chain([*behind, *block[_CLIP], *block[_OPTIMIZER]])
    for kind in _OF_REPLICAS:
        for number, row in enumerate(block[kind]):
            trace.meetings[kind, int(trace.step[row]), int(trace.stage[row]), number].append(row)
    for row in block[_EMBEDDING]:  # the first and the last stage share it
        trace.meetings[_EMBEDDING, int(trace.step[row]), int(trace.replica[row])].append(row)
    for row in block[_CLIP]:  # the norm of all gradients
        trace.meetings[_CLIP, int(trace.step[row])].append(row)


def graph_of(trace: Trace) -> JobGraph:
    """The graph of all ranks: a node a row, one for each meeting's moment, and one for the end of each step."""
    for block in _blocks(trace):
        compute = _in_order(trace, *(block[kind] for kind in _COMPUTE))
        trace.chain(compute)
        _messages(trace, block, compute)
        _replicas(trace, block, compute)
    size, meetings = trace.rank.size, list(trace.meetings.values())
    begins, duration = np.arange(size), trace.end_s - trace.start_s
    is_transfer = np.zeros(size + len(meetings) + len(set(trace.step.tolist())), dtype=bool)
    for kind in (*_MESSAGES, *_OF_REPLICAS):  # also those that stand for nothing that was sent
        is_transfer[:size] |= np.array(trace.kind) == kind
    for number, members in enumerate(meetings):
        begins[members], is_transfer[members] = size + number, True
        duration[members] = np.maximum(trace.end_s[members] - trace.start_s[members].max(), 0.0)
    after, before = (np.array(each, np.int64) for each in zip(*trace.waits, strict=True))
    met = np.flatnonzero(begins >= size)
    step = np.unique(trace.step, return_inverse=True)[1]
    over = size + len(meetings) + np.arange(int(step.max()) + 1)  # a step is over when all that is in it is
    nobody = np.full(len(meetings) + over.size, UNKNOWN)
    return JobGraph(
        duration_ns=np.append(duration * 1e9, np.zeros(nobody.size)),
        kind=np.append(np.unique(trace.kind, return_inverse=True)[1], nobody),
        is_transfer=is_transfer,
        rank=np.append(trace.rank, nobody),
        stage=np.append(trace.stage, nobody),
        peers=np.full(size + nobody.size, UNKNOWN),
        after=np.concatenate((begins[after], met, over[step])),
        before=np.concatenate((before, begins[met], np.arange(size))),
        first=np.full(over.size, UNKNOWN),
        last=over,
        steps=over.size,
    )


def _recorded_s(trace: Trace) -> float:
    """The mean recorded step, from the first start to the last end of all ranks."""
    steps = np.unique(trace.step)
    return float(np.mean([trace.end_s[own].max() - trace.start_s[own].min() for own in steps[:, None] == trace.step]))


def _rows(name: str, found: Parts) -> list[dict[str, float]]:
    order = np.argsort(-found.saved_ns, kind="stable").tolist()
    return [{name: int(found.owners[at]), "part": round(float(found.shares[at]), 4)} for at in order]


def result_of(path: Path) -> dict[str, object]:
    trace = Trace.read(path)
    graph = graph_of(trace)
    ideal_ns = balanced_ns(graph)
    ranks, stages = (parts(graph, ideal_ns, owner) for owner in (graph.rank, graph.stage))
    return {
        "step_s": ranks.step_ns / 1e9,
        "ideal_s": ranks.ideal_ns / 1e9,
        "recorded_s": _recorded_s(trace),
        "ranks": _rows("rank", ranks),
        "stages": _rows("stage", stages),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    asked = parser.parse_args()
    asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(result_of(asked.file))))


if __name__ == "__main__":
    main()
