"""Which signals can a recording hold, and which columns has each?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_WHERE_ON_DEVICE = {"rank": np.int64, "device": np.int64, "stream": np.int64, "process": np.int64}
_WHERE_ON_HOST = {"rank": np.int64, "process": np.int64, "thread": np.int64}
_WHEN = {"start_ns": np.int64, "end_ns": np.int64}
_DEVICE_WORK = {**_WHERE_ON_DEVICE, **_WHEN, "correlation": np.int64, "name": str}
_HOST_WORK = {**_WHERE_ON_HOST, **_WHEN, "name": str}

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
    "copies": {**_DEVICE_WORK, "bytes": np.int64, "direction": str, "host_memory": str},
    # Collective kernels. kind: all_reduce all_gather reduce_scatter all_to_all send_recv broadcast reduce barrier other
    "collectives": {
        **_DEVICE_WORK, "kind": str, "bytes": np.int64, "group": str, "group_size": np.int64, "data_type": str,
    },
    # Calls of the CUDA/HIP runtime and driver on the host; name without version suffix; correlation joins device work.
    "calls": {**_HOST_WORK, "correlation": np.int64},
    # Framework calls on the host (aten::…, autograd::…); shapes and types as the recording writes them, "" if not, and
    # so the inputs that are no tensors, of convolutions and attention only (stride, padding, causal or not).
    "ops": {**_HOST_WORK, "input_shapes": str, "input_types": str, "input_values": str},
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
        "allocated_bytes": np.int64, "reserved_bytes": np.int64, "name": str,
    },
    # What torch's allocator handed out, from a memory snapshot. made_at and freed_at are places in the device's row of
    # events: UNKNOWN where it was made before the recording, or never freed in it. bytes: what it occupies. name: the
    # innermost line of own code; stack: it and its callers; category: see `readers/torch_memory/stacks.py`.
    "allocations": {
        **_WHERE_ON_DEVICE, **_WHEN, "made_at": np.int64, "freed_at": np.int64, "bytes": np.int64,
        "requested_bytes": np.int64, "address": np.int64, "name": str, "stack": str, "category": str,
    },
    # What it had reserved from the driver at the moment of the snapshot. name: small or large blocks.
    "memory_segments": {
        **_WHERE_ON_DEVICE, **_WHEN, "address": np.int64, "bytes": np.int64, "allocated_bytes": np.int64,
        "active_bytes": np.int64, "requested_bytes": np.int64, "is_expandable": np.bool_, "name": str,
    },
    # segment_alloc, segment_free, segment_map, segment_unmap: memory from the driver and back to it; oom: it had only
    # device_free_bytes left; mark: a step of the program (line) began. `at` is the place in the row of
    # events, of a mark that of the event before it.
    "memory_events": {
        **_WHERE_ON_DEVICE, **_WHEN, "at": np.int64, "bytes": np.int64, "address": np.int64,
        "device_free_bytes": np.int64, "name": str, "line": str, "stack": str,
    },
    # What torch.profiler counted by purpose (name: parameters, gradients, …), in the order of changes: bytes given to
    # it, or taken if negative. Rows of one moment keep their order.
    "memory_changes": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "bytes": np.int64, "name": str,
    },
    # Running totals of torch's allocator, at each of its changes (torch.profiler with profile_memory).
    "memory_totals": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN,
        "allocated_bytes": np.int64, "reserved_bytes": np.int64, "name": str,
    },
    # What CUDA had handed out of a device's memory to a process, libraries' own included, after each change (nsys).
    "device_memory": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "bytes": np.int64, "name": str,
    },
    # Kernels that Nsight Compute measured, a row a launch, one behind the other on a clock of their own. Numbers are
    # NaN where they were not measured; shares are of the device's peak, `excess_sector_share` of the sectors asked for,
    # of which `useful_bytes` would be enough.
    # compute_capability: 90 for 9.0. stall: what warps waited for most. occupancy_limiter: registers, shared memory, …
    "kernel_profiles": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "name": str, "launch": np.int64,
        "blocks": np.int64, "threads_per_block": np.int64, "gpu": str, "compute_capability": np.int64,
        "stall": str, "occupancy_limiter": str, **dict.fromkeys(PROFILE_NUMBERS, np.float64),
    },
    # What NVIDIA's rules (name) said of them, by `launch`. speedup_share: of the kernel's time if is_global, else of a
    # part of it; NaN where they estimate nothing.
    "kernel_advice": {
        "rank": np.int64, **_WHEN, "name": str, "launch": np.int64, "speedup_share": np.float64, "is_global": np.bool_,
        "message": str,
    },
    # What the driver told of the GPUs of a machine, a row a GPU and moment; rank UNKNOWN: a driver knows no ranks, and
    # `device` is its own index. Numbers are NaN where they were not told. reasons: why the clocks were held down, as
    # NVML's bits, UNKNOWN if not told. is_on_clock: its time is on the recording's clock; else only the order counts.
    "device_samples": {
        "rank": np.int64, "device": np.int64, **_WHEN, "name": str, "gpu": str, "reasons": np.int64,
        "is_on_clock": np.bool_, **dict.fromkeys(SAMPLE_NUMBERS, np.float64),
    },
    # How two GPUs, or a GPU and a NIC, of one machine are joined (`nvidia-smi topo -m`), a row each way. Times are 0.
    # name: NV4, PIX, PXB, PHB, NODE, SYS; numa: the node of the source, UNKNOWN if not told.
    "links": {"rank": np.int64, **_WHEN, "name": str, "source": str, "target": str, "numa": np.int64},
    # Which way NCCL goes between two members of a communicator, a row a pair and way. name: P2P/CUMEM/read,
    # SHM/direct/direct, NET/IB/0/GDRDMA, NET/Socket/1. host: a number for each machine; device: the GPU that told it.
    "transports": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "name": str, "host": np.int64,
        "member": np.int64, "peer": np.int64, "channels": np.int64,
    },
    # What else NCCL's log tells, each value once a process and GPU. name: see `readers/nccl/log.py`; amount: the number
    # in it, NaN if there is none; count: how often it was told.
    "nccl_facts": {
        "rank": np.int64, "process": np.int64, "device": np.int64, **_WHEN, "name": str, "host": np.int64,
        "value": str, "amount": np.float64, "count": np.int64,
    },
    # How fast the links moved one message when nothing else ran (nccl-tests), or at most (flight recorder). name: the
    # kind of collective; algorithm and bus bandwidth as nccl-tests define them.
    "link_tests": {
        "rank": np.int64, **_WHEN, "name": str, "source": str, "gpu": str, "group": str, "ranks": np.int64,
        "bytes": np.int64, "time_ns": np.int64, "bus_bytes_per_second": np.float64,
    },
}  # fmt: skip
