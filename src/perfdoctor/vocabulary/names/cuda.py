"""Which call of the CUDA or HIP runtime, or of the driver, is this? What blocks, allocates, loads, waits or replays.

Names are those of the CUDA Runtime and Driver API and of HIP, as CUPTI and roctracer report them; the readers take
their version suffix away (`cuMemFree_v2`).
"""

from __future__ import annotations

import re

#: Calls in which the host waits for the device. cudaStreamWaitEvent is none: it makes a stream wait, not the host.
BLOCKING_CALL = re.compile(
    r"^(cuda|hip)(Device|Stream|Event|Thread)Synchronize|^cu(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|DtoD|Peer|WithStream)?(_ptds|_ptsz)?$|^cuMemcpy(HtoD|DtoH|DtoD)(_v2)?$"
)
#: Those of them that wait by their purpose, of whatever interface; and those that wait for one event.
SYNCHRONIZES = re.compile(r"Synchronize")
WAITS_FOR_EVENT = re.compile(r"EventSynchronize")
ALLOCATOR_CALL = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|MallocHost|FreeHost|HostFree|HostRegister|HostUnregister|MallocManaged)"
    r"|^cuMem(Alloc|Free|Create|Map|Unmap|SetAccess|Release|AddressReserve|HostAlloc)"
)
MODULE_LOADING_CALL = re.compile(
    r"^cu(da)?(ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel|KernelGetFunction|GraphInstantiate)"
    r"|^hip(ModuleLoad|GraphInstantiate)|^nvrtcCompile"
)
#: Between these two, launches go into a graph and run nothing.
CAPTURE = tuple(re.compile(rf"^(cuda|hip|cu)Stream{end}Capture") for end in ("Begin", "End"))
#: A stream waits for an event; the host goes on.
STREAM_WAIT = re.compile(r"^(cuda|hip|cu)StreamWaitEvent")
#: Work is launched on a GPU, whatever the interface.
LAUNCH = re.compile(r"^(cu|cuda|hip)(Ext|Module)?(LaunchKernel|LaunchCooperativeKernel|GraphLaunch)")
GRAPH_LAUNCH = re.compile(r"^(cu|cuda|hip)GraphLaunch")

_VERSION = re.compile(r"(_v\d+)+$")


def without_version(call: str) -> str:
    """`cuMemFree_v2` and `cudaLaunchKernel_v7000` without the version of their interface."""
    return _VERSION.sub("", call)
