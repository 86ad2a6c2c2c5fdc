"""At which instants were stacks sampled? A row of `stack_samples` stands for all successive samples of one stack."""

from __future__ import annotations

import numpy as np

from perfdoctor.model.timeline import Frame, Ints


def instants(rows: Frame) -> tuple[Ints, Ints]:
    """(row, ns) of each sample: those of a row are spread evenly over its time, the first one at its start."""
    counts = rows["samples"]
    row = np.repeat(np.arange(counts.size), counts)
    number = np.arange(row.size) - (np.cumsum(counts) - counts)[row]
    return row, rows.start_ns[row] + number * rows.duration_ns[row] // counts[row]
