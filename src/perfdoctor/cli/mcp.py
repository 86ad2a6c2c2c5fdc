"""`perfdoctor mcp`: answer an assistant's questions about the recordings of one folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import say, shared_options
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.assistant.worker import WorkerSetup

_GB = 1_000_000_000
#: Of what is free when the server starts: the rest is for others.
_SHARE_OF_MEMORY = 0.75
_LEAST_MEMORY_GB = 1.0
#: Of the package mcp, whose servers are made in another way since.
_LEAST_VERSION = 2


def mcp(
    *,
    root: Annotated[Path, typer.Option("--root", metavar="DIR", help="Only files below this folder are read.")],
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, max=86_400, metavar="SECONDS", help="The longest that a call may take.")
    ] = 120,
    memory: Annotated[
        float | None,
        typer.Option(
            "--memory",
            min=_LEAST_MEMORY_GB,
            metavar="GB",
            help="The most memory to read with. [default: 75 % of the free]",
        ),
    ] = None,
    allow_remote: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-remote", metavar="ADDRESS", help="Also read what is below s3://BUCKET/FOLDER/; may be repeated."
        ),
    ] = None,
    own_rules: shared_options.OwnRules = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Take rules and thresholds from [tool.perfdoctor] in this pyproject.toml. [default: the thresholds in "
            "that of the root, no rules]",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing on standard error at the start.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the limits on standard error.")] = False,
) -> None:
    """Answer an assistant's questions (Model Context Protocol)."""
    from perfdoctor.assistant.root import AllowedRoot
    from perfdoctor.assistant.worker import WorkerSetup
    from perfdoctor.system.memory import available_bytes

    at = AllowedRoot.at(root.expanduser(), tuple(allow_remote or ()))
    most = (
        round(memory * _GB)
        if memory
        else max(round(_SHARE_OF_MEMORY * available_bytes()), round(_LEAST_MEMORY_GB * _GB))
    )
    setting = WorkerSetup(
        str(at.folder), list(at.remote), timeout, most,
        [str(Path(place).expanduser().resolve()) for place in own_rules or ()], str(config.resolve()) if config else "",
    )  # fmt: skip
    _check_rules(own_rules, config, quiet=quiet)
    serve = _server()
    if verbose:
        say.note(f"{at.folder}, {timeout:g} s a call, {most / _GB:.1f} GB")
    if not quiet and sys.stdin.isatty():
        say.note("waiting for a client on standard input: an assistant starts this command.")
    serve(setting)


def _check_rules(named: list[str] | None, config: Path | None, *, quiet: bool) -> None:
    """Print a line for each rule that cannot be used. Raises UsageError if none is there. No code of theirs is run."""
    known = shared_options.tuned(shared_options.all_rules(named, config), config) if named or config else {}
    for rule in known.values():
        if rule.broken and not quiet:
            say.note(f"the rule {rule.id} cannot be used: {rule.broken}")


def _server() -> Callable[[WorkerSetup], None]:
    from importlib.metadata import PackageNotFoundError, version

    install = "Install it: pip install 'perfdoctor[mcp]'"
    try:
        from perfdoctor.assistant.server import serve

        installed = version("mcp")
    except (ImportError, PackageNotFoundError) as error:
        raise PerfdoctorError(f"the package mcp cannot be loaded: {error}", do=install) from error
    if int(installed.partition(".")[0]) < _LEAST_VERSION:
        raise PerfdoctorError(f"mcp {installed} is too old: version {_LEAST_VERSION} is needed", do=install)
    return serve
