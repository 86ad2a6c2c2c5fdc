"""`perfdoctor scrub`: a copy of a recording to hand on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import say, shared_options
from perfdoctor.cli.progress import progress

if TYPE_CHECKING:
    from perfdoctor.scrubbing.copies import Copied


def scrub(
    *,
    path: Annotated[
        Path, typer.Argument(help="A recording, a folder of them, a run folder, or a diagnosis.json.", metavar="PATH")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the copy is written; must not exist.", metavar="PATH")
    ],
    keep_paths: Annotated[
        bool, typer.Option("--keep-paths", help="Keep paths, and the names of folders and users in them.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what was left out.")] = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Copy a recording without secrets and names of hosts, users."""
    with progress(quiet=quiet, verbose=verbose) as update:
        update("starting")
        from perfdoctor.scrubbing.copies import scrubbed

        copied = scrubbed(path, output, update, keep_paths=keep_paths)
    _print(copied, quiet=quiet)


def _print(copied: Copied, *, quiet: bool) -> None:
    from perfdoctor.report.words.foreign_text import clean, clean_name

    if not quiet:
        files = f", {copied.files} file{'s' * (copied.files != 1)}" if copied.written.is_dir() else ""
        say.line(f"Wrote {clean(str(copied.written))}{files}.")
        say.line("Removed:" if copied.removed else "Nothing was found that had to be removed.")
        width = max(map(len, copied.removed), default=0)
        for what, count in copied.removed.items():
            say.line(f"  {what:<{width}}  {count:>7,}")
        say.line("Names of kernels, functions, modules and ranges stay: look through them before you hand it on.")
    for name in copied.damaged:
        say.note(f"{clean_name(name)} breaks off or is damaged, and so is its copy")
    for name, why in copied.left_out.items():
        say.note(f"left out {clean_name(name)}: {clean(why)}")
