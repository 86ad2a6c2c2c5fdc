"""Would workers help the loader? Tried out in a forked copy of the program, while it waits, for two seconds at most.

Only behind the recorded steps, where writing the trace makes the program wait as well; only where a loader was waited
for; and only where a fork is as safe as it is for a loader with workers, which forks the program in the same way.
`apart.py` says how the copy is kept from changing anything; docs/decisions says why it is done here, and so.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import apart, identity, trial_batches
from perfdoctor_agent.loaders import Source, tensors_in

#: The copy ends so long before the program stops to listen; once it is killed its end is awaited so long at most.
_AHEAD_S, _ENDING_S = 0.1, 0.5
#: A socket's path has at most 107 letters (unix(7)), of which the names below the folder take about 50.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 through which workers pass batches on
_LONGEST, _SHORT = 50, "/tmp"  # noqa: S108 a folder of our own in it
#: What is waited less for the loader is no finding: of the recorded steps.
_LEAST_SHARE = 0.02
#: To fork a process takes some 10 ms for each GB that it holds.
_MOST_HELD_BYTES = 16 << 30
#: What says on the program's output that it was forked, or does more than that.
_MINDS_FORKS = ("jax", "mpi4py", "grpc")
#: What a control group may use and uses, in version 2 and 1.
_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
#: Memory of network cards, which old kernels lose in a fork.
_DEVICE_MEMORY = "/dev/infiniband"


def of_loader(torch: Any, source: Source | None, waited_share: float, limit_s: float) -> dict[str, Any]:
    """Facts for the report, in ns a batch; only `left_out`, the reason, where nothing can be tried.

    `waited_share`: of the recorded steps the loader was waited for. `limit_s`: the program waits no longer than that,
    and for the copy to be ended.
    """
    begun = time.monotonic()
    try:
        why = _why_not(torch, source, waited_share)
        facts = {"left_out": why} if why or source is None else _tried(torch, source, begun + limit_s)
    except Exception as error:  # the program goes on
        facts = {"left_out": type(error).__name__}
    return {**facts, "wall_ns": round((time.monotonic() - begun) * 1e9)}


def _why_not(torch: Any, source: Source | None, waited_share: float) -> str:
    if source is None or not hasattr(os, "fork") or not sys.platform.startswith("linux"):
        return "no loader of torch's with a dataset of items fed the recorded steps"
    if waited_share < _LEAST_SHARE:
        return "the loader was hardly waited for"
    if identity.rank(torch)[0] or identity.is_worker():
        return "another rank tries it"
    if source.is_on_device or any(each.is_cuda for each in tensors_in(torch.Tensor, _attributes(source.dataset))):
        return "the dataset is in the memory of a GPU"
    return _why_not_forked()


def _why_not_forked() -> str:
    """Why a copy could disturb the program or the machine; else ""."""
    if any(name in sys.modules for name in _MINDS_FORKS):
        return "a library of the program minds forks"
    handler = signal.getsignal(signal.SIGCHLD)
    if callable(handler) and not str(getattr(handler, "__module__", "")).startswith("torch."):
        return "the program handles the end of its processes itself"
    if _warns_of_forks():
        return "Python would warn of a fork"
    held = _held_bytes()
    if held > min(_MOST_HELD_BYTES, _available_bytes()):
        return "there is no memory for a copy"
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return "its memory is known to network cards" if _DEVICE_MEMORY in maps.read() else ""


def _warns_of_forks() -> bool:
    """Is the warning of Python 3.12 about threads, which torch has, shown or an error? Its module is this one."""
    if sys.version_info < (3, 12):
        return False
    for action, message, category, module, _ in warnings.filters:
        if _fits(message, "This process") and issubclass(DeprecationWarning, category) and _fits(module, __name__):
            return action != "ignore"
    return True


def _fits(wanted: Any, text: str) -> bool:
    """As `warnings` compares: nothing, a text of Python's own filters, or a pattern."""
    return wanted is None or (wanted == text if isinstance(wanted, str) else bool(wanted.match(text)))


def _held_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _available_bytes() -> int:
    """What the machine, and the control group that the process sees as its own, have left."""
    with open("/proc/meminfo", encoding="ascii") as file:
        left = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    for most, used in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no limit ("max"), or the other version of control groups
            left = min(left, _number(most) - _number(used))
    return left


def _number(name: str) -> int:
    with open("/sys/fs/cgroup/" + name, encoding="ascii") as file:
        return int(file.read())


def _attributes(dataset: Any) -> list[Any]:
    return list(getattr(dataset, "__dict__", {}).values())


# --- the copy ---


def _tried(torch: Any, source: Source, deadline: float) -> dict[str, Any]:
    base = os.environ.get("TMPDIR") or _SHORT
    folder = os.path.join(base if len(base) <= _LONGEST else _SHORT, f"perfdoctor-trial-{os.getpid()}")
    os.mkdir(folder, 0o700)  # for the sockets of the copy's workers
    child, own = 0, os.getpid()
    reader, writer = os.pipe()
    try:
        child = _forked(lambda: _in_copy(torch, source, own, writer, folder, deadline - _AHEAD_S))
        os.close(writer)
        writer = -1
        return _heard(reader, deadline)
    finally:
        _end(child)
        for number in (reader, writer):
            if number >= 0:
                os.close(number)
        shutil.rmtree(folder, ignore_errors=True)


def _forked(work: Callable[[], None]) -> int:
    """Fork with signals blocked, so that none reaches the program's handlers in the copy."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = -1
    try:
        child = os.fork()
        if not child:
            work()
    finally:
        if not child:
            os._exit(0)  # nothing is flushed that is the program's
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child


def _in_copy(torch: Any, source: Source, parent: int, writer: int, folder: str, deadline: float) -> None:
    def tell(**facts: Any) -> None:
        os.write(writer, (json.dumps(facts) + "\n").encode("ascii"))

    guard = apart.Guard()
    try:
        from multiprocessing import process  # torch has imported it

        apart.separate(parent, writer)
        # Of what C code opens Python hears nothing: a dataset that keeps what it made by `torch.save` would do so.
        if not apart.only_below(folder, _SHARED_MEMORY):
            tell(left_out="this kernel cannot keep a copy of the program from changing files (it needs Landlock)")
            return
        process.current_process()._config["tempdir"] = folder
        guard.install()
        trial_batches.measure(torch, source, guard, tell, deadline)
        tell(left_out="")
    except BaseException as error:
        tell(left_out=guard.refused or type(error).__name__)


def _heard(reader: int, deadline: float) -> dict[str, Any]:
    """What the copy reports until its last word, its end or the deadline."""
    heard, poll = b"", select.poll()
    poll.register(reader, select.POLLIN)
    while not (heard.endswith(b"\n") and b"left_out" in heard) and time.monotonic() < deadline:
        if poll.poll(max((deadline - time.monotonic()) * 1e3, 0)):
            part = os.read(reader, 1 << 16)
            if not part:
                break
            heard += part
    facts: dict[str, Any] = {"left_out": "it took too long, or ended by itself", "taken": []}
    for line in heard.split(b"\n")[:-1]:
        given = json.loads(line)
        facts["taken"] += [given.pop("taken")] if "taken" in given else []
        facts.update(given)
    return facts


def _end(child: int) -> None:
    """End the copy and its workers. One that hangs in the kernel is not waited for."""
    if child <= 0:
        return
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    end = time.monotonic() + _ENDING_S
    with contextlib.suppress(ChildProcessError):  # who ignores SIGCHLD has waited already
        while not os.waitpid(child, os.WNOHANG)[0] and time.monotonic() < end:
            time.sleep(0.001)
