"""How much of the idle is left unexplained on real recordings that show what the host did?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from labels import cases, recordings
from rich.console import Console
from rich.table import Table

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.readers.open import read


def tells_of_the_host(run: Run) -> bool:
    """Calls, and what they were made for: without both no cause can be known."""
    recorded = run.timeline.recorded
    return "calls" in recorded and bool(recorded & {"ops", "ranges"}) and any(p.device is not None for p in run.places)


def unknown_idle(folder: Path) -> Iterator[tuple[str, int, int, Counter[str]]]:
    """Path, window, idle, and idle by cause (ns over all places) of each labelled recording with evidence of the host."""
    for case in cases():
        try:
            run = prepare(read([folder / case["path"]]))
        except PerfdoctorError:
            continue
        if tells_of_the_host(run):
            causes: Counter[str] = Counter()
            for place in run.places:
                causes.update({cause: pieces.total_ns for cause, pieces in place.idle_causes.items()})
            yield case["path"], sum(p.window_ns for p in run.places), sum(p.idle.total_ns for p in run.places), causes


def main() -> int:
    folder = recordings()
    if folder is None:
        print("The recordings are not on this machine: set PERFDOCTOR_RECORDINGS to their folder.")
        return 1
    table = Table("recording", "idle of window", "unknown of idle", "largest causes of idle", box=None, pad_edge=False)
    shares, total, unknown = [], 0, 0
    for path, window_ns, idle_ns, causes in unknown_idle(folder):
        shares.append(causes["unknown"] / idle_ns if idle_ns else 0.0)
        total, unknown = total + idle_ns, unknown + causes["unknown"]
        largest = ", ".join(f"{name} {ns / idle_ns:.1%}" for name, ns in causes.most_common(4) if ns)
        table.add_row(path, f"{idle_ns / window_ns:.1%}", f"{shares[-1]:.1%}", largest)
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    mean = sum(shares) / max(len(shares), 1)
    print(f"{len(shares)} recordings; of idle, unknown is {unknown / max(total, 1):.1%} in all, {mean:.1%} on the mean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
