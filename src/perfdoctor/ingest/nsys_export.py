"""How does a report of Nsight Systems become its SQLite export? With the installed nsys, into a cache of ours.

Nothing is written beside the user's file. The cache is keyed by content, and an export appears in it whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from perfdoctor.errors import PerfdoctorError

_REPORT = b"NVIDIA Tegra Profiler Report "
_STREAM = b"NVIDIA Nsight Systems Stream "
#: A minute a gigabyte is usual; a report that takes longer than this would not be looked at either.
_TIMEOUT_S = 1_800
_NEWER = re.compile(
    r"Nsight Systems version \(([\d.]+)[^)]*\), newer than your current version \(([\d.]+)", re.IGNORECASE
)
_WRITER = re.compile(rb"Report (\d+(?:@\d+){2,3})|Stream (\d+(?:\.\d+){2,3})")
_INSTALL = (
    "Install Nsight Systems, or where the report was made: nsys export --type sqlite FILE, and analyse the .sqlite."
)


def is_report(head: bytes) -> bool:
    """Do these first bytes belong to a .nsys-rep, .qdrep or .qdstrm?"""
    return head.startswith(_REPORT) or _is_stream(head)


def _is_stream(head: bytes) -> bool:
    return _STREAM in head[:64]


def writer_version(report: Path) -> str:
    """The version of Nsight Systems that wrote a report, as far as the report tells; else ""."""
    with report.open("rb") as stream:
        head = stream.read(4_096)
        found = _WRITER.search(head)
        if found:
            return (found[1] or found[2]).replace(b"@", b".").decode()
        stream.seek(0)
        versions = re.findall(rb"(20\d\d\.\d+\.\d+\.\d+)-[0-9a-z]+", stream.read(64 << 20))
    return max(set(versions), key=versions.count).decode() if versions else ""


def find_nsys() -> str | None:
    """The nsys to use: PERFDOCTOR_NSYS, else the first on PATH."""
    return os.environ.get("PERFDOCTOR_NSYS") or shutil.which("nsys")


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "perfdoctor"


def export(report: Path, cache: Path | None = None, nsys: str | None = None) -> Path:
    """The SQLite export of a report, made now or found in the cache.

    Raises PerfdoctorError where there is no nsys, where the report is newer than it, and where the export fails.
    """
    folder = cache or cache_folder()
    target = folder / f"{report.stem}-{_digest(report)}.sqlite"
    if target.exists():
        return target
    tool = nsys or find_nsys()
    if tool is None:
        written = writer_version(report)
        by = f" by Nsight Systems {written}" if written else ""
        raise PerfdoctorError(f"{report.name} was written{by}, and no nsys is installed here", do=_INSTALL)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = _run_export(tool, report, Path(scratch))
            os.replace(made, target)
    except OSError as error:
        raise PerfdoctorError(
            f"{report.name} cannot be exported to {folder}: {error.strerror or error}",
            do="Free some space, or set XDG_CACHE_HOME to a folder that can be written.",
        ) from error
    return target


def _digest(report: Path) -> str:
    with report.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:20]


def _run_export(tool: str, report: Path, scratch: Path) -> Path:
    with report.open("rb") as stream:
        if _is_stream(stream.read(64)):
            report = _imported(tool, report, scratch)
    made = scratch / "export.sqlite"
    command = [tool, "export", "--type", "sqlite", "--force-overwrite", "true", "-o", str(made), str(report.resolve())]
    said = _output_of(command, report, scratch)
    if made.exists() and made.stat().st_size:
        return made
    newer = _NEWER.search(said)
    if newer:
        raise PerfdoctorError(
            f"{report.name} was written by Nsight Systems {newer[1]}, newer than the nsys here ({newer[2]})",
            do=f"Update Nsight Systems to {newer[1]} or newer, or export it where it was recorded and analyse the .sqlite.",
        )
    raise PerfdoctorError(
        f"nsys could not export {report.name}: {_last_line(said)}",
        do="Is the file whole? Copy it again, or try `nsys export` by hand.",
    )


def _imported(tool: str, stream: Path, scratch: Path) -> Path:
    """A .qdstrm is what nsys leaves when its importer failed; the importer lies beside nsys's host programs."""
    importer = _importer_of(tool)
    if importer is None:
        raise PerfdoctorError(
            f"{stream.name} is a raw stream that was never imported, and the importer of nsys was not found",
            do="Run QdstrmImporter on it where it was recorded, and analyse the .nsys-rep.",
        )
    report = scratch / "imported.nsys-rep"
    said = _output_of(
        [str(importer), "--input-file", str(stream.resolve()), "--output-file", str(report)], stream, scratch
    )
    if not report.exists():
        raise PerfdoctorError(
            f"the importer of nsys could not read {stream.name}: {_last_line(said)}",
            do="Import it where it was recorded.",
        )
    return report


def _importer_of(tool: str) -> Path | None:
    on_path = shutil.which("QdstrmImporter")
    if on_path:
        return Path(on_path)
    program = Path(shutil.which(tool) or tool).resolve()
    for parent in program.parents[:4]:
        found = next(parent.glob("**/host-linux-*/QdstrmImporter"), None)
        if found:
            return found
    return None


def _output_of(command: list[str], report: Path, scratch: Path) -> str:
    environment = {**os.environ, "TMPDIR": str(scratch)}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_TIMEOUT_S, env=environment, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise PerfdoctorError(
            f"{command[0]} does not exist", do="Set PERFDOCTOR_NSYS to the nsys program, or install it."
        ) from error
    except PermissionError as error:
        raise PerfdoctorError(f"{command[0]} may not be run", do="Check its permissions.") from error
    except subprocess.TimeoutExpired as error:
        raise PerfdoctorError(
            f"nsys did not export {report.name} within {_TIMEOUT_S // 60} minutes",
            do="Export it by hand, or record fewer steps.",
        ) from error
    return (done.stdout + b"\n" + done.stderr).decode("utf-8", errors="replace")


def _last_line(said: str) -> str:
    """Nsys's own last word, without its progress bars."""
    lines = [
        line.strip() for line in re.split(r"[\r\n]+", said) if line.strip() and "%" not in line and "[=" not in line
    ]
    return lines[-1][:200] if lines else "it said nothing"
