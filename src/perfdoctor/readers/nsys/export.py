"""How does a report of Nsight Systems become its SQLite export? With the installed nsys, into a cache.

Nothing is written beside the user's file. The cache is keyed by name, content, the nsys that made the export and the
tables that it was asked for; an export appears in it complete or not at all. An export contains the environment of the
recorded program: only its owner may read it. Only the tables that are read are asked for, where nsys can limit them:
that takes a third of the processor time and a fifth of the space, for samples of call stacks are most of a report.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.system import nsys_importer, tool_process
from perfdoctor.system.paths import cache_folder
from perfdoctor.system.progress import Progress, silent

_REPORT = b"NVIDIA Tegra Profiler Report "
_STREAM = b"NVIDIA Nsight Systems Stream "
#: A gigabyte usually takes a minute; a report that takes longer than this is too large to analyse.
TIMEOUT_S = 1_800
_WITH_PAYLOADS = "--include-blobs=true"
#: The tables that `perfdoctor.readers.nsys` reads, as patterns that match whole names: some have a version behind them.
_READ = tuple(
    f"{table}.*"
    for table in (
        *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in (
            "KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET", "RUNTIME", "OVERHEAD", "SYNCHRONIZATION")),
        "CUDA_GPU_MEMORY_USAGE_EVENTS", "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMA", "OSRT_API", "PROFILER_OVERHEAD",
        "StringIds", "ThreadNames", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME", "META_DATA_CAPTURE",
        "META_DATA_EXPORT", "EXPORT_META_DATA", "DIAGNOSTIC_EVENT", "GPU_METRICS", "TARGET_INFO_GPU_METRICS",
    )
)  # fmt: skip
_TABLES = f"--tables={','.join(_READ)}"
_IS_READ = regex("|".join(_READ), re.IGNORECASE)
_LIMITED = "-" + hashlib.sha256(_TABLES.encode()).hexdigest()[:8]
#: Environment variables that nsys needs, whose recipes run the python3 on PATH. It gets no others, so they cannot
#: appear in what it writes.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
_NEWER = regex(r"Nsight Systems version \(([\d.]+)[^)]*\), newer than your current version \(([\d.]+)", re.IGNORECASE)
#: Since 2024 a report begins with its writer's version, `Report 2026@2@1@210-…`, before with `Report 1.`; streams
#: always have the version.
_WRITER = regex(rb"(?:Report|Stream) (20\d\d(?:[@.]\d+){2,3})")
_WRITER_INSIDE = regex(rb"(?<![\d.])(20\d\d\.\d+\.\d+\.\d+)-[0-9a-z]{7,}")
_SEARCHED_BYTES = 64 << 20
_LONGEST_STEM = 80


def is_report(head: bytes) -> bool:
    """Do these first bytes (64 are enough) belong to a .nsys-rep, .qdrep or .qdstrm?"""
    return head.startswith(_REPORT) or _STREAM in head[:64]


def is_table_read(table: str) -> bool:
    """Is the table of this name one of those that are exported to be read?"""
    return _IS_READ.fullmatch(table) is not None


def writer_version(report: Path) -> str:
    """The version of Nsight Systems that wrote a report, such as 2026.2.1; "" where the report does not contain it."""
    with report.open("rb") as stream:
        found = _WRITER.search(stream.read(256))
        stream.seek(0)
        # Old reports have it further inside, several times, beside the versions of other tools.
        inside = [] if found else _WRITER_INSIDE.findall(stream.read(_SEARCHED_BYTES))
    if found:
        return _short(found[1].replace(b"@", b".").decode())
    return _short(max(set(inside), key=inside.count).decode()) if inside else ""


def _short(version: str) -> str:
    return ".".join(version.split(".")[:3])


def export(
    report: Path,
    cache: Path | None = None,
    nsys: str | None = None,
    *,
    progress: Progress = silent,
    whole: bool = False,
) -> Path:
    """The SQLite export of a report, made now or found in the cache: of the tables that are read, or `whole`.

    Raises PerfdoctorError where the report cannot be read, is newer than nsys, or cannot be exported, and where there
    is no nsys. `progress` gets one line if nsys has to run.
    """
    folder, tool = cache or cache_folder(), nsys or tool_process.find("nsys")
    try:
        content = f"{os.fsencode(report.stem)[:_LONGEST_STEM].decode(errors='replace')}-{_digest(report)}"
        made_by = f"{content}-{_build(tool)}"
        target = folder / f"{made_by}{'' if whole else _LIMITED}.sqlite"
        if kept := _kept(folder, made_by if tool else f"{content}-*", whole=whole):
            return kept
        if tool is None:
            raise _no_nsys(report)
    except OSError as error:
        raise PerfdoctorError(
            f"`{report.name}` cannot be read: {error.strerror or error}", do="Check the path and its permissions."
        ) from error
    progress(f"Exporting {report.name} with nsys")
    return _exported(report, target, tool, whole=whole)


def _kept(folder: Path, made_by: str, *, whole: bool) -> Path | None:
    """What the cache holds of a report: whole, or as much as is asked for. `made_by` may hold a star for any nsys."""
    name = re.escape(made_by).replace(r"\*", "[0-9a-f]+")
    wanted = regex(f"{name}{'' if whole else f'({_LIMITED})?'}[.]sqlite")
    files = [file for file in (folder.iterdir() if folder.is_dir() else ()) if wanted.fullmatch(file.name)]
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


def _build(tool: str | None) -> str:
    """What distinguishes one nsys from another, without starting it: by the time and the size of its program."""
    program = Path(shutil.which(tool or "") or tool or "").resolve()
    build = program.stat() if program.is_file() else None
    seen = f"{build.st_mtime_ns} {build.st_size}" if build else ""
    return hashlib.sha256(seen.encode()).hexdigest()[:8]


def export_beside(report: Path, nsys: str | None = None) -> Path:
    """The export of a report that perfdoctor recorded, written beside it: the run can then be read without nsys.

    It is whole: `nsys stats` takes what lies beside a report for its export.
    """
    target = report.absolute().with_suffix(".sqlite")
    if target.exists():
        return target
    tool = nsys or tool_process.find("nsys")
    if tool is None:
        raise _no_nsys(report)
    return _exported(report, target, tool, whole=True)


def _digest(report: Path) -> str:
    with report.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:20]


def _no_nsys(report: Path) -> PerfdoctorError:
    version = writer_version(report)
    by = f"Nsight Systems {version}" if version else "Nsight Systems"
    return PerfdoctorError(
        f"`{report.name}` was written by {by} and no nsys is installed here",
        do=f"Install {by}{' or newer' if version else ''}, or export it where it was recorded: "
        f"nsys export --type sqlite {report.name}, and analyse the .sqlite",
    )


def _exported(report: Path, target: Path, tool: str, *, whole: bool) -> Path:
    """The export, made at `target`, which is there whole or not at all."""
    folder = target.parent
    tool = str(Path(shutil.which(tool) or tool).absolute())  # nsys runs in a temporary folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix="export-", dir=folder) as scratch:
            made = _run_export(tool, report, Path(scratch), whole=whole)
            made.chmod(0o600)
            made.replace(target)
    except OSError as error:
        raise PerfdoctorError(
            f"`{report.name}` cannot be exported to {folder}: {error.strerror or error}",
            do="Free some space there, or set XDG_CACHE_HOME to a folder that can be written.",
        ) from error
    return target


def _run_export(tool: str, report: Path, scratch: Path, *, whole: bool) -> Path:
    with report.open("rb") as stream:
        source = _imported(tool, report, scratch) if _STREAM in stream.read(64) else report.resolve()
    made = scratch / "export.sqlite"
    # On failure nsys may leave a part of the export: only its exit code shows that the file is whole.
    command = [tool, "export", "--type", "sqlite", "--output", str(made)]
    # NCCL writes the sizes of its messages into NVTX payloads, which newer versions of nsys export with this option.
    options = [_WITH_PAYLOADS] if whole else [_WITH_PAYLOADS, _TABLES]
    code, printed = _run([*command, *options, str(source)], report, scratch)
    while code != 0 and (unknown := [each for each in options if each.partition("=")[0] in printed]):
        options = [each for each in options if each not in unknown]
        code, printed = _run([*command, *options, str(source)], report, scratch)
    if code == 0 and made.exists():
        return made
    if newer := _NEWER.search(printed):
        written, here = _short(newer[1]), _short(newer[2])
        raise PerfdoctorError(
            f"`{report.name}` was written by Nsight Systems {written}, newer than the nsys installed here ({here})",
            do=f"Install Nsight Systems {written} or newer, or export it where it was recorded: "
            f"nsys export --type sqlite {report.name}, and analyse the .sqlite",
        )
    raise _failed("nsys could not export", report, code, printed, scratch)


def _imported(tool: str, stream: Path, scratch: Path) -> Path:
    """The report made of a .qdstrm, which nsys leaves if its importer fails. The importer changes its input: a copy."""
    importer = nsys_importer.find(tool)
    if importer is None:
        raise PerfdoctorError(
            f"`{stream.name}` is a raw stream that was never imported, and nsys's QdstrmImporter was not found here",
            do=f"Run QdstrmImporter -i {stream.name} where it was recorded, and analyse the .nsys-rep it makes",
        )
    copy = Path(shutil.copyfile(stream, scratch / "stream.qdstrm"))
    report = scratch / "imported.nsys-rep"
    code, printed = _run([str(importer), "--input-file", str(copy), "--output-file", str(report)], stream, scratch)
    if code == 0 and report.exists():
        return report
    raise _failed("nsys's QdstrmImporter could not import", stream, code, printed, scratch)


def _run(command: list[str], report: Path, scratch: Path) -> tuple[int, str]:
    """Run nsys for a report, and return its exit code and what it printed."""
    too_slow = PerfdoctorError(
        f"nsys did not export `{report.name}` within {TIMEOUT_S // 60} minutes",
        do=f"Export it by hand, nsys export --type sqlite {report.name}, or record fewer steps",
    )
    code, printed, _ = run_nsys(command, scratch, TIMEOUT_S, too_slow, merged=True)
    return code, printed.decode("utf-8", errors="replace")


def run_nsys(
    command: list[str], scratch: Path, timeout_s: float, too_slow: PerfdoctorError, *, merged: bool = False
) -> tuple[int, bytes, bytes]:
    """Run nsys in the folder `scratch`, as `tool_process.run` does, with the few variables that it needs."""
    return tool_process.run(
        command, environment=tool_process.environment(*_PASSED_ON) | {"TMPDIR": str(scratch)}, timeout_s=timeout_s,
        not_started="Set PERFDOCTOR_NSYS to the nsys program.", too_slow=too_slow, folder=scratch, merged=merged,
    )  # fmt: skip


def _failed(what: str, report: Path, code: int, printed: str, scratch: Path) -> PerfdoctorError:
    """Why nsys failed: by the disk's free space, else by its exit code and what it printed."""
    if shutil.disk_usage(scratch).free < max(report.stat().st_size, 1 << 20):
        return PerfdoctorError(
            f"{what} `{report.name}`: the disk of {scratch.parent} is full",
            do="Free some space there, or set XDG_CACHE_HOME to a folder with more.",
        )
    why = f"it was ended by signal {-code}" if code < 0 else last_line(printed, scratch)
    return PerfdoctorError(
        f"{what} `{report.name}`: {why}",
        do=f"Copy the file again in case it is incomplete, or run nsys export --type sqlite {report.name} yourself",
    )


def last_line(printed: str, scratch: Path) -> str:
    """The last line that a tool printed, without the path of `scratch`, that is no progress bar."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", printed.replace(f"{scratch}/", ""))]
    texts = [line for line in lines if line and not re.search(r"\[[= ]*\d+%", line)]
    return texts[-1][:200] if texts else "it printed nothing"
