"""Which signals can a recording hold: which columns has each, what is it called, and how is it recorded?

Also what a rule may need that is no signal but follows from several: steps, places, ranks. Plain Python, so that
`perfdoctor explain` need not wait for numpy: `int`, `float` and `bool` stand for 64-bit numbers and flags.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

_WHERE_ON_DEVICE = {"rank": int, "device": int, "stream": int, "process": int}
_WHERE_ON_HOST = {"rank": int, "process": int, "thread": int}
_WHEN = {"start_ns": int, "end_ns": int}
_DEVICE_WORK = {**_WHERE_ON_DEVICE, **_WHEN, "correlation": int, "name": str}
_HOST_WORK = {**_WHERE_ON_HOST, **_WHEN, "name": str}
_OF_PROCESS = {"rank": int, "process": int, "device": int, **_WHEN}

#: What Nsight Compute measures of a kernel: the float columns of `kernel_profiles`.
PROFILE_NUMBERS = (
    "gpu_time_ns", "sm_share", "memory_share", "dram_share", "l2_share", "l1_share", "tensor_share", "occupancy_share",
    "occupancy_limit_share", "waves_per_sm", "sm_count", "registers_per_thread", "sm_clock_hz", "memory_clock_hz",
    "dram_bytes", "flop", "excess_sector_share", "useful_bytes", "stall_share",
)  # fmt: skip

#: What a GPU reported at one moment: the float columns of `device_samples`. Rates are one way, shares 0 to 1.
SAMPLE_NUMBERS = (
    "power_w", "power_limit_w", "default_power_limit_w", "sm_clock_mhz", "max_sm_clock_mhz", "application_clock_mhz",
    "memory_clock_mhz", "temperature_c", "utilization_share", "memory_utilization_share", "memory_used_bytes",
    "memory_total_bytes", "pcie_generation", "max_pcie_generation", "pcie_width", "max_pcie_width",
    "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second", "nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second",
    "processes", "sm_active_share", "tensor_active_share", "dram_active_share", "power_violation_share",
)  # fmt: skip

#: What the processor's cores did between two samples: the float columns of `cpu_samples`. Cores are means over that
#: time. The program's: of the recorded command and its children; the recorder's: of perfdoctor and its tool.
CPU_NUMBERS = (
    "cores", "allowed_cores", "busy_cores", "idle_cores", "steal_cores", "program_cores", "recorder_cores",
    "waiting_threads", "runnable", "pressure_share", "throttled_share", "program_processes", "program_threads",
    "program_runnable",
)  # fmt: skip

#: What a training process used of the processor over its recorded steps: the float columns of `cpu_processes`.
#: `thread_`: of the thread that trains alone. delay: waited for a core, ready to run, summed over threads.
CPU_USE_NUMBERS = (
    "cpu_ns", "delay_ns", "voluntary_switches", "involuntary_switches", "thread_cpu_ns", "thread_delay_ns",
    "thread_involuntary_switches", "threads", "torch_threads", "interop_threads", "allowed_cores",
)  # fmt: skip

_ON_A_GPU = "record on a GPU: `perfdoctor run`, or nsys with --trace=cuda"
_A_TRAINING = "record the training itself: `perfdoctor run -- python train.py`"
_A_SNAPSHOT = "write a snapshot: torch.cuda.memory._record_memory_history(), then _dump_snapshot()"
_NSIGHT_COMPUTE = "record with `perfdoctor run --passes nsys,ncu`, or analyse a .ncu-rep together with the trace"
_NCCL_LOG = "analyse a log written with NCCL_DEBUG=INFO together with the trace"


class Need(Struct, frozen=True):
    """What a rule may need. `label` fits "rules without …" and "measured from …"; `hint` says how to record it."""

    label: str
    hint: str


class Signal(Need, frozen=True):
    """One frame of a Timeline: `columns` by name, with `int`, `float`, `bool` or `str`.

    `has_time`: do its rows say when in the run they happened? `of_machine`: it describes a machine and belongs to no
    rank. `of_gpu`: no program has it without a GPU. `track`: its word in the titles of the timeline's tracks, ""
    where it has none.
    """

    columns: Mapping[str, type]
    has_time: bool = True
    of_machine: bool = False
    of_gpu: bool = False
    track: str = ""


#: Every signal. `UNKNOWN` stands where a recording does not give a number, "" where it gives no text.
SIGNALS: Mapping[str, Signal] = {
    # Executions on the device that are not collectives. `is_graph`: the row is one launch of a whole CUDA graph.
    "kernels": Signal(
        "kernels",
        _ON_A_GPU,
        {**_DEVICE_WORK, "blocks": int, "threads_per_block": int, "is_graph": bool},
        track="kernels",
        of_gpu=True,
    ),
    # memcpy and memset; direction: see `kinds.COPY_DIRECTIONS`, host_memory: see `kinds.HOST_MEMORY`.
    "copies": Signal(
        "copies",
        _ON_A_GPU,
        {**_DEVICE_WORK, "bytes": int, "direction": str, "host_memory": str},
        track="copies",
        of_gpu=True,
    ),
    # Collective kernels; kind: see `kinds.COLLECTIVE_KINDS`. bytes: the larger of what a rank sends and
    # receives. blocks: of the kernel's grid, each of which takes an SM.
    "collectives": Signal(
        "collectives",
        "record a training of several ranks",
        {
            **_DEVICE_WORK, "kind": str, "bytes": int, "sent_bytes": int, "group": str, "group_size": int,
            "data_type": str, "blocks": int,
        },
        track="collectives",
    ),
    # Calls of the CUDA/HIP runtime and driver on the host; name without version suffix; correlation joins device work.
    "calls": Signal(
        "host calls",
        "record on a GPU with nsys --trace=cuda, or torch.profiler with the CUDA activity",
        {**_HOST_WORK, "correlation": int},
        track="CUDA calls",
        of_gpu=True,
    ),
    # Framework calls on the host (aten::…, autograd::…); shapes and types as the recording writes them, "" if not, and
    # so the inputs that are no tensors, of convolutions and attention only (stride, padding, causal or not).
    "ops": Signal(
        "framework ops",
        "record with `perfdoctor run`, or torch.profiler with the CPU activity",
        {**_HOST_WORK, "input_shapes": str, "input_types": str, "input_values": str},
        track="ops",
    ),
    # User annotations and NVTX ranges on the host.
    "ranges": Signal(
        "ranges",
        "record with `perfdoctor run`, or nsys with --trace=nvtx and ranges in the program",
        _HOST_WORK,
        track="ranges",
    ),
    # Python functions, where stacks were recorded.
    "functions": Signal("Python stacks", "record with torch.profiler and with_stack=True", _HOST_WORK, track="Python"),
    # Modules of the model: a row for each forward and, `is_backward`, for each node of the backward pass that it made.
    # name: the path from the outermost module, of which the class stands for its name (`GPT.layers.7.attn`).
    "modules": Signal(
        "modules of the model",
        "record with `perfdoctor run`, or torch.profiler with with_stack=True",
        {**_HOST_WORK, "module_class": str, "is_backward": bool},
    ),
    # Python stacks, sampled from outside: a row for each time in which all samples of a thread showed the same stack.
    # name: the innermost line of the user's own, `file(line): function`, "" without one (of a loader's worker: in what
    # fetches a sample, or what that called first); stack: all of it, outermost first, a line each. training: the
    # process whose steps it belongs to, which is the loader worker's parent. Not is_on_clock: when is not known, only
    # how often.
    "stack_samples": Signal(
        "sampled Python stacks",
        "record with `perfdoctor run` where py-spy is installed",
        {**_HOST_WORK, "stack": str, "training": int, "samples": int,
         **dict.fromkeys(("is_worker", "is_main", "is_on_clock"), bool)},
        has_time=False,
    ),
    # Calls of the operating system's runtime (read, poll, pthread_cond_wait, …).
    "os_calls": Signal("operating-system calls", "record with nsys --trace=osrt", _HOST_WORK, track="system calls"),
    # Stretches that the profiler itself took (flushing, buffer requests), and where the driver loaded code or its queue
    # of launches was full. thread UNKNOWN: not known.
    "overheads": Signal("profiler overhead events", "record with torch.profiler", _HOST_WORK),
    # Where a stream was made to wait for an event: what is launched on it behind that waits, too. awaited_stream: on
    # which the event was recorded, UNKNOWN where that is not known. The correlation is that of the call.
    "stream_waits": Signal(
        "waits of streams for events",
        "record with `perfdoctor run`, or torch.profiler and enable_cuda_sync_events=True",
        {**_DEVICE_WORK, "awaited_stream": int},
        of_gpu=True,
    ),
    # What a process held at the end of a recorded step; both times are that moment. name: cuda (what torch allocated
    # and reserved on its device) or heap (what malloc had handed out, and the resident set; device UNKNOWN).
    "memory": Signal(
        "memory samples",
        "record with `perfdoctor run`",
        {**_OF_PROCESS, "allocated_bytes": int, "reserved_bytes": int, "name": str},
    ),
    # What torch's allocator handed out, from a memory snapshot. made_at and freed_at are places in the device's row of
    # events: UNKNOWN where it was made before the recording, or never freed in it. bytes: what it occupies. name: the
    # innermost line of own code; stack: it and its callers; category: see `kinds.MEMORY_KINDS`.
    "allocations": Signal(
        "allocations of a memory snapshot",
        _A_SNAPSHOT,
        {
            **_WHERE_ON_DEVICE, **_WHEN, "made_at": int, "freed_at": int, "bytes": int, "requested_bytes": int,
            "address": int, "name": str, "stack": str, "category": str,
        },
        has_time=False,
        of_gpu=True,
    ),
    # What it had reserved from the driver at the moment of the snapshot. name: small or large blocks.
    "memory_segments": Signal(
        "the allocator's segments",
        _A_SNAPSHOT,
        {
            **_WHERE_ON_DEVICE, **_WHEN, "address": int, "bytes": int, "allocated_bytes": int, "active_bytes": int,
            "requested_bytes": int, "is_expandable": bool, "name": str,
        },
        has_time=False,
        of_gpu=True,
    ),
    # segment_alloc, segment_free, segment_map, segment_unmap: memory from the driver and back to it; oom: it had only
    # device_free_bytes left; mark: a step of the program (line) began. `at` is the place in the row of
    # events, of a mark that of the event before it.
    "memory_events": Signal(
        "the allocator's events",
        _A_SNAPSHOT,
        {
            **_WHERE_ON_DEVICE, **_WHEN, "at": int, "bytes": int, "address": int, "device_free_bytes": int,
            "name": str, "line": str, "stack": str,
        },
        has_time=False,
        of_gpu=True,
    ),
    # What torch.profiler counted by purpose (name: parameters, gradients, …), in the order of changes: bytes given to
    # it, or taken if negative. Rows of one moment keep their order.
    "memory_changes": Signal(
        "memory by purpose",
        "analyse the .raw.json.gz of torch.profiler's export_memory_timeline()",
        {**_OF_PROCESS, "bytes": int, "name": str},
    ),
    # Running totals of torch's allocator, at each of its changes (torch.profiler with profile_memory).
    "memory_totals": Signal(
        "the allocator's totals",
        "record with torch.profiler and profile_memory=True",
        {**_OF_PROCESS, "allocated_bytes": int, "reserved_bytes": int, "name": str},
    ),
    # What CUDA had handed out of a device's memory to a process, libraries' own included, after each change (nsys).
    "device_memory": Signal(
        "CUDA memory allocations",
        "record with nsys --cuda-memory-usage=true",
        {**_OF_PROCESS, "bytes": int, "name": str},
        of_gpu=True,
    ),
    # Kernels that Nsight Compute measured, a row a launch, one behind the other on a clock of their own. Numbers are
    # NaN where they were not measured; shares are of the device's peak, `excess_sector_share` of the sectors asked for,
    # of which `useful_bytes` would be enough.
    # compute_capability: 90 for 9.0. stall: what warps waited for most. occupancy_limiter: registers, shared memory, …
    "kernel_profiles": Signal(
        "kernels measured by Nsight Compute",
        _NSIGHT_COMPUTE,
        {
            **_OF_PROCESS, "name": str, "launch": int, "blocks": int, "threads_per_block": int, "gpu": str,
            "compute_capability": int, "stall": str, "occupancy_limiter": str,
            **dict.fromkeys(PROFILE_NUMBERS, float),
        },
        of_gpu=True,
    ),
    # What NVIDIA's rules (name) said of them, by `launch`. speedup_share: of the kernel's time if is_global, else of a
    # part of it; NaN where they estimate nothing.
    "kernel_advice": Signal(
        "advice of Nsight Compute",
        _NSIGHT_COMPUTE,
        {
            "rank": int, **_WHEN, "name": str, "launch": int, "speedup_share": float, "is_global": bool,
            "message": str,
        },
        of_gpu=True,
    ),
    # What the driver reported of the GPUs of a machine, a row a GPU and moment; rank UNKNOWN: a driver knows no ranks,
    # and `device` is its own index. Numbers are NaN where they are not known. reasons: why the clocks were held down,
    # as NVML's bits, UNKNOWN if not known. is_on_clock: its time is on the recording's clock; else only the order
    # counts.
    "device_samples": Signal(
        "samples of the GPUs",
        "record with `perfdoctor run`, or analyse the output of nvidia-smi together with the trace",
        {
            "rank": int, "device": int, **_WHEN, "name": str, "gpu": str, "reasons": int, "is_on_clock": bool,
            **dict.fromkeys(SAMPLE_NUMBERS, float),
        },
        has_time=False,
        of_machine=True,
        of_gpu=True,
    ),
    # What the processor's cores did, a row from each sample to the next; rank UNKNOWN: it is the machine's. Of the
    # cores that the program may use (affinity; allowed_cores also by its control group's quota). waiting_threads: the
    # program's threads that wanted a core and had none, a mean; runnable: the machine's, at the sample;
    # pressure_share: of the time in which any thread of the machine waited. NaN where it is not known.
    "cpu_samples": Signal(
        "samples of the processor",
        "record with `perfdoctor run` on Linux",
        {"rank": int, **_WHEN, "name": str, "is_on_clock": bool, **dict.fromkeys(CPU_NUMBERS, float)},
        has_time=False,
        of_machine=True,
    ),
    # What each training process used of the processor from its first recorded step to its last.
    "cpu_processes": Signal(
        "the processor's use by each process",
        "record with `perfdoctor run` on Linux",
        {"rank": int, "process": int, **_WHEN, "name": str, **dict.fromkeys(CPU_USE_NUMBERS, float)},
        has_time=False,
    ),
    # How two GPUs, or a GPU and a NIC, of one machine are joined (`nvidia-smi topo -m`), a row each way. Times are 0.
    # name: NV4, PIX, PXB, PHB, NODE, SYS; numa: the node of the source, UNKNOWN if not known.
    "links": Signal(
        "the machine's topology",
        "analyse the output of `nvidia-smi topo -m` together with the trace",
        {"rank": int, **_WHEN, "name": str, "source": str, "target": str, "numa": int},
        has_time=False,
        of_machine=True,
        of_gpu=True,
    ),
    # Which way NCCL goes between two members of a communicator, a row a pair and way. name: P2P/CUMEM/read,
    # SHM/direct/direct, NET/IB/0/GDRDMA, NET/Socket/1. host: a number for each machine; device: the GPU that wrote it.
    "transports": Signal(
        "NCCL's log",
        _NCCL_LOG,
        {**_OF_PROCESS, "name": str, "host": int, "member": int, "peer": int, "channels": int},
        has_time=False,
        of_machine=True,
        of_gpu=True,
    ),
    # What else NCCL's log says, each value once a process and GPU. name: see `readers/nccl/log.py`; amount: the number
    # in it, NaN if there is none; count: how often it was written.
    "nccl_facts": Signal(
        "NCCL's log",
        _NCCL_LOG,
        {**_OF_PROCESS, "name": str, "host": int, "value": str, "amount": float, "count": int},
        has_time=False,
        of_machine=True,
        of_gpu=True,
    ),
    # How fast the links moved one message when nothing else ran (nccl-tests), or at most (flight recorder). name: the
    # kind of collective; algorithm and bus bandwidth as nccl-tests define them.
    "link_tests": Signal(
        "measured links",
        "analyse the output of nccl-tests together with the trace",
        {
            "rank": int, **_WHEN, "name": str, "source": str, "gpu": str, "group": str, "ranks": int, "bytes": int,
            "time_ns": int, "bus_bytes_per_second": float,
        },
        has_time=False,
        of_machine=True,
        of_gpu=True,
    ),
}  # fmt: skip

#: What rules need beside signals; `diagnosis/engine.py` finds out whether a run has it.
DERIVED_NEEDS: Mapping[str, Need] = {
    "places": Need("any work to account for", _A_TRAINING),
    "steps": Need("steps", "record at least three whole steps: `perfdoctor run --steps 10`"),
    "ranks": Need("a second rank", "record every rank: `perfdoctor run -- torchrun …`"),
    # What all rules about time lack where only memory or a machine was recorded.
    "time": Need("a timeline", _A_TRAINING),
}

NEEDS: Mapping[str, Need] = {**SIGNALS, **DERIVED_NEEDS}
#: How signals are recorded of a program without PyTorch: nsys records any.
_BY_NSYS = "record with nsys --trace=cuda,nvtx,osrt"
_BY_ANY_TOOL: Mapping[str, str] = {
    "places": "record the program itself: `nsys profile --trace=cuda,nvtx,osrt ./program`",
    "time": "record the program itself: `nsys profile --trace=cuda,nvtx,osrt ./program`",
    "steps": "put an NVTX range around each iteration, and record at least three with nsys --trace=cuda,nvtx",
    "ranks": "record every rank with nsys, and analyse all files together",
    "collectives": "record a run of several ranks",
    "calls": "record with nsys --trace=cuda",
    "ranges": "record with nsys --trace=nvtx and ranges in the program",
    "functions": "record with nsys --python-sampling=true, where the program is Python",
    "memory_totals": "record with nsys --cuda-memory-usage=true",
}
GPU_SIGNALS = frozenset(name for name, signal in SIGNALS.items() if signal.of_gpu)
MACHINE_SIGNALS = tuple(name for name, signal in SIGNALS.items() if signal.of_machine)


def needs_gpu(need: str) -> bool:
    """Can it only be recorded on a GPU, also where collectives of the host would do as well?"""
    choices = set(need.split("|"))
    return bool(choices - {"collectives"}) and choices - {"collectives"} <= GPU_SIGNALS


def hint(need: str, framework: str) -> str:
    """How to record what a rule needs, of a program of this framework: what PyTorch's tools record, others lack."""
    said = NEEDS[need].hint
    if framework in ("torch", "unknown"):
        return said
    return _BY_ANY_TOOL.get(need, _BY_NSYS if "torch" in said else said)


def need_label(need: str) -> str:
    """What a rule needs, in words; `a|b` is met by either of two: `host calls or framework ops`."""
    labels = (NEEDS[each].label if each in NEEDS else each.replace("_", " ") for each in need.split("|"))
    return " or ".join(dict.fromkeys(labels))
