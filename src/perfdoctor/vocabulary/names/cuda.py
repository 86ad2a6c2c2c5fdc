"""Which call of a GPU's runtime or driver is this? What blocks, allocates, loads, waits or replays.

Names are those of the CUDA Runtime and Driver API and of HIP, as CUPTI and roctracer report them, and of oneAPI's
Unified Runtime (`ur…`) and Level Zero (`ze…`), as Intel's PTI does. The readers take their version suffix away
(`cuMemFree_v2`).
"""

from __future__ import annotations

import re

from perfdoctor.patterns import regex

#: Calls that no tool records: the host was found to wait for all work of the device, or for some of it, in none.
INFERRED_WAIT = "inferred wait for the device"
INFERRED_WAIT_FOR_EVENT = "inferred wait for work"
#: Asks whether work is done, and does not wait for it: the caller asks again.
QUERY = regex(r"^(cuda|hip|cu)(Event|Stream)Query")
#: Calls in which the host waits for the device. cudaStreamWaitEvent is none: it makes a stream wait, not the host.
BLOCKING_CALL = regex(
    r"^(cuda|hip)(Device|Stream|Event|Thread)Synchronize|^cu(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|DtoD|Peer|WithStream)?(_ptds|_ptsz)?$|^cuMemcpy(HtoD|DtoH|DtoD)(_v2)?$"
    r"|^ur(EventWait|QueueFinish)$|^ze(EventHost|FenceHost|CommandQueue|CommandListHost)Synchronize"
    r"|^inferred wait "
)
#: Those of them that wait by their purpose, of whatever interface; and those that wait for one event.
SYNCHRONIZES = regex(r"Synchronize|^ur(EventWait|QueueFinish)$|^inferred wait ")
WAITS_FOR_EVENT = regex(r"Event(Host)?Synchronize|^urEventWait$|^inferred wait for work")
#: And those that wait for all streams of a device.
WAITS_FOR_DEVICE = regex(r"^(cuda|hip)(Device|Thread)Synchronize|^cuCtxSynchronize|^inferred wait for the device")
ALLOCATOR_CALL = regex(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|MallocHost|FreeHost|HostFree|HostRegister|HostUnregister|MallocManaged)"
    r"|^cuMem(Alloc|Free|Create|Map|Unmap|SetAccess|Release|AddressReserve|HostAlloc)|^urUSM(Host|Device|Shared)?(Alloc|Free)|^zeMem(Alloc|Free)"
)
#: Of these, the ones that PyTorch makes for a tensor on the device, and those that give such memory back.
ASKS_FOR_MEMORY = regex(r"^(cuda|hip)Malloc(Async|FromPoolAsync)?$|^cuMemAlloc(Async)?$")
GIVES_MEMORY_BACK = regex(r"^(cuda|hip)Free(Async)?$|^cuMemFree(Async)?$")
#: And those that do so only when the device has no work left.
FREE_WAITS = regex(r"^(cuda|hip)(Free|FreeHost|HostFree|HostUnregister)$|^cuMem(Free|FreeHost|HostUnregister)$")
MODULE_LOADING_CALL = regex(
    r"^cu(da)?(ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel|KernelGetFunction|GraphInstantiate)"
    r"|^hip(ModuleLoad|ModuleGetFunction|LibraryLoad|GraphInstantiate)|^(cu|hip)Link(Add|Complete)|^(nv|hip)rtcCompile"
    r"|^ur(Program(Create|Build|Compile|Link)|KernelCreate)|^zeModuleCreate"
)
#: Calls that may last for other reasons than loading code: they wait, copy, allocate, or work on other calls' behalf.
TAKES_ITS_TIME = regex(
    rf"{BLOCKING_CALL.pattern}|{ALLOCATOR_CALL.pattern}|{MODULE_LOADING_CALL.pattern}|Memcpy|Prefetch|Launch|Profiler"
)
#: What CUPTI counts as overhead is the profiler's, but for these: the driver loads or compiles code, and the queue of
#: launches is full, for which the host waits with or without a profiler (CUpti_ActivityOverheadKind).
LOADING_OVERHEAD = regex(
    r"^(Runtime Triggered Module Loading|Lazy Function Loading|Driver (JIT )?Compiler)", re.IGNORECASE
)
QUEUE_FULL_OVERHEAD = regex(r"^Command Buffer Full", re.IGNORECASE)
#: Between these two, launches go into a graph and run nothing.
CAPTURE = tuple(regex(rf"^(cuda|hip|cu)Stream{end}Capture") for end in ("Begin", "End"))
#: A stream waits for an event; the host goes on.
STREAM_WAIT = regex(r"^(cuda|hip|cu)StreamWaitEvent|^urEnqueueEventsWait")
#: Work is launched on a GPU, whatever the interface.
LAUNCH = regex(
    r"^(cu|cuda|hip)(Ext|Module)*(LaunchKernel|LaunchCooperativeKernel|GraphLaunch)|^urEnqueue(Cooperative)?KernelLaunch"
    r"|^zeCommandListAppendLaunch\w*Kernel"
)
#: What fills memory on the device is launched as well: beside CUDA graphs it may be all that is left of the work
#: of a thread.
MEMSET = regex(r"^(cu|cuda|hip)Memset")
#: Of a kernel by CUDA, whose queue has a known length.
PLAIN_LAUNCH = regex(r"^(cu|cuda)(LaunchKernel|LaunchCooperativeKernel)")
GRAPH_LAUNCH = regex(r"^(cu|cuda|hip)GraphLaunch")
#: By whose runtime work is launched, which says whose GPU it is.
CALLS_OF = {"AMD": regex(r"^hip[A-Z]"), "Intel": regex(r"^(ur|ze)[A-Z]"), "NVIDIA": regex(r"^cu(da)?[A-Z]")}

_VERSION = regex(r"(?:_v\d{1,6}){1,4}$")


def without_version(call: str) -> str:
    """`cuMemFree_v2` and `cudaLaunchKernel_v7000` without the version of their interface."""
    return _VERSION.sub("", call)
