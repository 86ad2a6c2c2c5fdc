"""`perfdoctor summarize`: what a node leaves of its ranks, from which `analyze` diagnoses the job elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli import say, scale_options, shared_options
from perfdoctor.cli.progress import progress

#: A kB as sizes of files are given.
_KB = 1000


def summarize(
    *,
    given: scale_options.Recordings,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="Where all nodes of the job write: a folder, or s3://, gs:// and the like.",
            metavar="FOLDER",
        ),
    ],
    process: shared_options.Process = None,
    jobs: scale_options.Jobs = None,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:  # fmt: skip
    """Write a few kB a rank, of which analyze diagnoses the job."""
    scale_options.set_jobs(jobs)
    with scale_options.at_hand(given, None, quiet=quiet, verbose=verbose) as paths:
        here = [path for path in paths if isinstance(path, Path)]
        with progress(quiet=quiet, verbose=verbose) as update:
            update("starting")
            from perfdoctor.scale import leave

            left = leave.left_of(here, update, process)
            files = list(leave.written(left, output))
    if quiet:
        return
    alone = [len(file.content) for file in files if file.of_rank and not file.is_whole]
    whole = [len(file.content) for file in files if file.is_whole]
    sums = f", {sum(alone) / len(alone) / _KB:.1f} kB each" if alone else ""
    say.line(
        f"Of {len(alone) + len(whole)} ranks {len(alone)} are left as summaries{sums}, and {len(whole)} whole, "
        f"{sum(whole) / _KB:,.0f} kB, in {scale_options.shown(output)}."
    )
    for note in left.notes:
        say.note(f"{note}")
