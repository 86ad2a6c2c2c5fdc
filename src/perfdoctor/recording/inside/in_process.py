"""What do a recording and a watch that a program begins share? One of them at a time, the agent, and the manifest."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfdoctor import __version__
from perfdoctor.recording.inside.notices import warn
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.system.masking import masked_command
from perfdoctor.system.run_folder import MANIFEST, Manifest, PassRecord, RunFolder, recorded_environment

#: Set where Nsight Systems or another tool records what CUDA and NVTX do in this process.
_TOOLS_AROUND = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_lock = threading.RLock()
_running: list[tuple[object, int]] = []  # whoever records, and in which process it began


def begin(who: object, with_torch: Callable[[Any], None]) -> Callable[[], None]:
    """Call `with_torch(torch)` once torch is imported, if nobody else records in this process; returns what withdraws
    that. Where somebody does it warns, but not below `perfdoctor run`, which records already.
    """
    if not _reserved(who):
        return lambda: None
    with contextlib.ExitStack() as undoing:
        undoing.callback(release, who)
        withdraw: Callable[[], None] = agent_module("imports").when_imported("torch", with_torch)
        undoing.pop_all()
    return withdraw


def _reserved(who: object) -> bool:
    with _lock:
        if torch_profiler.VARIABLE in os.environ:  # and sees the marks
            return False
        if _running and _running[0][1] == os.getpid():
            warn("another recording is running: this one is left out")
            return False
        if any(name in os.environ for name in _TOOLS_AROUND):
            warn("nothing is recorded: another tool (Nsight Systems?) records this process already")
            return False
        _running[:] = [(who, os.getpid())]
        return True


def has_reserved(who: object) -> bool:
    return any(each is who for each, _ in _running)


def release(who: object) -> None:
    with _lock:
        _running[:] = [each for each in _running if each[0] is not who]


def agent_module(name: str) -> Any:
    """One of the agent's modules, which are top-level ones in the program, as under `perfdoctor run`."""
    package = "perfdoctor_agent"
    if package not in sys.modules:
        folder = torch_profiler.AGENT / package
        spec = importlib.util.spec_from_file_location(
            package, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{package}.{name}")


def at_exit(function: Any) -> Any:
    """Call it at the end of the program, also in children of multiprocessing; returns what cancels that."""
    util = importlib.import_module("multiprocessing.util")
    return util.Finalize(None, function, exitpriority=1000)


def written_manifest(folder: Path, rank: int, torch_version: str) -> RunFolder | None:
    """Write the manifest as rank 0, and as the first rank of each other machine, which may have its own disk; None for
    other ranks.
    """
    is_first_here = os.environ.get("LOCAL_RANK") == "0" and not (folder / MANIFEST).exists()
    if rank and not is_first_here:
        return None
    now, command = time.time_ns(), [word[:200] for word in masked_command([sys.executable, *sys.argv[:40]])]
    first = PassRecord("torch", torch_version, command, started_unix_ns=now)
    environment = recorded_environment(os.environ)
    manifest = Manifest(
        perfdoctor=__version__, command=command, environment=environment, started_unix_ns=now, passes=[first]
    )
    run = RunFolder(folder, manifest)
    run.write()
    return run


def note_done(run: RunFolder, notes: list[str]) -> None:
    """Store that nothing more is recorded. Raises OSError."""
    record = run.manifest.passes[0]
    record.state, record.seconds = "done", round((time.time_ns() - record.started_unix_ns) / 1e9, 3)
    record.notes = notes
    run.write()
