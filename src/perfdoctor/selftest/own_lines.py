"""Does a recording name the line of the program's own code that takes its time?"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.report.words.wording import counted
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.trials import RecordedTrial

NAME = "own lines"
_NO_STACKS = "not sampled"
_MORE_STEPS = "Record more steps: perfdoctor run --steps 50. On a busy machine py-spy has few samples."


def lines(tool: PySpy, ran: RecordedTrial, rule: str) -> ToolCheck:
    """Of the finding by this rule, in a run with the default options."""
    if not tool.path:
        return ToolCheck(NAME, Verdict.ABSENT, tool.trouble, tool.do)
    if tool.trouble:
        return ToolCheck(NAME, Verdict.LIMITED, tool.trouble, tool.do)
    found: Sequence[dict[str, object]] = (ran.finding(rule) or {}).get("lines", ())
    if found:
        first = found[0]
        place = f"{first['file']}:{first['line']} in {first['function']}"
        return ToolCheck(NAME, Verdict.WORKS, f"{place} by {counted(int(str(first['samples'])), 'sample')}")
    why = next((line for line in (*ran.notes, *ran.messages.splitlines()) if _NO_STACKS in line), "")
    if why:
        return ToolCheck(NAME, Verdict.LIMITED, why[:200], "Findings name no lines here; nothing else changes.")
    return ToolCheck(NAME, Verdict.LIMITED, "no sample lies in the time of the finding", _MORE_STEPS)
