"""The page `kernels`."""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.findings import Diagnosis
from perfdoctor.metrics.run import Run
from perfdoctor.views import Table


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table]:
    yield from ()
