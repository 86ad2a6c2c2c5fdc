"""Which commands are there, and how does each one end? The only place where an error becomes text and an exit code."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from perfdoctor import __version__
from perfdoctor.cli import completion, examples, plain_values, say, streams
from perfdoctor.errors import PerfdoctorError, UsageError, is_a_bug
from perfdoctor.report.words.foreign_text import clean, one_line
from perfdoctor.system import own_process

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 128 + 2  # SIGINT
OUTPUT_CLOSED = 128 + 13  # SIGPIPE
#: The error handler that replaces characters that a terminal cannot show: `x` for ×, and so on, not question marks.
PLAIN = "perfdoctor-plain"
_PLAIN = {
    "×": "x", "·": "|", "–": "-", "−": "-", "→": "->", "…": "...", "µ": "u", "’": "'", "°": " deg ", "“": '"', "”": '"',
    "■": "#", "█": "#", "▓": "%", "▒": "+", "░": "-",
}  # fmt: skip

#: What typer raises for all arguments that it does not take.
_WrongUsageError: type[Any] = typer.BadParameter.__mro__[1]

_NO_MEMORY = (
    "there is not enough memory for this",
    "Give a part of it, such as fewer ranks, or use a machine with more memory.",
)


class _Commands(TyperGroup):
    """The commands. Errors that a user can act on are printed in two lines, all others keep their traceback."""

    def make_context(self, *args: Any, **settings: Any) -> Any:
        with _safe_usage():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _safe_usage():
            return self._invoked(ctx)

    def _invoked(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except PerfdoctorError as error:
            say.failure(error.what, error.do)
            raise typer.Exit(WRONG_USAGE if isinstance(error, UsageError) else FAILED) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                # The interpreter flushes once more at its end, which would print an error.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(OUTPUT_CLOSED) from None
            if is_a_bug(error):
                raise
            _print_failed(error)
            raise typer.Exit(FAILED) from None
        except MemoryError:
            say.failure(*_NO_MEMORY)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        return result


@contextmanager
def _safe_usage() -> Iterator[None]:
    """Make the message of wrong usage safe to print: it quotes what was given."""
    try:
        yield
    except _WrongUsageError as error:
        error.message = one_line(error.message)
        raise


def _print_failed(error: OSError) -> None:
    """Say what the system refused. A name may be as long as somebody liked."""
    file = clean(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else ""
    what = f"{file} cannot be used: " if file else ""
    say.failure(f"{what}{error.strerror or error}", "Check the path, its permissions and the free space.")


class _Command(NamedTuple):
    """The function of this name in this module of `cli`, and the name there of its class."""

    module: str
    settings: dict[str, Any] | None = None
    cls: str | None = None
    #: It has commands of its own: `app` there.
    is_group: bool = False


#: In the order of the help.
COMMANDS = {
    "run": _Command("run", settings={"allow_interspersed_args": False}),
    "attach": _Command("attach"),
    "analyze": _Command("analyze"),
    "compare": _Command("compare", cls="SeveralValues"),
    "check": _Command("check"),
    "watch": _Command("watch", settings={"allow_interspersed_args": False}),
    "status": _Command("watch_commands"),
    "record-now": _Command("watch_commands"),
    "treat": _Command("treat", settings={"allow_interspersed_args": False}),
    "export": _Command("export"),
    "query": _Command("query"),
    "view": _Command("view"),
    "summarize": _Command("summarize"),
    "scrub": _Command("scrub"),
    "history": _Command("history", is_group=True),
    "mcp": _Command("mcp"),
    "env": _Command("env"),
    "selftest": _Command("selftest"),
    "rules": _Command("rule_commands", is_group=True),
    "explain": _Command("rules"),
}


@cache
def program(*names: str) -> typer.Typer:
    """The program with the commands of these names, whose modules are loaded."""
    made = typer.Typer(
        cls=_Commands,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(epilog=examples.of("perfdoctor"))(_perfdoctor)
    for name in names:
        command = COMMANDS[name]
        module = import_module(f"perfdoctor.cli.{command.module}")
        if command.is_group:
            made.add_typer(module.app, name=name)
            continue
        made.command(
            name,
            cls=getattr(module, command.cls) if command.cls else None,
            epilog=examples.of(name),
            context_settings=command.settings,
        )(getattr(module, name.replace("-", "_")))
    return made


def __getattr__(name: str) -> typer.Typer:
    """The program with all commands, as `app`."""
    if name == "app":
        return program(*COMMANDS)
    raise AttributeError(name)


def _print_version(wanted: bool) -> None:
    if wanted:
        say.line(f"perfdoctor {__version__}")
        raise typer.Exit


def _perfdoctor(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Why is this PyTorch training slow, what to change, and how much will it bring?"""


def replaced(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that a terminal cannot show, and where to go on, for `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in lost), error.end


def show_any_text() -> None:
    """Replace what standard output and error cannot encode, so that no text of ours raises an error.

    Output that is closed, and messages that cannot be written (a full disk), are lost.
    """
    codecs.register_error(PLAIN, replaced)
    streams.hold_places()
    streams.lose_unwritable_messages()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN)


def main() -> None:
    """The `perfdoctor` program."""
    own_process.take()
    show_any_text()
    plain_values.set_up()
    if completion.VARIABLE in os.environ:
        completion.skip_rich()
    called = sys.argv[1:2]
    # A command that is named first needs no other: describing all of them takes as long as loading typer.
    program(*(called if COMMANDS.keys() & called else COMMANDS))(prog_name="perfdoctor")


if __name__ == "__main__":
    main()
