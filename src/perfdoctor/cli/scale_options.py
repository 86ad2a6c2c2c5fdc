"""Where do the recordings lie, and how many processes, or which cluster, read them?"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli.progress import progress
from perfdoctor.system.paths import is_plain
from perfdoctor.system.processors import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perfdoctor.system.remote import RemoteFile

Recordings = Annotated[
    list[str],
    typer.Argument(
        help="A run folder, a folder of traces, or files. Also at s3://, gs:// or https://.",
        metavar="PATH",
    ),
]
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


@contextmanager
def at_hand(
    given: Sequence[str], cluster: str | None, *, quiet: bool, verbose: bool
) -> Iterator[Sequence[Path | RemoteFile]]:
    """What was given, as paths on this machine: what lies elsewhere is fetched, unless workers read it themselves."""
    if all(is_plain(text) for text in given):
        yield [Path(text) for text in given]
        return
    from perfdoctor.system import remote

    with ExitStack() as stack:
        with progress(quiet=quiet, verbose=verbose) as update:
            paths = stack.enter_context(remote.at_hand(given, update, spread=cluster is not None))
        yield paths


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
