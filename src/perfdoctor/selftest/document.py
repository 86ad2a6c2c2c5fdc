"""What is kept of a self-test: one JSON document, and one line for a bug report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from perfdoctor import __version__
from perfdoctor.recording.plan import Machine
from perfdoctor.recording.tools import ncu
from perfdoctor.selftest.checks import ToolCheck, Verdict

FORMAT = 1


def document(machine: Machine, checks: Sequence[ToolCheck], *, full: bool) -> dict[str, Any]:
    """The self-test as JSON: `{"format", "perfdoctor", "machine", "full", "works", "checks"}`; no host or user."""
    return {
        "format": FORMAT,
        "perfdoctor": __version__,
        "machine": machine_facts(machine),
        "full": full,
        "works": works(checks),
        "checks": [
            {
                "name": each.name, "verdict": each.verdict.value, "found": each.found, "do": each.do,
                "seconds": round(each.seconds, 3), "numbers": dict(each.numbers),
            }
            for each in checks
        ],
    }  # fmt: skip


def machine_facts(machine: Machine) -> dict[str, Any]:
    """What a reader of the results must know of the machine, "" where there is none of it."""
    program, devices = machine.program, machine.devices
    return {
        "system": f"{platform.system()} {platform.release()}", "python": program.python, "torch": program.torch,
        "cuda": program.cuda, "gpus": [gpu.name for gpu in devices.gpus], "driver": devices.driver,
        "nsys": machine.nsys.version if machine.nsys else "", "ncu": ncu.version(machine.ncu) if machine.ncu else "",
    }  # fmt: skip


def works(checks: Sequence[ToolCheck]) -> bool:
    """Does all that is installed work? What is not here is no fault."""
    return not any(each.verdict is Verdict.FAILED for each in checks)


def line_for_a_report(machine: Machine, checks: Sequence[ToolCheck]) -> str:
    """One line that can be pasted into a bug report."""
    facts = machine_facts(machine)
    gpus = ", ".join(dict.fromkeys(facts["gpus"])) or "none"
    parts = [
        f"perfdoctor {__version__}", facts["system"], f"Python {facts['python'] or 'unknown'}",
        f"torch {facts['torch'] or 'none'}", f"GPU {gpus}", f"driver {facts['driver'] or 'none'}",
        f"nsys {facts['nsys'] or 'none'}", f"ncu {facts['ncu'] or 'none'}",
    ]  # fmt: skip
    marks = [f"{each.name}: {_MARKS[each.verdict]}" for each in checks if each.verdict is not Verdict.ABSENT]
    return " | ".join([*parts, *marks])


_MARKS = {Verdict.WORKS: "ok", Verdict.LIMITED: "limited", Verdict.FAILED: "FAILED", Verdict.ABSENT: "-"}
