"""Diagnoses made by hand, one for each case that every report must show."""

from __future__ import annotations

import math

from msgspec.structs import replace

from perfdoctor.hardware.prices import Price
from perfdoctor.records.cost import Cost, FindingCost
from perfdoctor.records.diagnosis import Diagnosis, GpuInfo, SourceInfo
from perfdoctor.records.findings import (
    Advice,
    Fix,
    Measure,
    Outcome,
    Rows,
    Span,
)
from perfdoctor.records.predictions import PredictedStep, Prediction, Scaling
from perfdoctor.records.savings import Bound, Derivation, DerivedInput, Range, Saving
from perfdoctor.records.time_split import KernelRow, StepStats, TimeSplit
from perfdoctor.records.work_done import ModuleCost
from perfdoctor.vocabulary.basis import RECORDING
from perfdoctor.vocabulary.kinds import KERNEL_FAMILIES, MATH_PATHS
from perfdoctor.vocabulary.parts import IDLE_CAUSES

MS = 1_000_000
POISON = "</script><img src=x onerror=alert(1)>[red]kernel[/]\x1b[31m\x1b]0;title\x07\x00\r\n|`*_@all \ud800\u202e"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(T1::Params)"
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, at::native::FillFunctor)"


def split(rank=0, *, device=0, steps=10, compute=0, communication=0, copy=0, hidden=0, scale=1.0, **idle):
    """Times in ms a step."""
    unknown = set(idle) - set(IDLE_CAUSES)
    assert not unknown, unknown
    compute, communication, copy = (round(part * scale * MS) * steps for part in (compute, communication, copy))
    causes = {cause: round(idle.get(cause, 0) * scale * MS) * steps for cause in IDLE_CAUSES}
    window = compute + communication + copy + sum(causes.values())
    hidden_ns = round(hidden * MS) * steps
    return TimeSplit(
        rank=rank,
        device=device,
        window_start_ns=1_000_000_000,
        window_ns=window,
        step_ns=window // steps if steps > 1 else None,
        compute_ns=compute,
        exposed_communication_ns=communication,
        exposed_copy_ns=copy,
        idle_ns=sum(causes.values()),
        communication_ns=communication + hidden_ns,
        hidden_communication_ns=hidden_ns,
        copy_ns=copy,
        kernel_count=12_480,
        idle_causes_ns=causes,
        compute_by_family_ns={family: compute if family == "gemm" else 0 for family in KERNEL_FAMILIES},
        matmul_ns_by_math_path={path: compute if path == "tensor_core" else 0 for path in MATH_PATHS},
    )


def advice(rank, rule, title, summary, saving, base, **more):
    low, likely, high = (round(ms * MS) for ms in saving)
    defaults = {
        "why": "The device computes nothing while it waits.",
        "category": "input",
        "confidence": "high",
        "confidence_because": "Measured on 10 steps from kernels and host calls.",
        "values": {"share": likely / (base * MS)},
        "evidence": (),
        "fixes": (),
        "not_a_problem_when": "The run is a short test on one machine.",
        "references": ("https://pytorch.org/docs/stable/data.html",),
    }
    symptoms = tuple(replace(each, symptom_of=rule) for each in more.pop("symptoms", ()))
    return Advice(
        rank=rank,
        rule=rule,
        title=title,
        summary=summary,
        symptoms=symptoms,
        saving_ns_per_step=Saving(low, likely, high),
        speedup=Range(*(base * MS / (base * MS - ns) for ns in (low, likely, high))),
        **{**defaults, **more},
    )


WORKERS = Fix(
    "Load batches in more worker processes",
    "Start worker processes, and keep them between epochs:\n\n```python\n"
    "loader = DataLoader(\n    dataset,\n    batch_size=64,\n    num_workers=8,\n"
    "    persistent_workers=True,\n    pin_memory=True,\n)\n```\n\n"
    "Raise `num_workers` until the wait is gone or the CPU is full.",
    "minutes",
    changes_numerics=False,
)
DECODE = Fix(
    "Decode and resize the images once, before the training",
    "    python prepare.py --size 256 --out train-256/\n",
    "hours",
    changes_numerics=True,
)

