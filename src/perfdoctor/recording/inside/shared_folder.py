"""Into which folder do all ranks of a job record, when each decides for itself and none may wait for another?

Where torch.distributed is in use, its key-value store answers: the first rank's proposal counts. That is no collective:
a rank that does not record keeps nobody waiting. Before that, the launcher's variables name the job.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.system.run_folder import MANIFEST, RunFolder, free_name

#: What sets one job, or one try of it, apart from others, as launchers name it.
_OF_JOB = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
#: What a run folder has while it is recorded, and while it is watched.
_OWN = {"agents", "torch", MANIFEST}
_OF_WATCH = {"steps", "windows", "device", "nccl", "watch.json", "watch.log"}
_UNUSUAL = regex(r"[^\w.-]+")


def choose(output: Path | None, runs: Path, torch: Any, world_size: int, number: int) -> Path:
    """`output` itself, else a new folder in `runs`. `number`: how many recordings this process has begun."""
    if output is not None:
        return output.absolute()
    runs = runs.absolute()
    own = free_name(runs, _program())
    return own if world_size < 2 else runs / _agreed(torch, own.name, number)


def claim(folder: Path, rank: int, *, is_watched: bool = False) -> None:
    """Reserve this rank's file of the run. Raises PerfdoctorError where another recording is in the way."""
    own = _OWN | (_OF_WATCH if is_watched else set())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")} - own or _is_done(folder):
            raise _taken(folder)
        for name in ("agents", "torch", *(("steps", "nccl") if is_watched else ())):
            (folder / name).mkdir(exist_ok=True)
        os.close(
            os.open(folder / "agents" / f"torch-{name_of(rank)}.json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        )
    except FileExistsError:
        raise _taken(folder) from None
    except OSError as error:
        raise PerfdoctorError(
            f"{folder} cannot be written: {error.strerror or error}", do="Give another folder: output=DIR."
        ) from error


def name_of(rank: int) -> str:
    return f"rank{rank}"


def _is_done(folder: Path) -> bool:
    run = RunFolder.open(folder)
    return run is not None and any(each.state != "running" for each in run.manifest.passes)


def _taken(folder: Path) -> PerfdoctorError:
    return PerfdoctorError(f"{folder} holds other files, which are kept", do="Give another folder: output=DIR.")


def _program() -> str:
    name = Path(sys.argv[0] if sys.argv else "").stem
    if name == "ipykernel_launcher":
        return "notebook"
    return _UNUSUAL.sub("-", name).strip("-.") or "python"


def _agreed(torch: Any, proposal: str, number: int) -> str:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001 there is no public way to it
        return bytes(store.compare_set(f"perfdoctor/recording{number}", "", proposal)).decode()
    return f"{_program()}-{_job(os.environ)}" + (f"-{number}" if number > 1 else "")


def _job(environment: Mapping[str, str]) -> str:
    """A short name that all ranks of a job find, and ranks of another job do not."""
    known = [f"{name}={environment.get(name, '')}" for name in _OF_JOB]
    if environment.get("LOCAL_WORLD_SIZE") == environment.get("WORLD_SIZE"):  # one machine, and so one launcher
        known.append(f"{os.getppid()} {_started(os.getppid())}")
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def _started(pid: int) -> str:
    """Start of a process in ticks of the machine (proc(5), field 22); "" where that is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""
