"""How is a report of Nsight Compute read with an installed ncu?

It prints two pages as CSV: `raw` with every metric in base units, `details` with the results of NVIDIA's rules.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.ncu import csv_pages as ncu_csv
from perfdoctor.readers.ncu.metric_names import Launch
from perfdoctor.system import tool_process

#: A few hundred launches are printed in seconds; a report that takes longer than this is too large to analyse.
TIMEOUT_S = 600
#: Environment variables that ncu gets, and no others; numbers are written as in the C locale. Without HOME it leaves no
#: copy of its section files in the user's Documents.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
_LOCALE = {"LC_ALL": "C"}


def read_launches(ncu: str, report: Path) -> tuple[Launch, ...]:
    """All launches of a report, in its order. PerfdoctorError where ncu cannot read it."""
    measured = ncu_csv.parse(_page(ncu, report, "raw", "--print-units", "base"), report.name).launches
    try:
        advised = ncu_csv.parse(_page(ncu, report, "details"), report.name).launches
    except PerfdoctorError:  # an old ncu prints no results of rules
        return measured
    if [each.name for each in advised] != [each.name for each in measured]:
        return measured
    return tuple(replace(one, advice=other.advice) for one, other in zip(measured, advised, strict=True))


def _page(ncu: str, report: Path, page: str, *options: str) -> bytes:
    """One page of a report, as CSV."""
    too_slow = PerfdoctorError(
        f"ncu did not print `{report.name}` within {TIMEOUT_S} seconds", do="Measure fewer kernels."
    )
    code, output, errors = tool_process.run(
        [ncu, "--import", str(report), "--csv", "--page", page, *options],
        environment=tool_process.environment(*_PASSED_ON) | _LOCALE, timeout_s=TIMEOUT_S,
        not_started="Set PERFDOCTOR_NCU to the ncu program.", too_slow=too_slow,
    )  # fmt: skip
    if not code and ncu_csv.looks_like(output):
        return output
    lines = [line.strip() for line in (output + errors).decode("utf-8", errors="replace").splitlines() if line.strip()]
    raise PerfdoctorError(
        f"ncu could not print `{report.name}`: {lines[-1][:200] if lines else 'it printed nothing'}",
        do="An old ncu cannot read a new one's report: update it, or pip install 'perfdoctor[ncu]'.",
    )
