"""What do we say of a report of Nsight Compute that cannot be read?"""

from __future__ import annotations

from pathlib import Path

from perfdoctor.errors import PerfdoctorError


def unreadable(report: Path, why: str, *, otherwise: str) -> PerfdoctorError:
    """The error. `otherwise`: what else than damage it may be, and what helps then."""
    do = f"Open it in Nsight Compute to see whether it is damaged. {otherwise}"
    return PerfdoctorError(f"`{report.name}` cannot be read: {why}", do=do)
