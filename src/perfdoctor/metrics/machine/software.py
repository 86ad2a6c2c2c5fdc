"""Which torch, CUDA and driver was it recorded with, and which variables of its environment matter?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.system.run_folder import RunFolder

if TYPE_CHECKING:
    from perfdoctor.model.run import Run  # the history reads its facts without a timeline

#: They say which rank a process is, not how it runs.
_OF_ONE_RANK = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


class Software(Struct, frozen=True):
    """Versions, "" where not recorded; several of torch are separated by commas. `environment`: None if unknown."""

    torch: str = ""
    cuda: str = ""
    driver: str = ""
    environment: dict[str, str] | None = None


def software(run: Run, folder: RunFolder | None) -> Software:
    """The software that the processes of a run folder reported, and that measuring the machine found."""
    measured = next((rates.machine for rates in run.timeline.measured), None)
    reports = [report for each in folder.manifest.passes for report in folder.reports(each.name)] if folder else []
    recorded = folder.manifest.environment if folder else None
    torch = {report.torch for report in reports if report.torch} or {measured.torch if measured else ""}
    return Software(
        ", ".join(sorted(torch - {""})), measured.cuda if measured else "", measured.driver if measured else "",
        {name: value for name, value in recorded.items() if name not in _OF_ONE_RANK} if recorded else None,
    )  # fmt: skip
