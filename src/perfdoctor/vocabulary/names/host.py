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
    r"|wait_for_batch|next_batch|batch_(load|fetch)|dataloader_next|fetch_next|input[ _-]pipeline|DALI\w*Iterator"
    r"|\bDali(Run|Pipeline|Executor)|IteratorGetNext|Iterator::GetNext",
    re.IGNORECASE,
)
#: The same as a Python stack shows it: file(line): function.
INPUT_WAIT_FUNCTION = re.compile(
    r"torch/utils/data/(dataloader|datapipes/.*)\.py\(\d+\): (__next__|_(next|get|try_get)_data|_get_iterator)"
    r"|nvidia/dali/(plugin/.*\.py\(\d+\): __next__|pipeline\.py\(\d+\): (run|share_outputs|outputs))"
    r"|ffcv/loader/\w+\.py\(\d+\): __next__|webdataset/\w+\.py\(\d+\): (__iter__|iterator|run)"
    r"|tensorflow/python/data/.*__next__|datasets/(iterable_dataset|arrow_dataset)\.py\(\d+\): (__iter__|__getitem__)"
)
GARBAGE_COLLECTION = re.compile(r"garbage|\bgc\.collect\b|\bpython gc\b|\bgc(_gen\d)?\b", re.IGNORECASE)
GARBAGE_COLLECTION_FUNCTION = re.compile(r"<built-in function collect>|<built-in method collect of module")
STORAGE = re.compile(
    r"torch[./]serialization|torch\.save|save_?checkpoint|checkpoint_?(save|saving|write|io)|write_?checkpoint|\bsaving\b"
    r"|dcp\.save|distributed\.checkpoint\.(async_)?save|\bos\.(fsync|replace|rename)\b|\bsave\b.*checkpoint",
    re.IGNORECASE,
)
#: Compilers at work; not the compiled code at work ("Torch-Compiled Region", "CompiledFunction").
COMPILATION = re.compile(
    r"_compile\.<?\w*compile|compile_fx|torch[./]_(dynamo[./](convert_frame|symbolic_convert)|inductor[./](compile|codegen|graph))"
    r"|dynamo_timed|cudnnFind|nvrtc|CompilationTask|entire_frame_compile|backend_compile"
    r"|async_?compile[.(:]|PyCodeCache|compile_to_module"
    # A tuner looks its answer up at every call: only measuring candidates is tuning. Likewise a compiled Triton kernel.
    r"|autotun(?!\w*\.py\()|autotun\w*\.py\(\d+\): \w*(bench|tune|profile|precompile)"
    r"|triton[./]compiler(?!/\w+\.py\(\d+\): (__getattr\w*|launch_metadata|run)$)",
    re.IGNORECASE,
)
#: A loader that makes its iterator anew, and a worker process that is started.
LOADER_BEGINS = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator")
PROCESS_STARTS = re.compile(r"multiprocessing/process\.py\(\d+\): start")
PEER_WAIT = re.compile(
    r"barrier|rendezvous|store[:.]?(get|wait)|TCPStore|c10d::wait|^MPI_(S?Send|Recv|Wait|Barrier|Bcast|(All|Neighbor_)?(reduce|gather|toall)|Reduce|Gather|Scatter|Probe)",
    re.IGNORECASE,
)
#: Collectives of Python objects stand until every rank has sent its own.
PEER_WAIT_FUNCTION = re.compile(
    r"torch/distributed/distributed_c10d\.py\(\d+\): (\w*barrier|(all_)?gather_object|(broadcast|scatter)_object_list)"
)

#: Calls in which the host waits for the device. cudaStreamWaitEvent is none: it makes a stream wait, not the host.
BLOCKING_CALL = re.compile(
    r"^(cuda|hip)(Device|Stream|Event|Thread)Synchronize|^cu(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|DtoH|HtoD|DtoD|Peer|WithStream)?(_ptds|_ptsz)?$|^cuMemcpy(HtoD|DtoH|DtoD)(_v2)?$"
)
ALLOCATOR_CALL = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|MallocHost|FreeHost|HostFree|HostRegister|HostUnregister|MallocManaged)"
    r"|^cuMem(Alloc|Free|Create|Map|Unmap|SetAccess|Release|AddressReserve|HostAlloc)"
)
MODULE_LOADING_CALL = re.compile(
    r"^cu(da)?(ModuleLoad|LibraryLoad|ModuleGetFunction|LibraryGetKernel|KernelGetFunction|GraphInstantiate)"
    r"|^hip(ModuleLoad|GraphInstantiate)|^nvrtcCompile"
)
#: A stream is told to wait for an event; the host goes on.
STREAM_WAIT = re.compile(r"^(cuda|hip|cu)StreamWaitEvent")
GRAPH_LAUNCH = re.compile(r"^(cu|cuda|hip)GraphLaunch")
FILE_CALL = re.compile(
    r"^(p?read|p?write|p?readv|p?writev|open|openat|fopen|fread|fwrite|fflush|fsync|fdatasync|msync|ftruncate|rename|unlink"
    r"|sendfile|close|fclose|f?stat)(64)?(_unlocked)?$"
)
#: Ops that hand a value, or a number of elements, from the device to Python.
READS_VALUE = re.compile(
    r"^aten::(_local_scalar_dense|item|is_nonzero|nonzero|nonzero_numpy|equal|masked_select|_?unique\w*|argwhere|allclose)$"
)
UNSCALES = re.compile(r"^aten::_amp_foreach_non_finite_check_and_unscale_$")
OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
#: Python around the update that may ask the device: the scaler of mixed precision, clipping, the optimizers.
UPDATE_FUNCTION = re.compile(r"torch/(amp/grad_scaler|nn/utils/clip_grad|optim/\w+)\.py\(\d+\): ")
#: A range around a backward pass; autograd's own rows (MulBackward0) are its work and no such range.
BACKWARD = re.compile(r"^\W*(loss[._ ])?backward([ _]pass)?(\(\))?\W*$", re.IGNORECASE)
AUTOGRAD_NODE = re.compile(r"^autograd::engine")
