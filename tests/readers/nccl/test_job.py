"""Are the logs of several ranks read as one job, whether they lie in a file each or in one?"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from folders import public

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.nccl import NcclLog
from perfdoctor.readers.open import read
from perfdoctor.views.pages import communication
from perfdoctor.vocabulary.rulebook import load_rules

RANKS = 8


def lines_of(rank: int, *, numbered: bool = True) -> list[str]:
    """One communicator of all ranks, and one of each four; an all-reduce on the first, two all-gathers on the other."""
    host, pid, device = f"secret{rank // 4}", 100 + rank, rank % 4

    def line(text: str) -> str:
        return f"{host}:{pid}:{pid + 50} [{device}] NCCL INFO {text}"

    def built(pointer: str, member: int, size: int, number: str) -> list[str]:
        known = f" commId {number}" if numbered else ""
        what = (
            f"comm {pointer} rank {member} nranks {size} cudaDev {device} nvmlDev {device} busId {device + 1}000{known}"
        )
        return [line(f"ncclCommInitRank {what} - Init START"), line(f"ncclCommInitRank {what} - Init COMPLETE")]

    def called(kind: str, elements: int, pointer: str, size: int) -> str:
        return line(
            f"{kind}: opCount 0 sendbuff 0x1 recvbuff 0x2 count {elements} datatype 9 op 0 root 0 "
            f"comm {pointer} [nranks={size}] stream 0x3"
        )

    return [
        line("NCCL version 2.24.3+cuda12.4"),
        *built(f"0xa{rank}", rank, RANKS, "0xf00"),
        line(f"Channel 00/0 : {rank}[{device}] -> {(rank + 1) % RANKS}[{(device + 1) % 4}] via SHM/direct/direct"),
        *built(f"0xb{rank}", device, 4, f"0xf1{rank // 4}"),
        called("AllReduce", 1000, f"0xa{rank}", RANKS),
        *[called("AllGather", 500, f"0xb{rank}", 4)] * 2,
    ]


@pytest.fixture(params=["a file a rank", "one file", "old and one file"])
def timeline(request, tmp_path):
    ranks = [lines_of(rank, numbered="old" not in request.param) for rank in range(RANKS)]
    if request.param == "a file a rank":
        for rank, lines in enumerate(ranks):
            (tmp_path / f"rank{rank}.log").write_text("\n".join(lines) + "\n", "utf-8")
        return read(sorted(tmp_path.iterdir()))
    together = tmp_path / "job.log"
    together.write_text("\n".join(line for lines in zip(*ranks, strict=True) for line in lines) + "\n", "utf-8")
    return read([together])


def test_the_job_is_described_once(timeline):
    (note,) = [note for note in timeline.notes if "NCCL" in note]
    assert "communicators: 1 of 8 ranks and 2 of 4 ranks, 8 processes on 2 machines, connections over SHM" in note
    assert note.endswith("calls of a rank: 2 AllGather of 4 and 1 AllReduce of 8.")
    assert set(timeline["nccl_facts"]["host"].tolist()) == {0, 1}
    assert not any("secret" in text for text in (*timeline.notes, *timeline["nccl_facts"].text("value")))


def test_what_a_rank_called_is_counted(timeline):
    rows = NcclLog.of(timeline).collectives()
    assert [(row.kind, row.ranks, row.calls, row.bytes_a_rank) for row in rows] == [
        ("AllGather", 4, 2, 2 * 500 * 2 * 4),
        ("AllReduce", 8, 1, 1000 * 2),
    ]
    tables = {each.id: each for each in communication.view(prepare(timeline), None)}
    assert tables["nccl-communicators"].columns[1].values == [1, 2]
    assert tables["nccl-collectives"].columns[2].values == [2, 1]


def test_host_memory_between_cards_without_nvlink_is_no_finding(timeline):
    assert diagnose(timeline, list(load_rules().values())).findings == ()


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["megatron-socket-fallback.log", "a100-healthy.log"])
def test_communicators_and_calls_of_real_logs_as_regular_expressions_find_them(name):
    path = public(f"nccl/{name}")
    text, log = path.read_text(errors="replace"), NcclLog.of(read([path]))
    built = set(re.findall(r"nranks (\d+) .*commId (0x\w+) - Init COMPLETE", text))
    assert log.communicators() == Counter(int(size) for size, _ in built)
    calls = Counter(re.findall(r"(\w+): opCount .* comm (0x\w+) ", text))
    kinds = Counter(kind for kind, _ in calls)
    rows = {row.kind: row.calls for row in log.collectives()}
    assert rows == {kind: sum(n for (each, _), n in calls.items() if each == kind) / kinds[kind] for kind in kinds}
