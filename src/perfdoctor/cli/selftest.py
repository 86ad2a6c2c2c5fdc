"""`perfdoctor selftest`: what really works here, tried on small trainings?"""

from __future__ import annotations

import json as json_
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, field

from perfdoctor.cli import analyze, report_files, say
from perfdoctor.cli.progress import progress
from perfdoctor.errors import PerfdoctorError
from perfdoctor.report.words.foreign_text import clean

if TYPE_CHECKING:
    from perfdoctor.recording.plan import Machine
    from perfdoctor.selftest.checks import ToolCheck

SOMETHING_FAILED = 1
#: `--quick` is for each day, `--full` for a new machine: after so many seconds no further training is begun.
_QUICK_S, _FULL_S = 60.0, 420.0
_NAME_WIDTH = 23
_STYLES = {"works": "green", "works with limits": "yellow", "does not work": "bold red", "not here": "dim"}


def selftest(
    *,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Every example beside its fixed twin, or only each tool once.")
    ] = False,
    python: Annotated[
        str, typer.Option(help="The Python that trains.", metavar="PROGRAM", show_default="this one, else python")
    ] = "",
    json: Annotated[
        Path | None, typer.Option(help="Write the results here; - is standard output.", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Keep the recordings here.", metavar="DIR", show_default="kept nowhere"),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Begin no training after this time.",
            metavar="SECONDS",
            show_default=f"{_QUICK_S:.0f} or {_FULL_S:.0f}",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the line for a bug report.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print progress on standard error.")] = False,
) -> None:
    """Try on small trainings what works here, tool by tool."""
    machine, environment = _machine(python)
    shown = _Shown(machine, full, json, quiet)
    with _folder(output) as folder, progress(quiet=quiet, verbose=verbose) as announce:
        from perfdoctor.selftest.order import SelfTest
        from perfdoctor.selftest.trials import Runner

        limit_s = seconds or (_FULL_S if full else _QUICK_S)
        runner = Runner(folder, environment)
        for check in SelfTest(machine, machine.program.interpreter, runner, full, limit_s, announce).checks():
            shown.add(check)
    raise typer.Exit(0 if shown.end() else SOMETHING_FAILED)


def _machine(python: str) -> tuple[Machine, dict[str, str]]:
    """This machine with the Python that trains, and the environment of its trainings."""
    from perfdoctor.recording import plan
    from perfdoctor.selftest.trials import environment_of_trials

    environment = environment_of_trials(dict(os.environ))
    program = python or _python_with_torch(environment)
    machine = plan.inspect([program], environment)
    if not machine.program.interpreter:
        raise PerfdoctorError(f"`{program}` is no Python that starts", do="Give the one that trains: --python PROGRAM")
    return machine, environment


class _Shown(Struct):
    """The checks that have ended: printed and written one by one, since the self-test may be killed."""

    machine: Machine
    full: bool
    file: Path | None
    quiet: bool
    checks: list[ToolCheck] = field(default_factory=list)

    @property
    def _to_standard_output(self) -> bool:
        return str(self.file) == analyze.STANDARD_OUTPUT

    def add(self, check: ToolCheck) -> None:
        self.checks.append(check)
        if not (self.quiet or self._to_standard_output):
            _show(check)
        if self.file and not self._to_standard_output:
            try:
                report_files.write(self.file, self._text)
            except OSError as error:
                raise report_files.unwritable(self.file, error, "Choose another file with --json FILE.") from error

    def end(self) -> bool:
        """Print the last lines; does everything work?"""
        from perfdoctor.selftest import document

        if self._to_standard_output:
            say.document(self._text())
        else:
            heading = "For a bug report (a recording goes with it as a copy by perfdoctor scrub):"
            for line in ("", heading, document.line_for_a_report(self.machine, self.checks)):
                say.line(line)
        return document.works(self.checks)

    def _text(self) -> str:
        from perfdoctor.selftest import document

        results = document.document(self.machine, self.checks, full=self.full)
        return json_.dumps(results, indent=1, ensure_ascii=False) + "\n"


def _python_with_torch(environment: dict[str, str]) -> str:
    """This Python if it has torch, else the one that `python` starts."""
    from perfdoctor.recording.launch import program

    own = program.inspect([sys.executable], environment)
    return sys.executable if own.torch or not shutil.which("python") else "python"


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    """Where recordings go: into `output`, which must be new or empty, else into a folder that is removed."""
    if output is None:
        with tempfile.TemporaryDirectory(prefix="perfdoctor-selftest-") as folder:
            yield Path(folder)
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        full = any(output.iterdir())
    except OSError as error:
        raise report_files.unwritable(output, error, "Choose another folder with --output DIR.") from error
    if full:
        raise PerfdoctorError(f"the folder {output} is not empty", do="Choose a new one: no file is overwritten.")
    yield output.absolute()


def _show(check: ToolCheck) -> None:
    """Print the check as `nsys   works: 12 steps …`, and what to do below it."""
    from rich.text import Text

    from perfdoctor.report.terminal_text import WIDEST, Terminal, wrapped

    console = Terminal(highlight=False)
    width = min(console.width, WIDEST)
    found = Text.assemble((check.verdict.value, _STYLES[check.verdict.value]), f": {clean(check.found)}")
    indent = " " * _NAME_WIDTH
    for line in wrapped(found, console, width, indent, f"{check.name:{_NAME_WIDTH}}"):
        console.print(line)
    for line in wrapped(Text(clean(check.do)), console, width, f"{indent}  ", f"{indent}→ ") if check.do else ():
        console.print(line)
