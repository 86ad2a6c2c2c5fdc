"""Which of the command's processes is this: what does it run, and which rank of which job is it?"""

from __future__ import annotations

import os
import sys
from typing import Any

_MOST_WORDS = 40
_LONGEST_WORD = 200
#: (rank, world size) as torchrun, Open MPI, MPICH and Slurm name them.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def facts(masking: str) -> dict[str, Any]:
    """The program's command, its process's name, and what ranks of its job have in common, as facts of the report.

    Secrets in the command are masked by the functions in the file `masking`.
    """
    from multiprocessing import process  # torch has imported it

    # Two jobs on one machine at a time need two ports.
    port = os.environ.get("MASTER_PORT", "")
    job = "port " + port if port else "parent " + str(os.getppid())
    names = process.current_process().name.split(" ")
    return {"command": _masked(sys.argv, masking), "process_name": " ".join(_masked(names, masking)), "job": job}


def launcher_rank() -> tuple[int, int]:
    """Rank and world size by the launcher's variables; (0, 1) without any."""
    for rank, size in _LAUNCHERS:
        values = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(value.isdecimal() for value in values):
            return int(values[0]), int(values[1])
    return 0, 1


def rank(torch: Any) -> tuple[int, int]:
    """Rank and world size by torch.distributed if it is in use, else by the launcher."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return launcher_rank()


def processes_here() -> int:
    """How many ranks of the job run on this machine; all of them where the launcher does not say."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(local) if local.isdecimal() and int(local) else launcher_rank()[1]


def parent() -> int:
    """The process that started this one by multiprocessing; 0 where it was started otherwise."""
    from multiprocessing import process  # torch has imported it

    known = process.parent_process()
    if known is not None:
        return known.pid or 0
    # A spawned one knows who it is only after it has imported the program, and torch with it.
    return os.getppid() if "--multiprocessing-fork" in getattr(sys, "orig_argv", ()) else 0


def is_worker() -> bool:
    """Was this process started as loaders start their workers, as daemons?"""
    from multiprocessing import process  # torch has imported it

    return bool(process.current_process().daemon)


def _masked(words: list[str], masking: str) -> list[str]:
    from importlib import util  # torch has imported it

    try:
        spec = util.spec_from_file_location("perfdoctor_masking", masking)
        module = util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except Exception:  # not there, or not for this Python: no command is better than one with secrets
        return []
    return [str(word)[:_LONGEST_WORD] for word in module.masked_command([str(word) for word in words[:_MOST_WORDS]])]
