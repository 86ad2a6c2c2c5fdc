"""Where do the recordings lie, and how many processes, or which cluster, read them?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import say
from perfdoctor.cli.progress import progress
from perfdoctor.errors import UsageError
from perfdoctor.report.given_run import Given
from perfdoctor.system.paths import is_plain
from perfdoctor.system.processors import JOBS

if TYPE_CHECKING:
    from perfdoctor.cli.analyze import AnalysisRequest
    from perfdoctor.system.remote import RemoteFile

Recordings = Annotated[
    list[str],
    typer.Argument(
        help="A run folder, a folder of traces, or files. Also at s3://, gs:// or https://.", metavar="PATH"
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


#: Of the runs below a folder, as many as a screen has room for.
_SHOWN_RUNS = 10


@contextmanager
def at_hand(
    given: Sequence[str], cluster: str | None, *, quiet: bool, verbose: bool
) -> Iterator[Sequence[Path | RemoteFile]]:
    """The `given` recordings as paths on this machine: those elsewhere are fetched, unless a cluster reads them."""
    if not all(given):  # "$RUN", say, where RUN is not set: as a path it would be the current folder
        raise UsageError(
            "A path is empty.", do="Name a run folder, a folder of traces, or a file; . is the current folder."
        )
    if all(is_plain(text) for text in given):
        yield [run_below(Path(given[0]))] if len(given) == 1 else [Path(text) for text in given]
        return
    from perfdoctor.system import remote

    with ExitStack() as stack:
        with progress(quiet=quiet, verbose=verbose) as update:
            paths = stack.enter_context(remote.at_hand(given, update, spread=cluster is not None))
        yield paths


def run_below(path: Path) -> Path:
    """The one run folder below a folder that is none, said on standard error; the path, where there is none.

    Raises UsageError where there are several: they are different trainings, and no ranks of one.
    """
    from perfdoctor.system.run_folder import RunFolder, below

    runs = below(path)
    if not runs:
        return path
    if len(runs) == 1:
        say.note(f"the one run below {path}: {runs[0]}")
        return runs[0]
    rows = [f"  {run}  {shlex.join(found.manifest.command)[:60]}" for run in runs[:_SHOWN_RUNS]
            if (found := RunFolder.open(run))]  # fmt: skip
    more = [f"  and {len(runs) - _SHOWN_RUNS} more"] * (len(runs) > _SHOWN_RUNS)
    raise UsageError(
        f"{path} is no run folder; below it are {len(runs)}, the latest first:\n" + "\n".join([*rows, *more]),
        do=f"Name one: {runs[0]} is the latest.",
    )


@contextmanager
def runs_at_hand(texts: Sequence[str], asked: AnalysisRequest) -> Iterator[list[Given]]:
    """Each text as a run of its own, whose files are fetched where they lie elsewhere."""
    with ExitStack() as stack:
        found = []
        for text in texts:
            paths = stack.enter_context(at_hand([text], asked.cluster, quiet=asked.quiet, verbose=asked.verbose))
            found.append(Given(shown(text), paths))
        yield found


def shown(text: str) -> str:
    if "://" not in text:
        return text
    from perfdoctor.system import remote

    return remote.shown(text)


def set_jobs(jobs: int | None) -> None:
    """Limit the processes of this program, and of all that it starts, to so many at once."""
    if jobs is not None:
        os.environ[JOBS] = str(jobs)


def cluster(named: str | None) -> str | None:
    """Return the text unchanged. Raises UsageError, before anything is read, where it names no cluster."""
    if named is None:
        return None
    from perfdoctor.scale.cluster import checked

    return checked(named)
