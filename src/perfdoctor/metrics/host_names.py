"""What is the host doing, going by the names of its ranges, ops and calls? Patterns, no opinions.

Names come from PyTorch (record_function, torch.profiler), CUDA/HIP runtimes and the operating system's runtime as
Nsight Systems traces it.
"""

from __future__ import annotations

import re

#: Ranges, ops and functions in which the training thread waits for its next batch, of any loader.
INPUT_WAIT = re.compile(
    r"enumerate\(DataLoader\)|enumerate\(DataPipe\)|(Single|Multi)Process\w*DataLoaderIter|\w*[Ll]oader\w*\.__next__"
    r"|\bdata[ _-]?(load|loading|loader|fetch|fetching|wait|iter|prefetch)\b"
    r"|\b(load|fetch|a?wait|get|next|read)[ _-](for[ _-])?(next[ _-])?(data|batch|sample|input)s?\b"
    r"|wait_for_batch|next_batch|batch_(load|fetch)|dataloader_next|fetch_next|input[ _-]pipeline|DALI\w*Iterator",
    re.IGNORECASE,
)
GARBAGE_COLLECTION = re.compile(r"garbage|\bgc\.collect\b|\bpython gc\b|\bgc(_gen\d)?\b", re.IGNORECASE)
STORAGE = re.compile(
    r"torch[./]serialization|torch\.save|save_?checkpoint|checkpoint_?(save|saving|write|io)|write_?checkpoint|\bsaving\b|dcp\.save|distributed\.checkpoint\.(async_)?save|\bos\.fsync\b|\bsave\b.*checkpoint",
    re.IGNORECASE,
)
#: Compilers at work; not the compiled code at work ("Torch-Compiled Region", "CompiledFunction").
COMPILATION = re.compile(
    r"_compile\.<?\w*compile|compile_fx|torch[./]_(dynamo[./](convert_frame|symbolic_convert)|inductor[./](compile|codegen|graph))|dynamo_timed|autotun|cudnnFind|nvrtc|triton[./]compiler|CompilationTask|entire_frame_compile|backend_compile",
    re.IGNORECASE,
)
PEER_WAIT = re.compile(r"barrier|rendezvous|store[:.]?(get|wait)|TCPStore|c10d::wait", re.IGNORECASE)

#: Calls in which the host waits for the device. cudaStreamWaitEvent is none: it makes a stream wait, not the host.
BLOCKING_CALL = re.compile(
    r"^(cuda|hip)(Device|Stream|Event|Thread)Synchronize|^cu(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|DtoD|Peer|WithStream)?(_ptds|_ptsz)?$|^cuMemcpy(HtoD|DtoH|DtoD)(_v2)?$"
)
ALLOCATOR_CALL = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|MallocHost|FreeHost|HostFree|HostRegister|HostUnregister|MallocManaged)"
    r"|^cuMem(Alloc|Free|Create|Map|Unmap|SetAccess|Release|AddressReserve|HostAlloc)"
)
MODULE_LOADING_CALL = re.compile(r"^cu(ModuleLoad|LibraryLoad|ModuleGetFunction)|^hipModuleLoad|^nvrtcCompile")
FILE_CALL = re.compile(
    r"^(p?read|p?write|readv|writev|open|fopen|fread|fwrite|fsync|fdatasync|sendfile|close|f?stat)(64)?$"
)
