"""How many processes, and which cluster, do the work?"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from perfdoctor.system.processors import JOBS

Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help=f"At most so many processes at once. [default: {JOBS}, else one for each processor that it may use]",
        metavar="N",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Read the files of many ranks on a Dask cluster: the address of its scheduler, tcp://HOST:PORT, "
        "or local[N] for N workers on this machine.",
        metavar="ADDRESS|local[N]",
    ),
]


def set_jobs(jobs: int | None) -> None:
    """For this process, and for all that it starts."""
    if jobs is not None:
        os.environ[JOBS] = str(jobs)


def cluster(named: str | None) -> str | None:
    """The same. Raises UsageError, before anything is read, where it names no cluster."""
    if named is None:
        return None
    from perfdoctor.scale.cluster import checked

    return checked(named)
