"""Which private names of torch does the agent use, what is lost with a torch that lacks one, and how is one replaced?

No public interface does what they do. A missing name costs its own part of the recording, and nothing else: the parts
look their names up with `find`, and the agent reports what `losses` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CALL = "nn.Module.__call__"
RUN_BACKWARD = "autograd._engine_run_backward"
LOADER_ITERATOR = "utils.data.dataloader._BaseDataLoaderIter"
MARK = "_C._profiler._RecordFunctionFast"
OPTIONS = "_C._profiler._ExperimentalConfig"
PREPARE, ENABLE = "autograd.profiler._prepare_profiler", "autograd.profiler._enable_profiler"
DISABLE, IS_ENABLED = "autograd.profiler._disable_profiler", "autograd.profiler._is_profiler_enabled"
KINETO_PROFILE = "profiler.profiler._KinetoProfile"
#: libkineto::Logger::severityLevel_, in the library of torch (libkineto/src/Logger.h).
KINETO_LEVEL = "_ZN9libkineto6Logger14severityLevel_E"

_OWN_PROFILER = "the program's own profiler may not be noticed, and then neither of the two records"
#: By its path below torch, what is lost without each of them.
LOST = {
    CALL: "forward passes have no ranges, modules no marks, and no step is found by a forward pass",
    RUN_BACKWARD: "backward passes have no ranges, and no step is found by a backward pass",
    LOADER_ITERATOR: "what the DataLoaders do is not known: their workers, batches and bytes",
    MARK: "modules have no marks: there is no time by module",
    OPTIONS: "the trace has no rows of syncs on the GPU",
    PREPARE: _OWN_PROFILER,
    ENABLE: _OWN_PROFILER,
    DISABLE: "the end of the program's own profiler is not noticed: nothing is recorded after it",
    IS_ENABLED: "a profiler that the program has started before is not noticed",
    KINETO_PROFILE: "a trace that the program's own profiler writes may not be noticed",
}
#: The same of what is loaded later, or lies outside of Python, and is looked up where it is used.
LOST_LATER = {
    "nn.Module._modules": "modules inside of others have no path",
    "_dynamo.eval_frame.OptimizedModule._initialize": "a model may be compiled once more when its forwards are watched",
    "_dynamo.utils.unpatched_nn_module_call": "torch.compile traces watched modules on a longer way",
    "_dynamo.variables.nn_module.unpatched_nn_module_call": "torch.compile traces watched modules on a longer way",
    "utils.data.dataloader._BaseDataLoaderIter._num_workers": "what the DataLoaders do is not known",
    **dict.fromkeys(
        (
            "utils.data.dataloader._BaseDataLoaderIter." + name
            for name in ("_dataset", "_collate_fn", "_index_sampler", "_auto_collation")
        ),
        "what a batch costs to make is not tried",
    ),
    **dict.fromkeys(
        (
            "utils.data.dataloader._MultiProcessingDataLoaderIter." + name
            for name in ("_worker_result_queue", "_workers")
        ),
        "what a batch costs from a worker is not tried",
    ),
    **dict.fromkeys(
        ("_utils._flatten_dense_tensors", "_utils._unflatten_dense_tensors"), "all-reduces are not merged in a trial"
    ),
    "profiler.profiler.warn": "torch's warnings about the recording appear in the program's output",
    KINETO_LEVEL: "Kineto's lines about the recording appear in the program's output",
}


def find(torch: Any, path: str) -> Any | None:
    """The object at this path below torch; None where there is none. Nothing is imported for it."""
    found = torch
    for name in path.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found


def replace(owner: Any, name: str, new: Any) -> Callable[[], None]:
    """Put `new` in the place of an attribute; returns what puts the old one back, if `new` is still there."""
    old = owner.__dict__[name]
    setattr(owner, name, new)
    return lambda: setattr(owner, name, old) if owner.__dict__.get(name) is new else None


def losses(torch: Any) -> list[str]:
    """One note for each name that this torch lacks."""
    missing = [path for path in LOST if find(torch, path) is None]
    return [f"torch {torch.__version__} has no {path}: {LOST[path]}" for path in missing]
