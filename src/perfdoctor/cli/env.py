"""`perfdoctor env`: what can be recorded here, and what to do about the rest?"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from perfdoctor.cli import say
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.recording.plan import Machine


class _Line(Struct, frozen=True):
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
    from perfdoctor.recording.tools.torch_profiler import default_window

    machine = plan.inspect([python], dict(os.environ))
    for line in _lines(machine, python, verbose=verbose):
        if quiet and not line.do:
            continue
        say.line(f"{line.name:12}{line.found}")
        if line.do:
            say.line(f"{'':12}→ {line.do}")
    if not quiet:
        made = plan.make(machine, None, Path.cwd())
        say.line("")
        say.line("perfdoctor run -- COMMAND would record:")
        for text in made.lines(default_window().in_words()):
            say.line(f"  {text}")


def _lines(machine: Machine, python: str, *, verbose: bool) -> Iterator[_Line]:
    from perfdoctor import __version__

    elsewhere = "" if platform.system() == "Linux" else "Recording needs Linux; analysing works here."
    yield _Line("perfdoctor", f"{__version__}, Python {platform.python_version()}, {platform.system()}", elsewhere)
    yield _torch(machine, python, verbose=verbose)
    yield _gpus(machine)
    yield from _profiler(machine)
    yield _nsys(machine, verbose=verbose)
    yield from _counters(machine)
    yield _ncu(machine, verbose=verbose)
    yield _sampling(machine, verbose=verbose)
    yield from _rates(machine)
    free = shutil.disk_usage(Path.cwd()).free
    too_little = "" if free > 1 << 30 else "Record with -o DIR on another disk."
    yield _Line("disk", f"{free / 1e9:.1f} GB free here", too_little)


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


def _profiler(machine: Machine) -> Iterator[_Line]:
    """Is recording with torch.profiler worthwhile here? Always where there is torch: it needs nothing else."""
    if not machine.program.torch:
        return
    if not machine.has_gpu:
        yield _Line("torch pass", "worthwhile: ops of the CPU, and where the host's time goes")
    elif machine.nsys is None or machine.nsys.trouble:
        yield _Line("torch pass", "worthwhile: kernels, CUDA calls and ops")
    elif machine.nsys_doubt:
        yield _Line("torch pass", "what run records by default: kernels, CUDA calls and ops")
    else:
        yield _Line("torch pass", "seldom needed: nsys records the same and more; --passes torch")


def _gpus(machine: Machine) -> _Line:
    devices = machine.devices
    if not devices.gpus:
        return _Line("GPU", f"none: {devices.trouble}")
    names = ", ".join(dict.fromkeys(gpu.name for gpu in devices.gpus))
    return _Line("GPU", f"{len(devices.gpus)} × {names}, driver {devices.driver}")


def _rates(machine: Machine) -> Iterator[_Line]:
    """The rates of this machine, measured with the torch of this Python."""
    from perfdoctor.recording import machine_rates
    from perfdoctor.report.words import efficiency

    if not machine.program.torch:
        return
    found = machine_rates.of_machine(machine)
    for each in found:
        yield _Line("rates", efficiency.measured(each))
    if not found:
        yield _Line("rates", "not measured: perfdoctor selftest --full")


def _nsys(machine: Machine, *, verbose: bool) -> _Line:
    nsys = machine.nsys
    adds = "without a GPU it adds only the system's calls"
    if nsys is None and not machine.has_gpu:
        return _Line("nsys", f"not installed; {adds}")
    if nsys is None:
        return _Line("nsys", "not installed", "Install Nsight Systems, put nsys on PATH, or set PERFDOCTOR_NSYS.")
    if nsys.trouble:
        broken = "Install it again, or set PERFDOCTOR_NSYS to another one."
        return _Line("nsys", f"installed, but not usable: {nsys.trouble}", broken)
    named = _named("Nsight Systems", nsys.version, nsys.path, verbose=verbose)
    if machine.nsys_doubt:
        why, do = machine.nsys_doubt
        advice = f"{do[0].upper()}{do[1:]}; until then torch.profiler records the GPU."
        return _Line("nsys", f"installed, {named}; {why}", advice)
    worth = "worthwhile: what run records by default" if machine.has_gpu else f"{adds}: --passes nsys"
    return _Line("nsys", f"installed, {named}; {worth}")


def _counters(machine: Machine) -> Iterator[_Line]:
    """Does nsys sample the GPU's own counters here?"""
    if not machine.has_gpu or machine.nsys is None or machine.nsys.trouble:
        return
    counters = machine.counters
    if counters.trouble:
        yield _Line("counters", f"not sampled: {counters.trouble}", counters.do)
        return
    sampled = "sampled by nsys: how busy SMs, tensor cores, memory and links are"
    held = f"; {counters.doubt} runs here and may hold them" if counters.doubt else ""
    pause = "If a recording says that they are in use: dcgmi profile --pause, and --resume afterwards." if held else ""
    yield _Line("counters", sampled + held, pause)


def _sampling(machine: Machine, *, verbose: bool) -> _Line:
    tool = machine.py_spy
    if not tool.path:
        return _Line("py-spy", f"{tool.trouble.removeprefix('py-spy is ')}; it finds your own slow lines", tool.do)
    if tool.trouble:
        return _Line("py-spy", f"installed, but not usable: {tool.trouble}", tool.do)
    named = _named("py-spy", tool.version, tool.path, verbose=verbose)
    return _Line("py-spy", f"installed, {named}; names your own lines")


def _ncu(machine: Machine, *, verbose: bool) -> _Line:
    from perfdoctor.recording.tools import ncu

    path = machine.ncu
    if path is None:
        missing = "Install Nsight Compute and put ncu on PATH; only needed to measure kernels."
        return _Line("ncu", "not installed", missing) if machine.has_gpu else _Line("ncu", "not installed; needs a GPU")
    try:
        name = _named("Nsight Compute", ncu.version(path), path, verbose=verbose)
    except PerfdoctorError as error:
        return _Line("ncu", f"installed, but not usable: {error.what}", error.do)
    if not machine.has_gpu:
        return _Line("ncu", f"installed, {name}; of no use without a GPU")
    if machine.ncu_trouble:
        return _Line("ncu", f"installed, {name}; not permitted here", machine.ncu_trouble)
    return _Line("ncu", f"installed, {name}; worthwhile once kernels are what is slow: --passes nsys,ncu")


def _named(tool: str, version: str, path: str, *, verbose: bool) -> str:
    return f"{tool} {version or 'of unknown version'}{f' at {path}' if verbose else ''}"
