"""`perfdoctor env`: what can be recorded here, and what to do about the rest?"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from perfdoctor.recording.plan import Machine

EXAMPLES = """\b
Examples:
  perfdoctor env
  perfdoctor env --python ./venv/bin/python
"""


@dataclass(frozen=True)
class _Line:
    """One thing that was checked. `do` is empty where nothing is missing."""

    name: str
    found: str
    do: str = ""


def env(
    *,
    python: Annotated[str, typer.Option(help="The Python that trains.", metavar="PROGRAM")] = "python",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is missing.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Paths too.")] = False,
) -> None:
    """Show what is installed and permitted, and what is missing."""
    from perfdoctor.recording import plan

    machine = plan.inspect([python], dict(os.environ))
    for line in _lines(machine, python, verbose=verbose):
        if quiet and not line.do:
            continue
        typer.echo(f"{line.name:12}{line.found}")
        if line.do:
            typer.echo(f"{'':12}→ {line.do}")
    if not quiet:
        _print_default_plan(machine)


def _print_default_plan(machine: Machine) -> None:
    from perfdoctor.recording import plan

    made = plan.make(machine, None, Path.cwd())
    typer.echo("\nperfdoctor run -- COMMAND would record:")
    for line in made.lines(10, 5):
        typer.echo(f"  {line}")


def _lines(machine: Machine, python: str, *, verbose: bool) -> Iterator[_Line]:
    from perfdoctor import __version__

    yield _Line("perfdoctor", f"{__version__}, Python {platform.python_version()}, {platform.system()}", _system())
    yield _torch(machine, python, verbose=verbose)
    yield _gpus(machine)
    yield _nsys(machine, verbose=verbose)
    yield from _ncu(machine, verbose=verbose)
    yield from _rates(machine)
    free = shutil.disk_usage(Path.cwd()).free
    yield _Line(
        "disk", f"{free / 1e9:.1f} GB free here", "" if free > 1 << 30 else "Record with -o DIR on another disk."
    )


def _system() -> str:
    return "" if platform.system() == "Linux" else "Recording needs Linux; analysing works here."


def _torch(machine: Machine, python: str, *, verbose: bool) -> _Line:
    program = machine.program
    if not program.was_inspected:
        return _Line("torch", f"`{python}` is no Python that starts", "Give the Python that trains: --python PROGRAM")
    if not program.torch:
        return _Line("torch", f"not in {program.interpreter}", "Give the Python that trains: --python PROGRAM")
    where = f" in {program.interpreter}" if verbose else ""
    cuda = f"CUDA {program.cuda}" if program.cuda else "without CUDA"
    do = "This torch cannot use the GPU: install one with CUDA." if machine.has_gpu and not program.cuda else ""
    return _Line("torch", f"{program.torch}, {cuda}, Python {program.python}{where}", do)


def _gpus(machine: Machine) -> _Line:
    devices = machine.devices
    if not devices.gpus:
        return _Line("GPU", f"none: {devices.trouble}")
    names = ", ".join(dict.fromkeys(gpu.name for gpu in devices.gpus))
    return _Line("GPU", f"{len(devices.gpus)} × {names}, driver {devices.driver}")


def _rates(machine: Machine) -> Iterator[_Line]:
    """What was measured with the torch of this Python."""
    from perfdoctor.recording import machine_rates
    from perfdoctor.report.words import rates

    if not machine.program.torch:
        return
    found = machine_rates.of_machine(machine)
    for each in found:
        yield _Line("rates", rates.line(each))
    if not found:
        yield _Line("rates", "not measured: perfdoctor selftest --full")


def _nsys(machine: Machine, *, verbose: bool) -> _Line:
    nsys = machine.nsys
    if nsys is None:
        return _Line("nsys", "not installed", "Install Nsight Systems, put nsys on PATH, or set PERFDOCTOR_NSYS.")
    if nsys.trouble:
        return _Line("nsys", nsys.trouble, "Install it again, or set PERFDOCTOR_NSYS to another one.")
    return _Line("nsys", f"Nsight Systems {nsys.version}{f' at {nsys.path}' if verbose else ''}")


def _ncu(machine: Machine, *, verbose: bool) -> Iterator[_Line]:
    from perfdoctor.recording.tools import ncu

    if machine.ncu is None:
        yield _Line(
            "ncu", "not installed", "Install Nsight Compute and put ncu on PATH; only needed to measure kernels."
        )
        return
    yield _Line("ncu", f"Nsight Compute {ncu.version(machine.ncu)}{f' at {machine.ncu}' if verbose else ''}")
    if machine.ncu_trouble:
        yield _Line("counters", "not permitted", machine.ncu_trouble)
