"""What comes back from the machine? One folder, written as recordings end, and packed into few files to be carried.

selftest.json  selftest.txt   what was checked, and what came of it
environment.txt               what `perfdoctor env` says, and NVIDIA's own tools
timings.json                  seconds of each part
left-out.txt                  what was too large or damaged, and why
private.txt                   what still tells of the machine: look before you share it
runs/<training>-<pass>/       run folders, scrubbed and cut, with ncu's own reports
packed/results-<n>.tar.gz     all of it, in files of at most 15 MiB
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path

import kept
import scrub

#: A way back that was met: at most eight files of 16 MiB. One is left for whatever goes with them.
MOST_BYTES_PACKED = 15 << 20
MOST_PACKS = 7
#: Fixtures are cut to less at home; what comes back has as many steps as fit.
MOST_BYTES_RECORDING = 3_000_000
_MOST_BYTES_NCU = 4 << 20


class Results:
    """The folder of results, and which recordings are in it already."""

    def __init__(self, folder: Path, packed: Path, recordings: Path) -> None:
        self.folder, self.packed, self.recordings = folder, packed, recordings
        self.timings: dict[str, float] = {}
        self._kept: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._began = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        packed.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def add(self, name: str, line: str) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(line.rstrip("\n") + "\n")

    def timed(self, what: str, began: float) -> None:
        self.timings[what] = round(time.monotonic() - began, 2)
        self.write("timings.json", json.dumps(self.timings, indent=1) + "\n")

    def collect(self, *, all_of_them: bool = False) -> int:
        """Keep the run folders that are complete, or all; how many were added.

        A run is exported and diagnosed after its program has ended: it is complete when the next one has begun.
        """
        found = sorted((run.parent for run in self.recordings.glob("*/run.json")), key=_began_ns)
        new = [run for run in (found if all_of_them else found[:-1]) if run.name not in self._kept]
        for run in new:
            self._kept.add(run.name)
            self._keep(run)
        return len(new)

    def _keep(self, run: Path) -> None:
        target = self.folder / "runs" / run.name
        try:
            for line in kept.keep(run, target, MOST_BYTES_RECORDING):
                self.add("left-out.txt", f"{run.name}: {line}")
        except Exception as error:  # noqa: BLE001 one damaged recording must not cost the others
            self.add("left-out.txt", f"{run.name}: {type(error).__name__}: {error}")
        for file in (path for path in sorted(target.rglob("*")) if path.is_file()):
            for what in scrub.private(file):
                self.add("private.txt", f"{file.relative_to(self.folder)}: {what}")
        self._keep_reports(run, target)
        self.timings[f"until {run.name}"] = round(time.monotonic() - self._began, 2)
        self.write("timings.json", json.dumps(self.timings, indent=1) + "\n")

    def _keep_reports(self, run: Path, target: Path) -> None:
        """As ncu wrote them: they cannot be scrubbed, and become no fixtures."""
        for report in sorted(run.glob("ncu/*.ncu-rep")):
            if report.stat().st_size > _MOST_BYTES_NCU:
                self.add("left-out.txt", f"{run.name}: {report.name} has {report.stat().st_size / 1e6:.1f} MB")
                continue
            (target / "ncu").mkdir(parents=True, exist_ok=True)
            shutil.copy(report, target / "ncu" / report.name)

    def pack(self) -> list[Path]:
        """Everything into as few archives as fit, each of which opens by itself."""
        packs, left = self._grouped()
        if left:
            self.write("not-packed.txt", "\n".join(path.name for path in left) + "\n")
        return [
            _put(self.packed / f"results-{number}.tar.gz", _archive(paths, self.folder))
            for number, paths in enumerate(packs, 1)
        ]

    def _grouped(self) -> tuple[list[list[Path]], list[Path]]:
        """What goes into which archive, and what into none; what was checked comes first, a run is never divided."""
        packs: list[list[Path]] = [[path for path in sorted(self.folder.iterdir()) if path.is_file()]]
        used, left = len(_archive(packs[0], self.folder)), []
        for run in sorted((self.folder / "runs").glob("*")):
            size = self._packed_bytes(run)
            if used + size > MOST_BYTES_PACKED:
                if len(packs) == MOST_PACKS:
                    left.append(run)
                    continue
                packs.append([])
                used = 0
            packs[-1].append(run)
            used += size
        return packs, left

    def _packed_bytes(self, run: Path) -> int:
        if run.name not in self._sizes:
            self._sizes[run.name] = len(_archive([run], self.folder))
        return self._sizes[run.name]


def _began_ns(run: Path) -> int:
    try:
        return int(json.loads((run / "run.json").read_text("utf-8"))["started_unix_ns"])
    except (OSError, ValueError, KeyError):  # being written, or damaged
        return 0


def _archive(members: Iterable[Path], folder: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=6) as archive:
        for path in members:
            archive.add(path, Path("results") / path.relative_to(folder))
    return made.getvalue()


def _put(file: Path, content: bytes) -> Path:
    """Whole or not at all: this may be ended at any moment."""
    draft = file.with_suffix(".tmp")
    draft.write_bytes(content)
    draft.replace(file)
    return file
