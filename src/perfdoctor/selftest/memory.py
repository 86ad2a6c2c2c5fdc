"""Does a snapshot of torch's CUDA memory reach a diagnosis?"""

from __future__ import annotations

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read
from perfdoctor.report.words.wording import counted
from perfdoctor.selftest import chain
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.trials import Runner

NAME = "memory snapshot"
FILE = "snapshot.pickle"
_PROGRAM = f"""
import torch
torch.cuda.memory._record_memory_history(max_entries=1000)
kept = [torch.empty(1 << 20, device="cuda") for _ in range(4)]
del kept[::2]
torch.cuda.memory._dump_snapshot({FILE!r})
"""


def snapshot(runner: Runner, python: str, *, has_gpu: bool) -> ToolCheck:
    """Record a snapshot of memory with torch's own recorder, and read it."""
    if not has_gpu:
        return ToolCheck(NAME, Verdict.ABSENT, "torch records the memory of a GPU, and there is none")
    ran = runner.plain([python, "-c", f"import os; os.chdir({str(runner.folder)!r})\n{_PROGRAM}"])
    file = runner.folder / FILE
    if not file.is_file():
        trouble = chain.known_trouble(ran.errors, f"torch wrote no snapshot (it ended with {ran.code})")
        return ToolCheck(NAME, Verdict.FAILED, trouble.what, trouble.do, ran.seconds)
    try:
        timeline = read([file])
    except PerfdoctorError as error:
        return ToolCheck(NAME, Verdict.FAILED, error.what, error.do, ran.seconds)
    count = len(timeline.frames["allocations"])
    verdict = Verdict.WORKS if count else Verdict.FAILED
    return ToolCheck(NAME, verdict, f"{counted(count, 'allocation')} read", "" if count else "Report it.", ran.seconds)
