"""`perfdoctor view`: read the reports of a folder in a browser."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli import say
from perfdoctor.errors import UsageError

_LARGEST_PORT = 65_535
_SSH_PORT = "22"


def view(
    *,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="What is below it. [default: perfdoctor-runs, else here]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=_LARGEST_PORT, help="Where. [default: 8642, or the next free one]"),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the address.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also print what is served.")] = False,
) -> None:
    """Show the reports of a folder in the browser."""
    from perfdoctor.system.run_folder import RUNS
    from perfdoctor.viewer.server import serving

    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other", do="Leave one of them out.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs = Path(RUNS)
    shown = folder or (runs if runs.is_dir() else Path())
    with serving(shown, port) as server, suppress(KeyboardInterrupt):
        say.line(server.address)
        sys.stdout.flush()
        if not quiet:
            place = f"The reports of {server.folder.root.given} can be read at this address"
            say.line(f"{place}, on this machine alone. Ctrl-C stops it.", err=True)
            if forward := forward_command(os.environ, server.server_port):
                say.line("From your own machine, forward the port first, then open the address there:", err=True)
                say.line(f"  {forward}", err=True)
        if verbose:
            contents = server.contents()
            say.note(f"{len(contents.files)} files can be read there")
        with _opened(server.address, wanted=not no_browser):
            server.serve_forever()
    if not quiet:
        say.line("Stopped.", err=True)


def forward_command(environment: Mapping[str, str], port: int) -> str:
    """The command by which a user who came over ssh forwards the port from home; "" for one who sits here."""
    connection = environment.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return ""
    *_, address, ssh_port = connection
    try:
        user = f"{getpass.getuser()}@"
    except (KeyError, OSError):
        user = ""
    way = "" if ssh_port == _SSH_PORT else f" -p {ssh_port}"
    return f"ssh{way} -N -L {port}:127.0.0.1:{port} {user}{address}"


def has_browser(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Is there a screen on which a browser would open in front of the user?"""
    if environment.get("SSH_CONNECTION"):
        return False
    if platform in ("darwin", "win32"):
        return True
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


@contextmanager
def _opened(address: str, *, wanted: bool) -> Iterator[None]:
    """Open the browser by a file that only this user can read: everybody sees the arguments of a program."""
    if not wanted or not has_browser(os.environ):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="perfdoctor-view-"))
    try:
        page = folder / "open.html"
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">', "utf-8")
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(page.as_uri())
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
