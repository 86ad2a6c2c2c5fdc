"""Whose code is a line of Python, and what kind of work does it do where it keeps the device waiting?

torch.profiler writes functions as `file(line): function` with the path cut at a folder of `sys.path`; snapshots of
memory hold whole paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from perfdoctor.patterns import regex

#: The folder of Python's own library, also of 64-bit Fedora and of Python without a GIL.
_PYTHON = r"lib(?:64|32)?/python[\d.]+t?/"
_LINE = regex(r"\.py\(\d+\): |^<(?:ipython-input[^>]*|stdin)>\(\d+\): |^Cell In\[\d+\]\(\d+\): ")
_LIBRARY = regex(
    rf"site-packages|dist-packages|(^|/){_PYTHON}|perfdoctor_agent/|^nn\.Module|^<(?!ipython-input|stdin>)"
    r"|(^|/)(torch|numpy|triton|transformers|accelerate|(pytorch_)?lightning(_fabric)?)/"
    r"|^(threading|contextlib|functools|runpy|selectors|queue|weakref|typing|_\w+)\.py"
    r"|^(abc|codecs|copy|dataclasses|enum|inspect|linecache|os|pickle|random|shutil|socket|subprocess|tempfile|warnings)\.py"
    r"|^Lib/"
    r"|^(asyncio|collections|concurrent|ctypes|importlib|json|logging|multiprocessing|re)/"
)
#: A function in a file as Windows names it.
_BACKSLASHED = regex(r"^(?:[A-Za-z]:)?[^:]*\\[^:]*\.pyx?\(\d+\): ")
#: What is above packages and Python's own library there. torch.profiler cuts folders of `sys.path` spelled alike.
_ABOVE_LIBRARY = regex(r"^.*/(?=(?:site|dist)-packages/|Lib/(?!site-packages/))")
#: Functions of perfdoctor's own agent, around the program's: what they call is the program's time, not theirs.
OWN_AGENT = regex(r"(^|/)perfdoctor_agent/\w+\.py\(\d+\): ")

#: A checkpoint is written, and a collective is called.
SAVE = regex(r"torch/serialization\.py\(\d+\): save$|torch/distributed/checkpoint/\S+\(\d+\): (?:async_)?save$", 8)
COLLECTIVE = regex(r"torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives)\.py\(\d+\): ")
#: Python's import of a module, by the functions that do it.
IMPORT = regex(r"^<frozen importlib\._bootstrap(_external)?>\(\d+\): |^importlib/__init__\.py\(\d+\): import_module")

#: What fetches a sample in a DataLoader; and in stacks of a line each:
FETCH = regex(r"(?:^|/)torch/utils/data/_utils/fetch\.py\(\d+\): ")
#: The loop of a loader's worker.
WORKER = regex(r"(?:^|/)torch/utils/data/_utils/worker\.py\(\d+\): _worker_loop$")
#: Where a thread begins that Python's `threading` starts.
THREAD_BEGIN = regex(r"(?:^|/)threading\.py\(\d+\): (?:Thread\.)?_bootstrap$")
#: What starts or ends a recording of torch.profiler, and what ends one.
PROFILER_EDGE = regex(r"/torch/profiler/profiler\.py\(\d+\): (?:\w+\.)?(?:prepare|start|stop)_trace$", re.MULTILINE)
PROFILER_STOP = regex(r"/torch/profiler/profiler\.py\(\d+\): (?:\w+\.)?stop_trace$", re.MULTILINE)
#: What runs while PyTorch shows a range of its own: a backward pass, an update, a wait for a batch.
BACKWARD = regex(r"/torch/autograd/graph\.py\(\d+\): _engine_run_backward$", re.MULTILINE)
UPDATE = regex(r"/torch/optim/\w+\.py\(\d+\): (?:\w+\.)?step$", re.MULTILINE)
#: A step of an environment that the program calls itself, and one of many environments at once.
ENVIRONMENT_STEP = regex(
    r"(?:^|/)(?:gym|gymnasium|pettingzoo|dm_control|envpool|\w*[eE]nvs?)(?:/[\w/]*)?(?:\.py)?\(\d+\): (?:\w+\.)?step$"
    r"|\.py\(\d+\): \w*Env(?:ironment)?\.step$",
    re.MULTILINE,
)
VECTOR_ENVIRONMENT = regex(r"(?:gymnasium|gym)/vector/|vec_env/|Vec(?:tor)?Env\w*\.step", re.MULTILINE)
NEXT_BATCH = regex(r"/dataloader\.py\(\d+\): (?:_BaseDataLoaderIter\.)?__next__$", re.MULTILINE)
#: A call of a module, and what a loader does in the process that asks for batches.
FORWARD = regex(r"/torch/nn/modules/module\.py\(\d+\): ")
LOADER = regex(r"/torch/utils/data/dataloader\.py\(\d+\): ")
#: What waits for another thread, and where it ends.
_THREADS = regex(rf"^(?:(?:.*/)?{_PYTHON})?(?:queue|threading|concurrent/futures/\w+)\.py\(\d+\): ")
_WAIT = regex(r"\.py\(\d+\): (?:\w+\.)?(?:wait|get|join|_wait_for_tstate_lock)$")
#: Not named by the program: it stands in the function around it.
COMPREHENSION = regex(r"<(?:listcomp|genexpr|dictcomp|setcomp|lambda)>$")

_PACKAGE, _OF_PYTHON = regex(r"(?:site|dist)-packages/([^/]+?)(?:\.py)?(?:/|$)"), regex(rf"^<|(?:^|/){_PYTHON}")

# Whole paths.
#: What is left of a path without the folders above the packages, or above Python's own library.
IN_PACKAGES = regex(rf"^.*/((?:site|dist)-packages/.*|perfdoctor_agent/.*)$|^.*?/({_PYTHON}.*)$")
PYTHON_FILE = regex(r"\.pyx?$|^<(?:stdin|ipython[^>]*)>$|^/tmp/ipykernel", re.IGNORECASE)
TORCH_FILE = regex(
    r"-packages/(?:torch|functorch|einops)/|/torch/(?:nn|optim|autograd|utils|distributed|cuda|amp|fx|_\w+)/"
    r"|/torch/(?:functional|_tensor|_ops|_compile)\.py$|^<(?!stdin|ipython)"
)
LIBRARY_FILE = regex(rf"/(?:site|dist)-packages/|/{_PYTHON}|/envs/[^/]+/lib/[a-z_]+\.py$")
#: torch.distributed without its launchers, DistributedDataParallel, DeepSpeed, FairScale.
COMMUNICATION_FILE = regex(
    r"torch/distributed/(?!elastic|run|launch)|torch/nn/parallel/distributed\.py|/(?:deepspeed|fairscale)/"
)
OPTIMIZER_FILE = regex(r"/optim(?:izers?)?/")
#: Of whoever records, which is never the place: torch.profiler, its recorder of memory, perfdoctor, samplers of stacks.
RECORDER_FILE = regex(
    r"(?:^|/)torch/(?:cuda/(?:memory|_memory_viz)|autograd/profiler\w*|profiler/\w+)\.py$"
    r"|(?:^|/)perfdoctor_(?:agent|measuring)/|-packages/(?:perfdoctor|py_spy|nvtx|viztracer|pyinstrument|memray)/"
)
#: The same in C++ (torch/csrc/cuda/memory_snapshot.cpp, torch/csrc/profiler).
RECORDER_FUNCTION = regex(
    r"\bunwind\b|Traceback|torch::cuda::\(anonymous namespace\)::gather|torch::profiler|RecordFunction"
    r"|record_?(?:memory_?)?history|memory_?snapshot",
    re.IGNORECASE,
)
#: C++ functions that make a tensor for whatever op asks: of all ops alike.
ALLOCATES = regex(
    r"CachingAllocator\b|Allocator::allocate|c10::impl::wrap_kernel_functor|c10::Dispatcher::"
    r"|(?<![a-z])_?empty_(?:generic|cuda|strided)|wrapper_CUDA_\w*empty|::empty(?:_\w+)?::"
    r"|TensorIterator(?:Base)?::|::create_out\(|::set_output_\w*strided\(|::resize_(?:bytes_cuda|cuda_|reduction)\("
)
#: C++ functions that ask for the workspace of cuBLAS, cuBLASLt or cuDNN.
WORKSPACE_FUNCTION = regex(r"[wW]orkspace|getCurrentCUDABlas|getCurrentCUDABlasLt")

#: Kinds of work of the host where it keeps the device waiting, on which a fix depends; the first that fits counts.
#: `torchinductor_<user>/…/c….py(2533): call` is the Python that Inductor writes, which allocates, checks sizes and
#: launches, kernel by kernel. cuDNN and MIOpen try algorithms when they see a shape first, inside the op of the
#: convolution. Modules are filled with random numbers where they are constructed.
KINDS = {
    "compiled-call": regex(
        r"torchinductor_\w+/|/\w{2}/c\w{20,}\.py\(\d+\): call$|torch/_inductor/(output_code|utils)\.py"
        r"|^## Call CompiledFxGraph"
    ),
    "algorithm-search": regex(
        r"^aten::(cudnn_convolution\w*|miopen_convolution\w*|_convolution|convolution(_backward)?)$|cudnn\w*(Find|Benchmark)|miopenFind"
    ),
    "model-construction": regex(
        r"(from_pretrained|load_state_dict|init_model|build_model|create_model|load_model|get_model|_?init_weights|reset_parameters)$"
        r"|torch/nn/init\.py\(\d+\): |torch/nn/modules/\w+\.py\(\d+\): __init__|[Mm]odel\w*\.py\(\d+\): __init__"
    ),
    "preprocessing": regex(
        r"tokeniz|(?<![a-z])(pre|post)_?process|image_transforms|image_processing|feature_extract|(^|/)PIL/|(^|/)cv2/|librosa"
        r"|torchvision/transforms|albumentations|: (encode|decode|batch_decode|collate\w*|apply_chat_template)$",
        re.IGNORECASE,
    ),
}


def is_function(name: str) -> bool:
    """The name of a function, with its file and line."""
    return _LINE.search(name) is not None


def posix_path(function: str) -> str:
    """`torch/utils/data/dataloader.py(701): __next__` of what Windows writes with backslashes."""
    if not _BACKSLASHED.match(function):
        return function
    return _ABOVE_LIBRARY.sub("", function.replace("\\", "/"))


def is_user_function(name: str) -> bool:
    """A function of the user's own: a line in a file that belongs to no library."""
    return is_function(name) and not is_library(name)


