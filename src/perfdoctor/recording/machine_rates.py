"""How fast is this machine with the torch of a program? Measure it, keep the rates, and copy them beside a recording.

Rates are kept in the user's cache by device, driver and torch: another driver or torch has other kernels and rates.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware import measured
from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.recording.plan import Machine
from perfdoctor.system import tool_process
from perfdoctor.system.paths import cache_folder, write_whole
from perfdoctor.system.processors import processor_name
from perfdoctor.system.run_folder import RunFolder

#: Beside a recording: the folder of the run, and what the first file is called there.
FOLDER, PATTERN = "device", "measured*.json"
_SCRIPT = Path(__file__).parent / "measuring" / "measure.py"
#: The script ends what hangs by itself; this is for a Python that never gets so far.
_LONGEST_S = 400.0
_LONGEST_PART = 80


def measure(python: str, environment: Mapping[str, str], *, quick: bool) -> MeasuredRates:
    """Measure this machine with the torch of `python`, which takes seconds. Parts that failed are in `failed`.

    PerfdoctorError where that Python does not start, has no torch, or prints no such document.
    """
    do = "Give the Python that trains: --python PROGRAM"
    words = [python, str(_SCRIPT), "--processor", processor_name(), *(["--quick"] if quick else [])]
    code, output, errors = tool_process.run(
        words, environment=environment, timeout_s=_LONGEST_S, not_started=do,
        too_slow=PerfdoctorError("the machine could not be measured in time", do="Try again while it is idle."),
    )  # fmt: skip
    if code:
        last = (errors.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"])[-1]
        raise PerfdoctorError(f"the machine cannot be measured with {python}: {last}", do=do)
    return measured.parsed((output.splitlines() or [b""])[-1], "what was measured")


def store(rates: MeasuredRates) -> Path | None:
    """Keep the rates for later recordings, and return their file; None where the cache cannot be written."""
    machine = rates.machine
    try:
        target = _file(machine.device, machine.driver, machine.torch)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, measured.encoded(rates))
    except (OSError, RuntimeError):
        return None
    return target


def stored(device: str, driver: str, torch: str) -> MeasuredRates | None:
    """The kept rates of this device, driver and torch; None where there are none, or the file is damaged."""
    try:
        rates = measured.load(_file(device, driver, torch))
    except (PerfdoctorError, RuntimeError):
        return None
    machine = rates.machine  # two names may have one file
    return rates if (machine.device, machine.driver, machine.torch) == (device, driver, torch) else None


def of_machine(machine: Machine) -> tuple[MeasuredRates, ...]:
    """The kept rates of this machine with its program's torch, one for each kind of GPU."""
    torch, devices = machine.program.torch, machine.devices
    if not torch:
        return ()
    names = dict.fromkeys(gpu.name for gpu in devices.gpus) or {processor_name(): None}
    found = (stored(name, devices.driver if devices.gpus else "", torch) for name in names)
    return tuple(rates for rates in found if rates is not None)


def keep_beside(folder: RunFolder, machine: Machine) -> None:
    """Copy the machine's rates into the folder of a run, so that the run is analysed with them on any machine."""
    for number, rates in enumerate(of_machine(machine), 1):
        name = PATTERN.replace("*", f"-{number}" if number > 1 else "")
        with contextlib.suppress(OSError):  # a full disk must not change the program's exit code
            (folder.make(FOLDER) / name).write_bytes(measured.encoded(rates))


def _file(device: str, driver: str, torch: str) -> Path:
    parts = (re.sub(r"[^0-9A-Za-z.+]+", "-", part)[:_LONGEST_PART].strip("-") for part in (device, driver, torch))
    return cache_folder() / "machines" / f"{'-'.join(part or 'none' for part in parts)}.json"
