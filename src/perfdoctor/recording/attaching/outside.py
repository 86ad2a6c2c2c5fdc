"""What can be sampled of a training in which nothing of ours may run? Its stacks by py-spy, its cores, and the GPUs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from perfdoctor.recording.attaching.target import Target
from perfdoctor.recording.launch.processes import cpu_seconds, is_alive
from perfdoctor.recording.sampling.session import SamplerProcess
from perfdoctor.recording.tools import py_spy
from perfdoctor.recording.tools.nvml import DeviceSampler

#: At 25 samples a second, as two cores permit for some ranks, a kind of work of a tenth of the time has 25 of them.
SECONDS = 10.0
_LOOK_EVERY_S = 0.1
_PASS = "outside"  # noqa: S105 what names the files of stacks


class SampledOutside(Struct):
    """What was sampled in `seconds`: files of stacks, one of the GPUs where there are any, cores by process."""

    seconds: float = 0.0
    stacks: list[Path] = field(default_factory=list)
    devices: Path | None = None
    cores: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def sample(targets: Sequence[Target], into: Path, *, with_source: bool = True) -> SampledOutside:
    """Sample these processes for SECONDS, or until all have ended. Raises OSError where nothing can be written."""
    into.mkdir(parents=True, exist_ok=True)
    found = SampledOutside()
    devices = DeviceSampler(into / "samples.csv")
    begun, before = time.monotonic(), {each.pid: cpu_seconds([each.pid]) for each in targets}
    has_gpus = not devices.start()
    try:
        with contextlib.ExitStack() as at_last:
            sampler = _started(targets, found, with_source=with_source)
            if sampler is not None:
                at_last.callback(sampler.close)
            while time.monotonic() - begun < SECONDS and any(is_alive(each.pid) for each in targets):
                time.sleep(_LOOK_EVERY_S)
            found.seconds = time.monotonic() - begun
            if sampler is not None:
                _ask(sampler, *(f"end {each.pid} 0 0" for each in targets))
                sampler.end()
                found.notes += sampler.keep(into / "stacks", _PASS, targets[0].folder)
    finally:
        devices.stop()
    found.cores = {pid: max(cpu_seconds([pid]) - used, 0.0) / found.seconds for pid, used in before.items()}
    found.stacks = sorted((into / "stacks").glob(f"{_PASS}-*.json.gz"))
    found.devices = into / "samples.csv" if has_gpus else None
    return found


def _started(targets: Sequence[Target], found: SampledOutside, *, with_source: bool) -> SamplerProcess | None:
    tool = py_spy.find()
    if tool.trouble:
        found.notes.append(f"stacks are not known: {tool.trouble}. {tool.do}")
        return None
    try:
        sampler = SamplerProcess(tool, with_source=with_source)
    except OSError as error:
        found.notes.append(f"stacks are not known: {error.strerror or error}")
        return None
    _ask(sampler, *(f"begin {each.pid} {len(targets)}" for each in targets))
    return sampler


def _ask(sampler: SamplerProcess, *lines: str) -> None:
    """Ask as an agent does (sampling/sampler.py)."""
    with contextlib.suppress(OSError):
        requests = os.open(sampler.requests, os.O_WRONLY | os.O_NONBLOCK)
        try:
            for line in lines:
                os.write(requests, f"{line}\n".encode("ascii"))
        finally:
            os.close(requests)