DERIVATION = Derivation(
    formula="exposed_ms × (1 − 1 ÷ pinned_speedup)",
    low="0.5 × exposed_ms × (1 − 1 ÷ pinned_speedup)",
    high="exposed_ms",
    formula_source="",
    inputs=(
        DerivedInput("exposed_ms", 9.6, "ms", "recording", "copies with no kernel beside them, a step"),
        DerivedInput("pinned_speedup", 2.5, "times", "rule", "Pinned memory is copied two to three times as fast."),
        DerivedInput(
            "link_gb_per_second", None, "GB/s", "data-sheet", "the link to the host", "NVIDIA H100: data sheet"
        ),
    ),
    expected=Saving(round(2.88 * MS), round(5.76 * MS), round(9.6 * MS)),
    bounds=(Bound("replay", Saving(round(3 * MS), round(6.1 * MS), round(8 * MS))),),
)
INPUT_SYMPTOM = advice(
    2,
    "pageable-copies",
    "Copies from pageable (unpinned) host memory",
    "10 copies of 38.5 MiB run at 4.1 GB/s from pageable memory.",
    (3, 6.1, 8),
    701,
    category="copies",
    confidence="medium",
    derivation=DERIVATION,
)
INPUT_BOUND = Diagnosis(
    sources=(SourceInfo("kineto", "rank0.pt.trace.json.gz", "2.8.0", (0,)),),
    gpus=(GpuInfo(0, 0, "NVIDIA H100 80GB HBM3", known_peaks=True),),
    world_size=1,
    steps=StepStats(12, 10, 701 * MS, 698 * MS, 722 * MS, "profiler-step", "high"),
    time=(split(compute=231, copy=9.4, input_wait=434, host_sync=18.2, launch_bound=5.1, unknown=3.3),),
    recording=(split(compute=231, copy=9.4, input_wait=434, host_sync=18.2, launch_bound=5.1, unknown=3.3),),
    kernels=(
        KernelRow(GEMM, "gemm", "tensor_core", 1920, 1_420 * MS, 739_583),
        KernelRow(COPY, "elementwise", "unknown", 8160, 402 * MS, 49_264),
        KernelRow("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_nn", "gemm", "tensor_core", 960, 211 * MS, 219_791),
    ),
    outcomes=(
        Outcome("input-wait", "found"),
        Outcome("pageable-copies", "found"),
        Outcome("host-syncs", "found"),
        Outcome("launch-bound", "clear"),
        Outcome("fp32-matmuls", "clear"),
        Outcome("small-kernels", "clear"),
        Outcome("exposed-communication", "skipped", ("collectives",)),
        Outcome("rank-skew", "skipped", ("collectives",)),
        Outcome("device-throttling", "skipped", ("device_samples",)),
    ),
    findings=(
        advice(
            1,
            "input-wait",
            "Training waits for data (input-bound)",
            "434.0 ms of a 701.0 ms step pass while the training waits for its next batch.",
            (330, 431, 441),
            701,
            symptoms=(INPUT_SYMPTOM,),
            fixes=(WORKERS, DECODE),
            evidence=(
                Measure("waiting for the next batch", 434 * MS, "ns"),
                Measure("share of the step", 0.619, "share"),
                Rows(
                    "longest waits",
                    ("step", "wait", "what the thread did"),
                    ("count", "ns", "text"),
                    ((7, 512 * MS, "DataLoader.__next__"), (3, 455 * MS, "DataLoader.__next__"), (9, 431 * MS, "next")),
                ),
                Span("longest wait", 0, 4_401 * MS, 4_913 * MS),
            ),
        ),
        advice(
            3,
            "host-syncs",
            "GPU idle after host syncs (blocking CUDA calls)",
            "12 calls a step wait for the GPU, and 18.2 ms pass before it has work again.",
            (6, 17.5, 18.2),
            701,
            category="host",
            confidence="medium",
            fixes=(
                Fix(
                    "Read the loss only when it is printed",
                    "```python\nif step % 100 == 0:\n    log(loss.item())\n```",
                    "minutes",
                    changes_numerics=False,
                ),
            ),
            evidence=(Measure("blocking calls a step", 12, "count"), Measure("copied a step", 1536, "bytes")),
        ),
    ),
    prediction=Prediction(
        fixed=("input-wait", "host-syncs"),
        step_ns=Range(240 * MS, 252 * MS, 351 * MS),
        speedup=Range(2.0, 2.8, 2.9),
        recorded_ns=701 * MS,
        steps=(PredictedStep("input-wait", 270 * MS), PredictedStep("host-syncs", 252 * MS)),
        replay_error=0.001,
    ),
    notes=("2 steps at the start were left out: they are longer than 1.5 times the median.",),
    base_ns=701 * MS,
)


ASKED = replace(
    INPUT_BOUND,
    prediction=Prediction(
        fixed=("input-wait",),
        step_ns=Range(486 * MS, 486 * MS, 486 * MS),
        speedup=Range(1.44, 1.44, 1.44),
        recorded_ns=701 * MS,
        steps=(PredictedStep("input-wait", 486 * MS, "50%"),),
        replay_error=-0.0004,
        asked=True,
    ),
)