def first_user_function(tables: Iterable[Iterable[Iterable[object]]]) -> str:
    """The first cell of these tables' rows that names a function of the user's own; "" if none does."""
    cells = (cell for table in tables for row in table for cell in row)
    return next((cell for cell in cells if isinstance(cell, str) and is_user_function(cell)), "")


def waits_for_thread(stack: str) -> bool:
    """Does a line of the user's own wait for another thread, without a library in between? `stack`: a line a frame."""
    frames = stack.split("\n")
    if not _WAIT.search(frames[-1]):
        return False
    caller = next((frame for frame in reversed(frames) if not _THREADS.search(frame)), "")
    return caller != frames[-1] and is_user_function(caller)


def package(file: str) -> str:
    """`torch` of a file of PyTorch, `Python` of Python's own library and of what has no file."""
    if found := _PACKAGE.search(file):
        return found[1]
    return file.partition("/")[0] if "/" in file.lstrip("/") and not _OF_PYTHON.search(file) else "Python"


def is_library(name: str) -> bool:
    """Does this line of code belong to Python, torch or another package?"""
    return _LIBRARY.search(name) is not None


def kind_of(*names: str) -> str:
    """The kind of work (of KINDS) that the first of these names shows; "" where none does."""
    return next((kind for name in names for kind, pattern in KINDS.items() if pattern.search(name)), "")
