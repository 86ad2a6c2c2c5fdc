"""What does this machine give: measured, and kept for the diagnoses of later recordings?"""

from __future__ import annotations

import time

from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.recording import machine_rates
from perfdoctor.recording.plan import Machine
from perfdoctor.report.words import efficiency
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.trials import Runner

NAME = "machine rates"


def measured(runner: Runner, machine: Machine, python: str, *, quick: bool) -> ToolCheck:
    """Measures, and keeps it. What was measured at length is not replaced by what was measured in brief."""
    began = time.monotonic()
    try:
        rates = machine_rates.measure(python, runner.environment, quick=quick)
    except PerfdoctorError as error:
        return ToolCheck(NAME, Verdict.FAILED, error.what, error.do, time.monotonic() - began)
    kept = any(not each.quick for each in machine_rates.of_machine(machine)) if quick else False
    stored = kept or machine_rates.store(rates) is not None
    return _check(rates, time.monotonic() - began, stored=stored)


def _check(rates: MeasuredRates, seconds: float, *, stored: bool) -> ToolCheck:
    numbers = {
        f"{each.what}{f' {each.data_type}' if each.data_type else ''}": each.median for each in rates.measurements
    }
    found = efficiency.measured(rates)
    if not rates.measurements:
        do = "; ".join(dict.fromkeys(each.error for each in rates.failed))
        return ToolCheck(NAME, Verdict.FAILED, found, do, seconds, numbers)
    if rates.failed:
        parts = ", ".join(dict.fromkeys(f"{each.what} {each.data_type}".strip() for each in rates.failed))
        return ToolCheck(
            NAME, Verdict.LIMITED, found, f"Not measured: {parts} ({rates.failed[0].error})", seconds, numbers
        )
    if not stored:
        do = "The cache cannot be written: set XDG_CACHE_HOME to a folder that can."
        return ToolCheck(NAME, Verdict.LIMITED, found, do, seconds, numbers)
    return ToolCheck(NAME, Verdict.WORKS, found, "", seconds, numbers)
