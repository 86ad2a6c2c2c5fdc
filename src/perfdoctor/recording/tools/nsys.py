"""How is Nsight Systems started around a training so that it records what we need and never ends the training?

Options are taken from `nsys profile --help` of the installed version: names change, and an unknown one is an error. By
default nsys ends the program when the capture range closes (`stop-shutdown` and `--kill=sigterm`): both are changed.
`--wait=primary`: nsys must not wait for a process that outlives the training.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.recording.launch import processes
from perfdoctor.system import nsys_importer, tool_process
from perfdoctor.system.paths import text_of

_OPTION = regex(r"^\s+(?:-\w, )?--([a-z0-9][a-z0-9-]*)", re.MULTILINE)
_VERSION = regex(r"version (\d{4}(?:\.\d+)+)")
_PROBE_TIMEOUT_S = 30
#: Messages of nsys when it recorded, but its importer, which makes the report, failed.
_IMPORTER_FAILED = regex(r"Importer error status|Unable to retrieve the importer version|QdstrmImporter", re.IGNORECASE)
_PROGRESS = regex(r"\[[= ]*\d+%")
#: CUDA → the Nsight Systems of its first toolkit, by NVIDIA's release notes. An older one stops at the first call that
#: it does not know ("Unknown runtime API function index") and keeps what came before: 80 of 20,000 kernels, seen with
#: 2023.4.4 and CUDA 13.0. What it does not stop at costs the host 1.3 to 1.8 times as much as torch.profiler there.
_FIRST_FOR_CUDA = {12: (2022, 4), 13: (2025, 3)}
#: The importer says so in its output, and nowhere in the report.
_EVENTS_LOST = regex(r"Errors occurred while processing the raw events|Importation succeeded with non-fatal errors")
#: A command and an environment: Linux takes 2 MB of both, unless a larger stack is permitted.
_MOST_OF_REQUEST = 4 << 20
_NO_COUNTERS: Mapping[str, str] = MappingProxyType({})


class Nsys(Struct, frozen=True):
    """An installed nsys. `trouble` says why it cannot be used, `no_report` why it makes no report; "" if it does."""

    path: str
    version: str = ""
    options: frozenset[str] = frozenset()
    trouble: str = ""
    no_report: str = ""

    def has(self, option: str) -> bool:
        return option in self.options


def find() -> Nsys | None:
    """PERFDOCTOR_NSYS, else the first on PATH; None without any."""
    path = tool_process.find("nsys")
    return _probed(path) if path else None


@lru_cache(maxsize=4)
def _probed(path: str) -> Nsys:
    try:
        version = _VERSION.search(output_of(path, "--version"))
        help_text = output_of(path, "profile", "--help")
    except (OSError, subprocess.SubprocessError) as error:
        return Nsys(path, trouble=f"{path} does not start: {error}")
    options = frozenset(_OPTION.findall(help_text))
    if "trace" not in options or "output" not in options:
        said = next((line.strip() for line in help_text.splitlines() if line.strip()), "it printed nothing")
        return Nsys(path, trouble=f"{path} profile --help lists no --trace and --output: {said[:200]}")
    return Nsys(path, version[1] if version else "", options, no_report=_importer_trouble(path))


def _importer_trouble(path: str) -> str:
    """Why nsys would make no report but a raw stream; "" if it does, or its importer was not found.

    Two trainings did not go on when their recording ended, under a 2025.3.1 whose importer lacked a library.
    """
    importer = nsys_importer.find(path)
    why = nsys_importer.trouble(importer) if importer else ""
    return f"its importer does not start: {why}" if why else ""


def output_of(path: str, *arguments: str) -> str:
    """What nsys prints with these arguments. Raises OSError, or SubprocessError after too long."""
    done = tool_process.asked([path, *arguments], _PROBE_TIMEOUT_S)
    return done.stdout + done.stderr


def command(
    nsys: Nsys, report: Path, program: Sequence[str], *, has_gpu: bool, has_range: bool,
    counters: Mapping[str, str] = _NO_COUNTERS,
) -> list[str]:  # fmt: skip
    """The whole command line. `report` is without its ending; `has_range`: the agent opens cudaProfilerStart.

    `counters`: the options that sample the GPU's counters.
    """
    wanted = {
        "trace": "cuda,nvtx,osrt" if has_gpu else "nvtx,osrt",
        "output": str(report),
        "sample": "none",  # 190 MB for 20 s of a CPU program, and it needs permissions
        "cpuctxsw": "none",
        "wait": "primary",
        "kill": "none",
        "stop-on-exit": "true",
        "show-output": "true",
        "export": "none",
        "stats": "false",
        "discard-environment": "true",  # the environment contains secrets; versions before 2025 cannot
    }
    if has_range:
        wanted |= {"capture-range": "cudaProfilerApi", "capture-range-end": "stop"}
    options = [f"--{name}={value}" for name, value in {**wanted, **counters}.items() if nsys.has(name)]
    return [nsys.path, "profile", *options, *program]


def keeps_environment(nsys: Nsys) -> bool:
    """Will the report contain the environment of the program?"""
    return not nsys.has("discard-environment")


def wanted_for(nsys: Nsys, cuda: str) -> str:
    """The first version that knows this CUDA, where `nsys` is older and may lose what programs do; else ""."""
    first = _FIRST_FOR_CUDA.get(int(cuda.partition(".")[0])) if re.match(r"\d+\b", cuda) else None
    version = tuple(int(part) for part in nsys.version.split(".")[:2]) if nsys.version else first
    return ".".join(map(str, first)) if first and version and version < first else ""


def report_of(stem: Path) -> Path | None:
    """The file that nsys wrote: the report, or the raw stream where its importer failed."""
    for ending in (".nsys-rep", ".qdrep", ".qdstrm"):
        made = stem.with_name(stem.name + ending)
        if made.is_file() and made.stat().st_size:
            return made
    return None


def explain(log: Path, made: Path | None, since_unix_ns: int = 0) -> str:
    """Why there is no report, in one sentence with what to do; "" if there is one. `since_unix_ns`: when nsys began."""
    if made is not None and made.suffix != ".qdstrm":
        return _lost_events(log)
    message = _last_message(log)
    if made is not None:
        why = f" ({message})" if message and not _IMPORTER_FAILED.search(message) else ""
        return (
            f"Nsight Systems recorded, but its importer failed{why}: the raw stream {made.name} is kept. Install "
            "what the importer lacks (often libssh), or analyse the run where Nsight Systems is complete"
        )
    if shutil.disk_usage(log.parent).free < 1 << 20:
        raw = left_stream(since_unix_ns)
        where = f"; what it recorded is in {raw}" if raw else ""
        return f"Nsight Systems made no report: the disk is full{where}"
    return f"Nsight Systems made no report: {message or 'it printed nothing'}"


def left_stream(since_unix_ns: int) -> Path | None:
    """The raw stream that nsys has left in the temporary folder since then: it was ended, or the disk was full.

    Its log does not name it in either case. None where several may be it; one that a process has open is another's.
    """
    found = []
    for file in Path(tempfile.gettempdir()).glob("nsys-report-*.qdstrm"):
        with contextlib.suppress(OSError):
            now = file.lstat()
            if stat.S_ISREG(now.st_mode) and now.st_uid == os.geteuid() and now.st_mtime_ns >= since_unix_ns:
                found.append(file)
    return found[0] if len(found) == 1 and not processes.has_open(found[0]) else None


def keep_stream(stem: Path, since_unix_ns: int) -> Path | None:
    """Move a raw stream that nsys has left to where its report would be, if that takes no time."""
    if report_of(stem) is not None or (left := left_stream(since_unix_ns)) is None:
        return None
    kept = stem.with_name(f"{stem.name}.qdstrm")
    try:
        left.rename(kept)
    except OSError:  # another disk, which may be full
        return None
    return kept


def remove_requests(since_unix_ns: int, named: str) -> None:
    """Remove what an nsys that was killed at its start has left in the temporary folder since then.

    That is a file which names the program and its environment, secrets included, for its agent, and which all users may
    read. `named`: what is in the environment of this program, and of no other.
    """
    for file in Path(tempfile.gettempdir()).glob("????-????-????-????"):
        with contextlib.suppress(OSError):
            now = file.lstat()
            is_ours = stat.S_ISREG(now.st_mode) and now.st_uid == os.geteuid() and now.st_mtime_ns >= since_unix_ns
            if is_ours and now.st_size < _MOST_OF_REQUEST and named.encode() in file.read_bytes():
                file.unlink()


def _lost_events(log: Path) -> str:
    """What nsys could not understand of what it recorded; "" where it understood all."""
    said = text_of(log)
    if not _EVENTS_LOST.search(said):
        return ""
    cause = re.search(r"Unknown \w+ API function index: \d+", said)
    why = f" ({cause[0]})" if cause else ""
    return (
        f"Nsight Systems could not process all events{why}: its report may end early. Update Nsight Systems, or record "
        "with --passes torch"
    )


def _last_message(log: Path) -> str:
    """The last line of the log that is neither progress nor the name of a file; "" if there is none."""
    lines = re.split(r"[\r\n]+", text_of(log))
    texts = [line.strip() for line in lines if line.strip() and not _PROGRESS.search(line)]
    texts = [line for line in texts if not re.match(r"Generat(ing|ed)\b|/", line)]
    return texts[-1][:200] if texts else ""
