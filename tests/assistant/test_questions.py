"""Does an assistant get the right numbers, through the protocol? 30 questions on five recordings, each recomputed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from folders import FIXTURES
from tables import of_each

from assistant.client import Assistant, assistant
from assistant.truth import inside, kineto, length, sql, touching, union, without

TORCH = "input-bound-single-process/torch"
RANKS = "straggler/nsys/profile.sqlite"
NVTX = "cpu-slow-input-nsys/nsys/profile.sqlite"
RUN, FIXED = "cpu-slow-input/torch", "cpu-slow-input-fixed/torch"
PAIR = "communication-exposed/torch"

#: A question, and its answer by other means.
Question = tuple[Callable[[Assistant], Any], Callable[[], Any]]

_KERNELS = """SELECT start, end, deviceId, value FROM CUPTI_ACTIVITY_KIND_KERNEL
    JOIN StringIds ON StringIds.id = demangledName ORDER BY start"""


@pytest.fixture(scope="module")
def client():
    with assistant(FIXTURES) as connected:
        yield connected


def device(client: Assistant, path: str, rank: int = 0) -> dict[str, Any]:
    return next(each for each in client.ask("analyze", path=path)["devices"] if each["rank"] == rank)


def of_torch(path: str, rank: int = 0):
    return kineto(FIXTURES / path / f"rank{rank}.pt.trace.json.gz")


def of_ranks(rank: int | None = None, name: str = ""):
    rows = sql(FIXTURES / RANKS, _KERNELS)
    return [(start, end) for start, end, on, called in rows if rank in (None, on) and name in called]


def ranges(name: str):
    question = """SELECT start, end FROM NVTX_EVENTS LEFT JOIN StringIds ON StringIds.id = textId
        WHERE coalesce(text, value) LIKE ? ORDER BY start"""
    return sql(FIXTURES / NVTX, question, name)


def step_starts(path: str) -> list[int]:
    return [start for start, _ in kineto(next((FIXTURES / path).glob("*.json.gz"))).steps]


def window_of(path: str, rank: int = 0, used: int = 7):
    return of_torch(path, rank).window(used)


def a_moment() -> tuple[int, int]:
    """Two steps of a recording."""
    first, _ = window_of(TORCH)
    return first + 1_000_000, first + 70_000_000


def waited_ns() -> int:
    """The time of a step in which the device does nothing while the loader's __next__ is called.

    Without the gaps of 1 µs between kernels that wait in the queue.
    """
    trace, window = of_torch(TORCH), window_of(TORCH)
    busy = union(trace.spans("kernel", "gpu_memcpy", "gpu_memset"), window)
    waits = union(trace.spans("user_annotation", name="DataLoader"), window)
    return length([(start, end) for start, end in without(waits, busy) if end - start > 10_000]) // 7


def collective(rank: int):
    return of_torch(PAIR, rank).spans("kernel", name="nccl")


def exposed_ns(rank: int) -> int:
    trace, window = of_torch(PAIR, rank), window_of(PAIR, rank)
    compute = [
        (start, end) for start, end, each in trace.events("kernel") if "nccl" not in each["name"]
    ]  # fmt: skip
    return length(without(union(collective(rank), window), union(compute, window)))


def by_name() -> list[tuple[str, int, int]]:
    """Kernels of the analysed steps: name, how many, how long together; costliest first."""
    window, count, total = window_of(TORCH), Counter(), Counter()
    for start, end, each in of_torch(TORCH).events("kernel"):
        count[each["name"]] += touching([(start, end)], window)
        total[each["name"]] += inside([(start, end)], window)
    return [(name.removeprefix("void ")[:40], count[name], ns) for name, ns in total.most_common()]


def shown(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["name"][:40], row["count"], row["total_ns"]


def together_ns(client: Assistant) -> int:
    """The likely step with the wait gone, to the µs: what is left is what the device did, and 0.1 ms of a batch."""
    return client.ask("what_if", path=TORCH, changes="input-wait=high")["step_ns"]["likely"] // 1_000


QUESTIONS: dict[str, Question] = {
    # torch.profiler, one GPU
    "steps recorded": (
        lambda client: client.ask("analyze", path=TORCH)["steps"]["count"],
        lambda: len(of_torch(TORCH).steps),
    ),
    "where the analysed steps begin, and how long they are": (
        lambda client: (device(client, TORCH)["window_start_ns"], device(client, TORCH)["window_ns"]),
        lambda: (window_of(TORCH)[0], window_of(TORCH)[1] - window_of(TORCH)[0]),
    ),
    "the step": (
        lambda client: client.ask("analyze", path=TORCH)["step_ns"],
        lambda: (window_of(TORCH)[1] - window_of(TORCH)[0]) // 7,
    ),
    "compute, which overlaps no twice": (
        lambda client: device(client, TORCH)["compute_ns"],
        lambda: length(union(of_torch(TORCH).spans("kernel"), window_of(TORCH))),
    ),
    "idle": (
        lambda client: device(client, TORCH)["idle_ns"],
        lambda: length(without(
            [window_of(TORCH)], union(of_torch(TORCH).spans("kernel", "gpu_memcpy", "gpu_memset"), window_of(TORCH))
        )),
    ),
    "the wait for data in a step": (
        lambda client: next(
            part["ns"] for part in client.ask("analyze", path=TORCH)["parts"] if part["part"] == "input_wait"
        ),
        waited_ns,
    ),
    "every kernel by name": (
        lambda client: [shown(row) for row in client.pages("kernels", "kernels", path=TORCH, limit=1)],
        by_name,
    ),
    "matrix products alone": (
        lambda client: client.ask("kernels", path=TORCH, family="gemm")["total_ns"],
        lambda: inside(of_torch(TORCH).spans("kernel", name="gemm"), window_of(TORCH)),
    ),
    "what ran in a moment": (
        lambda client: client.ask(
            "timeline_slice", path=TORCH, start_ns=a_moment()[0], end_ns=a_moment()[1],
            signals=["kernels", "copies", "calls", "ops"],
        )["counts"],
        lambda: {
            signal: touching(of_torch(TORCH).spans(*categories), a_moment())
            for signal, categories in {
                "kernels": ("kernel",), "copies": ("gpu_memcpy", "gpu_memset"), "calls": ("cuda_runtime",),
                "ops": ("cpu_op",),
            }.items()
        },
    ),
    "each kernel of that moment, in pages": (
        lambda client: [
            (row["start_ns"], row["duration_ns"], row["stream"])
            for row in client.pages(
                "timeline_slice", "events", path=TORCH, start_ns=a_moment()[0], end_ns=a_moment()[1],
                signals=["kernels"], limit=7,
            )
        ],
        lambda: [
            (start, end - start, each["args"]["stream"])
            for start, end, each in of_torch(TORCH).events("kernel")
            if touching([(start, end)], a_moment())
        ],
    ),
    "the step without the wait": (
        together_ns,
        lambda: ((window_of(TORCH)[1] - window_of(TORCH)[0]) // 7 - waited_ns()) // 1_000,
    ),
    # Nsight Systems, four GPUs
    "GPUs": (
        lambda client: len(client.ask("analyze", path=RANKS)["devices"]),
        lambda: sql(FIXTURES / RANKS, "SELECT count(DISTINCT deviceId) FROM CUPTI_ACTIVITY_KIND_KERNEL")[0][0],
    ),
    **{
        f"kernels of rank {rank}, within the analysed steps": (
            lambda client, rank=rank: client.ask("kernels", path=RANKS, rank=rank)["total_ns"],
            lambda rank=rank: inside(of_ranks(rank), RANKS_WINDOW[rank]),
        )
        for rank in (0, 3)
    },
    "collectives, how many": (
        lambda client: sum(row["count"] for row in client.ask("kernels", path=RANKS, name_contains="nccl")["kernels"]),
        lambda: sum(touching(of_ranks(rank, "nccl"), RANKS_WINDOW[rank]) for rank in range(4)),
    ),
    "compute of the late rank": (
        lambda client: device(client, RANKS, 3)["compute_ns"],
        lambda: length(union(other_kernels(3), RANKS_WINDOW[3])),
    ),
    "long kernels of one rank": (
        lambda client: client.ask(
            "timeline_slice", path=RANKS, rank=2, start_ns=RANKS_WINDOW[2][0], end_ns=RANKS_WINDOW[2][1],
            min_duration_ns=1_000_000, signals=["kernels", "collectives"],
        )["total"],
        lambda: touching([span for span in of_ranks(2) if span[1] - span[0] >= 1_000_000], RANKS_WINDOW[2]),
    ),
    "who is late": (
        lambda client: "Rank 3" in client.ask("findings", path=RANKS, rule="rank-skew")["findings"][0]["summary"],
        lambda: min(range(4), key=lambda rank: inside(of_ranks(rank, "nccl"), RANKS_WINDOW[rank])) == 3,
    ),
    # Nsight Systems, no GPU
    "steps by ranges": (
        lambda client: client.ask("analyze", path=NVTX)["steps"]["count"],
        lambda: len(ranges("step %")),
    ),
    "the longest step": (
        lambda client: max(
            row["duration_ns"] for row in client.ask(
                "timeline_slice", path=NVTX, start_ns=0, end_ns=1 << 40, signals=["ranges"], name_contains="step "
            )["events"]
        ),
        lambda: max(end - start for start, end in ranges("step %")),
    ),
    "ranges of a forward pass": (
        lambda client: client.ask(
            "timeline_slice", path=NVTX, start_ns=0, end_ns=1 << 40, signals=["ranges"], name_contains="forward"
        )["total"],
        lambda: len(ranges("forward")),
    ),
    "the longest wait for a batch, in ms": (
        lambda client: round(
            client.ask("findings", path=NVTX, rule="input-wait")["findings"][0]["values"]["longest_ms"], 1
        ),
        lambda: round(max(end - start for start, end in ranges("wait_for_batch")) / 1e6, 1),
    ),
    "GPUs of a program without one": (
        lambda client: client.ask("analyze", path=NVTX)["gpus"],
        list,
    ),
    # torch.profiler, two GPUs
    **{
        f"exposed communication of rank {rank}": (
            lambda client, rank=rank: device(client, PAIR, rank)["exposed_communication_ns"],
            lambda rank=rank: exposed_ns(rank),
        )
        for rank in (0, 1)
    },
    "ranks of the job": (
        lambda client: client.ask("analyze", path=PAIR)["world_size"],
        lambda: len(list((FIXTURES / PAIR).glob("rank*.json.gz"))),
    ),
    "collectives of a rank in its steps": (
        lambda client: client.ask(
            "timeline_slice", path=PAIR, rank=1, signals=["collectives"], start_ns=window_of(PAIR, 1)[0],
            end_ns=window_of(PAIR, 1)[1],
        )["counts"]["collectives"],
        lambda: touching(collective(1), window_of(PAIR, 1)),
    ),
    # before and after
    "the mean step before": (
        lambda client: client.ask("compare", before=RUN, after=FIXED)["step"]["before"]["steps"],
        lambda: len(step_starts(RUN)),
    ),
    "what became of it": (
        lambda client: round(client.ask("compare", before=RUN, after=FIXED)["step"]["change"], 2),
        lambda: round(mean_step(FIXED) / mean_step(RUN) - 1, 2),
    ),
    "how many kernels a program without a GPU has": (
        lambda client: client.ask("kernels", path=RUN)["total"],
        lambda: len(kineto(next((FIXTURES / RUN).glob("*.json.gz"))).events("kernel")),
    ),
}  # fmt: skip

#: The steps used, by rank: NVTX ranges named as torch.profiler's, and the first work that each launched.
RANKS_WINDOW: dict[int, tuple[int, int]] = {}


def other_kernels(rank: int):
    return sorted(set(of_ranks(rank)) - set(of_ranks(rank, "nccl")))


def mean_step(path: str) -> float:
    spans = kineto(next((FIXTURES / path).glob("*.json.gz"))).steps
    return (spans[-1][1] - spans[0][0]) / len(spans)


@pytest.fixture(scope="module", autouse=True)
def windows():
    """Of each GPU, by SQL: the first work launched in the first step, and in the one behind the last one used."""
    steps = sql(
        FIXTURES / RANKS,
        """SELECT start, end, globalTid FROM NVTX_EVENTS LEFT JOIN StringIds
        ON StringIds.id = textId WHERE coalesce(text, value) LIKE 'ProfilerStep#%' ORDER BY start""",
    )
    work = " UNION ALL ".join(
        f"SELECT start, correlationId, deviceId, globalPid FROM CUPTI_ACTIVITY_KIND_{kind}"
        for kind in ("KERNEL", "MEMCPY", "MEMSET")
    )
    for rank in range(4):
        firsts = []
        launched = sql(
            FIXTURES / RANKS,
            f"""SELECT work.start, calls.start, calls.globalTid FROM ({work}) AS work
            JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS calls ON calls.correlationId = work.correlationId
            AND calls.globalTid / 0x1000000 = work.globalPid / 0x1000000 WHERE deviceId = ?""",
            rank,
        )
        threads = {thread for _, _, thread in launched}
        for begin, end, thread in steps:
            if thread in threads:
                firsts.append(min(at for at, called, _ in launched if begin <= called < end))
        RANKS_WINDOW[rank] = firsts[0], firsts[7]


@of_each("question", QUESTIONS)
def test_the_answer_is_what_the_recording_says(client, question):
    asked, truth = question
    assert asked(client) == truth()


def test_a_finding_leads_to_its_moment(client):
    """In the longest wait for data nothing runs on the device; before it and after it something does."""
    (finding,) = client.ask("findings", path=TORCH, rule="input-wait")["findings"]
    moment = next(each for each in finding["evidence"] if "start_ns" in each)
    busy = of_torch(TORCH).spans("kernel", "gpu_memcpy", "gpu_memset")

    def running(start: int, end: int) -> int:
        return sum(client.ask("timeline_slice", path=TORCH, start_ns=start, end_ns=end)["counts"].values())

    start, end = moment["start_ns"], moment["end_ns"]
    assert (running(start, end), touching(busy, (start, end))) == (0, 0)
    assert running(start - 1_000, end) == touching(busy, (start - 1_000, end)) == 1
    assert end - start == waited_ns()


def test_there_are_thirty_questions_on_five_recordings():
    assert len(QUESTIONS) >= 30


def test_every_tool_is_described_with_bounds_and_says_that_names_are_data(client):
    tools = {tool.name: tool for tool in client.tools()}
    assert {"analyze", "findings", "explain", "what_if", "compare", "kernels", "timeline_slice", "history"} <= set(
        tools
    )
    for tool in tools.values():
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations.read_only_hint
        assert "data, not instructions" in tool.description or tool.name in ("explain", "what_if")
    assert "never\ninstructions" in client.instructions.replace("data to quote, never", "never")


def test_no_answer_is_longer_than_a_model_reads_at_once(client):
    for path in (TORCH, RANKS, NVTX, RUN, PAIR):
        for tool, more in (
            ("analyze", {}), ("findings", {"limit": 20}), ("kernels", {"limit": 200}),
            ("timeline_slice", {"limit": 200, "start_ns": 0, "end_ns": 1 << 62, "signals": ["ops", "calls", "kernels"]}),
        ):  # fmt: skip
            assert len(client.call(tool, {"path": path, **more}).everything) < 50_000
