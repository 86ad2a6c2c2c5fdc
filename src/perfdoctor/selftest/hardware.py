"""What does this machine's hardware give: rates, kept for later diagnoses, and snapshots of a GPU's memory?"""

from __future__ import annotations

import time

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read
from perfdoctor.recording import machine_rates
from perfdoctor.recording.plan import Machine
from perfdoctor.report.words import efficiency
from perfdoctor.report.words.wording import counted
from perfdoctor.selftest import chain
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.trials import Runner

_RATES, _MEMORY = "machine rates", "memory snapshot"
SNAPSHOT = "snapshot.pickle"
_PROGRAM = f"""
import torch
torch.cuda.memory._record_memory_history(max_entries=1000)
kept = [torch.empty(1 << 20, device="cuda") for _ in range(4)]
del kept[::2]
torch.cuda.memory._dump_snapshot({SNAPSHOT!r})
"""


def measured(runner: Runner, machine: Machine, python: str, *, quick: bool) -> ToolCheck:
    """Measure the machine and keep its rates; those of a `quick` measurement never replace full ones."""
    began = time.monotonic()
    try:
        rates = machine_rates.measure(python, runner.environment, quick=quick)
    except PerfdoctorError as error:
        return ToolCheck(_RATES, Verdict.FAILED, error.what, error.do, time.monotonic() - began)
    kept = any(not each.quick for each in machine_rates.of_machine(machine)) if quick else False
    stored = kept or machine_rates.store(rates) is not None
    verdict, do = Verdict.WORKS, ""
    if not rates.measurements:
        verdict, do = Verdict.FAILED, "; ".join(dict.fromkeys(each.error for each in rates.failed))
    elif rates.failed:
        parts = ", ".join(dict.fromkeys(f"{each.what} {each.data_type}".strip() for each in rates.failed))
        verdict, do = Verdict.LIMITED, f"Not measured: {parts} ({rates.failed[0].error})"
    elif not stored:
        verdict, do = Verdict.LIMITED, "The cache cannot be written: set XDG_CACHE_HOME to a folder that can."
    numbers = {f"{each.what} {each.data_type}".strip(): each.median for each in rates.measurements}
    return ToolCheck(_RATES, verdict, efficiency.measured(rates), do, time.monotonic() - began, numbers)


def memory_snapshot(runner: Runner, python: str, *, has_gpu: bool) -> ToolCheck:
    """Record a snapshot of memory with torch's own recorder, and read it."""
    if not has_gpu:
        return ToolCheck(_MEMORY, Verdict.ABSENT, "torch records the memory of a GPU, and there is none")
    ran = runner.plain([python, "-c", f"import os; os.chdir({str(runner.folder)!r})\n{_PROGRAM}"])
    file = runner.folder / SNAPSHOT
    if not file.is_file():
        what = f"torch wrote no snapshot (it ended with {ran.code})"
        return chain.failed(_MEMORY, ran.errors, what, ran.seconds)
    try:
        timeline = read([file])
    except PerfdoctorError as error:
        return ToolCheck(_MEMORY, Verdict.FAILED, error.what, error.do, ran.seconds)
    count = len(timeline.frames["allocations"])
    verdict, do = (Verdict.WORKS, "") if count else (Verdict.FAILED, "Report it.")
    return ToolCheck(_MEMORY, verdict, f"{counted(count, 'allocation')} read", do, ran.seconds)
