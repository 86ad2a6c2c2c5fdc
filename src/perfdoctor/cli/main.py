"""Which commands are there, and how does each one end? The only place where an error becomes text and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perfdoctor import __version__
from perfdoctor.cli import (
    analyze,
    ascii_fallback,
    compare,
    completion,
    env,
    export,
    history,
    plain_values,
    rules,
    run,
    selftest,
)
from perfdoctor.errors import PerfdoctorError, UsageError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 128 + 2  # SIGINT
OUTPUT_CLOSED = 128 + 13  # SIGPIPE
EXAMPLES = """\b
Examples:
  perfdoctor run -- torchrun train.py          record and diagnose a training
  perfdoctor analyze rank0.pt.trace.json.gz    diagnose a recorded profile
  perfdoctor explain input-wait                one rule, with its fixes
"""


class _Commands(TyperGroup):
    """The commands. Errors that a user can act on are printed in two lines, all others keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except PerfdoctorError as error:
            typer.echo(f"perfdoctor: {error.what}\n  → {error.do}", err=True)
            raise typer.Exit(WRONG_USAGE if isinstance(error, UsageError) else FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The interpreter flushes once more at its end, which would print an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(OUTPUT_CLOSED) from None
        return result


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog=run.EXAMPLES, context_settings={"allow_interspersed_args": False})(run.run)
app.command("analyze", epilog=analyze.EXAMPLES)(analyze.analyze)
app.command("compare", cls=compare.SeveralValues, epilog=compare.EXAMPLES)(compare.compare)
app.command("export", epilog=export.EXAMPLES)(export.export)
app.add_typer(history.app, name="history")
app.command("env", epilog=env.EXAMPLES)(env.env)
app.command("selftest", epilog=selftest.EXAMPLES)(selftest.selftest)
app.command("rules", epilog=rules.RULES_EXAMPLES)(rules.rules)
app.command("explain", epilog=rules.EXPLAIN_EXAMPLES)(rules.explain)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"perfdoctor {__version__}")
        raise typer.Exit


@app.callback(epilog=EXAMPLES)
def _perfdoctor(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Why is this PyTorch training slow, what to change, and how much will it bring?"""


def main() -> None:
    """The `perfdoctor` program."""
    ascii_fallback.set_up()
    plain_values.set_up()
    if completion.VARIABLE in os.environ:
        completion.skip_rich()
    app(prog_name="perfdoctor")


if __name__ == "__main__":
    main()