#: A question with a fix and other sizes: the step gets longer, and has more samples.
LARGER = replace(
    INPUT_BOUND,
    prediction=Prediction(
        fixed=("input-wait", "batch", "ranks"),
        step_ns=Range(480 * MS, 500 * MS, 560 * MS),
        speedup=Range(20.0, 22.4, 23.4),
        recorded_ns=701 * MS,
        steps=(
            PredictedStep("input-wait", 270 * MS),
            PredictedStep("batch", 450 * MS, "2x", 2.0),
            PredictedStep("ranks", 500 * MS, "64", 16.0),
        ),
        replay_error=0.001,
        asked=True,
        samples=16.0,
        scaling=Scaling(8, 64, Range(0.82, 0.9, 0.95)),
    ),
)


def _rank(rank: int) -> TimeSplit:
    late = rank == 5
    return split(
        rank,
        device=rank,
        compute=268 if late else 231,
        communication=41 if late else 78 - rank % 3,
        hidden=22,
        copy=1.2,
        launch_bound=8 + rank % 3,
        peer_wait=2.4,
        unknown=0.4,
    )


COMMUNICATION = Diagnosis(
    sources=(SourceInfo("nsys", "profile.nsys-rep", "2025.1.1", tuple(range(8))),),
    gpus=tuple(GpuInfo(rank, rank, "NVIDIA A100-SXM4-80GB", known_peaks=True) for rank in range(8)),
    world_size=16,
    steps=StepStats(40, 36, 322 * MS, 319 * MS, 333 * MS, "optimizer-kernels", "medium"),
    time=tuple(_rank(rank) for rank in range(8)),
    recording=tuple(_rank(rank) for rank in range(8)),
    kernels=(KernelRow(GEMM, "gemm", "tensor_core", 19_200, 61_420 * MS, 3_198_958),),
    outcomes=(
        Outcome("exposed-communication", "found"),
        Outcome("rank-skew", "found"),
        Outcome("small-collectives", "found"),
        Outcome("input-wait", "clear"),
        Outcome("host-syncs", "skipped", ("calls", "ranges")),
        Outcome("recompilation", "failed", (), "ZeroDivisionError: division by zero"),
    ),
    findings=(
        advice(
            1,
            "exposed-communication",
            "Collectives not overlapped with compute",
            "73.4 ms of a 322.0 ms step wait for collectives while no compute kernel runs.",
            (40, 61, 73),
            322,
            category="communication",
            fixes=(
                Fix(
                    "Start each gradient bucket's all-reduce as soon as it is full",
                    "```python\nmodel = DDP(model, bucket_cap_mb=50, gradient_as_bucket_view=True)\n```",
                    "minutes",
                    changes_numerics=False,
                ),
            ),
            symptoms=(
                advice(
                    2,
                    "small-collectives",
                    "Many small collectives (latency-bound)",
                    "412 all-reduces a step move 64.0 KiB or less.",
                    (2, 9.2, 14),
                    322,
                    category="communication",
                ),
            ),
            evidence=(
                Measure("bus bandwidth", 87.4e9, "bytes_per_second"),
                Rows(
                    "largest exposed collectives",
                    ("collective", "bytes", "exposed a step", "bus bandwidth", "share"),
                    ("text", "bytes", "ns", "bytes_per_second", "share"),
                    (
                        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 52_428_800, 41 * MS, 87.4e9, 0.127),
                        ("ncclDevKernel_AllGather_RING_LL", 8_388_608, 12 * MS, 41.0e9, 0.037),
                    ),
                ),
            ),
        ),
        advice(
            3,
            "rank-skew",
            "Straggler: ranks wait for a late rank",
            "Rank 5 arrives 37.0 ms later than the median at each step's first collective.",
            (20, 33, 37),
            322,
            category="communication",
            confidence="low",
        ),
    ),
    prediction=None,
    notes=("Only the ranks of one of two machines were recorded.",),
    base_ns=322 * MS,
)
HEALTHY = replace(
    INPUT_BOUND,
    steps=StepStats(40, 38, 212 * MS, 210 * MS, 215 * MS, "profiler-step", "high"),
    time=(split(compute=203, copy=1.1, launch_bound=5.1, unknown=2.8),),
    outcomes=tuple(Outcome(outcome.rule, "clear") for outcome in INPUT_BOUND.outcomes),
    findings=(),
    prediction=None,
    notes=(),
    base_ns=212 * MS,
)
GROWING = replace(
    HEALTHY,
    outcomes=(*HEALTHY.outcomes, Outcome("memory-growth", "found")),
    findings=(
        advice(
            1,
            "memory-growth",
            "Memory leak: memory grows with every step",
            "Memory on the GPU rises by 4.2 MiB a step, to 61,200 MiB held after the recorded ones.",
            (0, 0, 0),
            212,
            category="memory",
            evidence=(Measure("growth a step on rank 0", 4.2 * 2**20, "bytes"),),
        ),
    ),
)
NO_STEPS = replace(
    HEALTHY,
    gpus=(),
    steps=StepStats(),
    time=(split(device=None, steps=1, compute=2_400, storage=1_900, unknown=4_100),),
    outcomes=(Outcome("input-wait", "skipped", ("steps",)), Outcome("blocking-checkpoint", "found")),
    findings=(
        advice(
            1,
            "blocking-checkpoint",
            "Training blocked by file I/O (checkpoint saving or file reads)",
            "1900.0 ms pass while files are written.",
            (900, 1_800, 1_900),
            8_400,
            category="host",
            confidence="low",
        ),
    ),
    notes=("No steps were found: times and savings are for the whole recording.",),
    base_ns=8_400 * MS,
    basis=RECORDING,
)
NOTHING = Diagnosis(
    sources=(SourceInfo("nsys", POISON, POISON, ()),),
    gpus=(),
    world_size=0,
    steps=StepStats(),
    time=(),
    recording=(),
    kernels=(),
    outcomes=tuple(
        Outcome(rule, "skipped", ("kernels", "steps")) for rule in ("input-wait", "host-syncs", "rank-skew")
    ),
    findings=(),
    prediction=None,
    notes=("This capture has no kernels: record with --trace=cuda,nvtx.",),
)
COSTED = replace(
    INPUT_BOUND,
    cost=Cost(
        Price(3.99, "USD", "NVIDIA H100 SXM", "A provider", "2026-11-09"), 8, 1, 0.0062, 0.4, "tokens", 0.9, 101.5,
        23_300.0, Range(8_000.0, 14_400.0, 14_700.0),
        (FindingCost("input-wait", Range(8_000.0, 14_400.0, 14_700.0)),),
    ),
)  # fmt: skip
POISONED = replace(
    INPUT_BOUND,
    cost=Cost(Price(1e-9, POISON, POISON, POISON, POISON), 1, 1, math.inf, 1.0, POISON, math.nan, 1.0, 1e300, None, ()),
    sources=(SourceInfo("kineto", POISON, POISON, (0,)),),
    gpus=(GpuInfo(0, 0, POISON, known_peaks=False),),
    kernels=(
        KernelRow(POISON, POISON, POISON, 1, 40 * MS, 40 * MS),
        KernelRow("k" * 5_000, "other", "unknown", 1, 1, 1),
        KernelRow("[/]" + "x<4, at::native::" * 300, "other", "unknown", 3, 7, 2),
    ),
    outcomes=(
        Outcome("input-wait", "found"),
        Outcome("host-syncs", "clear"),
        Outcome("rank-skew", "skipped", (POISON,)),
        Outcome("recompilation", "failed", (), POISON),
    ),
    findings=(
        advice(
            1,
            "input-wait",
            POISON,
            f"{POISON} {'s' * 5_000}",
            (330, 431, 441),
            701,
            why=POISON,
            not_a_problem_when=POISON,
            references=("javascript:alert(1)", POISON, "https://example.org/?a=1&b=<2>"),
            values={POISON: POISON, "nan": float("nan"), "infinite": float("inf")},
            symptoms=(advice(2, "host-syncs", POISON, POISON, (0, 0, 0), 701),),
            fixes=(Fix(POISON, f"```\n{POISON}\n```\n{POISON}", "days", changes_numerics=True),),
            evidence=(
                Measure(POISON, float("nan"), "ns"),
                Rows(POISON, (POISON, "n"), ("text", "count"), ((POISON, float("inf")), ("y" * 5_000, 3))),
                Span(POISON, 0, 0, 1),
            ),
            derivation=replace(DERIVATION, inputs=(DerivedInput("a", 1.0, "ms", "measured", "what", POISON),)),
        ),
        *(advice(n, f"rule-{n}", f"Finding {n}", "It costs time.", (0, 9 - n, 9), 701) for n in range(3, 9)),
    ),
    prediction=Prediction(
        fixed=(POISON, "w" * 5_000),
        step_ns=Range(0, 0, 701 * MS),
        speedup=Range(1.0, 1.0, 1.0),
        recorded_ns=701 * MS,
        steps=(PredictedStep(POISON, 701 * MS, POISON), PredictedStep("w" * 5_000, 0, "[red]")),
        asked=True,
    ),
    notes=(POISON, "z" * 5_000),
    modules=(
        ModuleCost(f"Net.{POISON}", POISON, 1, 1.0, *[30e6] * 6, math.inf, *[0.0] * 4),
        ModuleCost("", "", 0, 0.0, *[40e6] * 6, None, *[1.5] * 4),
    ),
)
SAMPLES = {
    "input_bound": INPUT_BOUND,
    "asked": ASKED,
    "costed": COSTED,
    "larger": LARGER,
    "communication": COMMUNICATION,
    "healthy": HEALTHY,
    "growing": GROWING,
    "no_steps": NO_STEPS,
    "nothing": NOTHING,
    "poisoned": POISONED,
}
