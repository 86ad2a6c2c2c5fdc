"""Which parts of Nsight Systems are needed to record and to export, without its window and its documentation?

Of 700 MB, 220: the target's `nsys` with its injection library, the newest CUPTI and what samples counters, the host's
importer and exporter with the libraries that these two load, and of the system's libraries those that a bare container
does not have.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from compression import compressed

TARGET, HOST = "target-linux-x64", "host-linux-x64"
#: Beside libcupti.so.*. Left out: older CUPTI, MPI, Vulkan. Despite its name, libnvperf_grfx_host.so samples the GPU's
#: counters for all programs (28 MB, 5.7 in the bundle).
_OF_TARGET = (
    "nsys", "nsys-launcher", "launcher", "libLauncher64.so", "libToolsInjection64.so", "libToolsInjectionProxy64.so",
    "libToolsInjectionMemoryAllocator.so", "libLinuxKeyboardInterceptorProxy.so", "CudaGpuInfoDumper", "nvgpucs",
    "libnvlog.so", "nvlog.config.template", "libsqlite3.so.0", "sqlite3", "GpuMetrics",
    "libnvperf_grfx_host.so",
)  # fmt: skip
_IMPORTER = "QdstrmImporter"
_OF_HOST = (_IMPORTER, "libexporter.so")
#: Every Linux with a Python and a compiler's runtime has these, and another version of them would be the wrong one.
_OF_SYSTEM = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so)")
_LINKED = re.compile(r"^\s*(\S+) => (/\S+)", re.MULTILINE)
#: The importer gets its libraries by name, for itself alone: the recorded program must not see them.
_WITH_LIBRARIES = """#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH="$here:$here/system${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/%s" "$@"
"""
_START = f"""#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
if [ "$1" = export ]; then
  export LD_LIBRARY_PATH="$here/{HOST}:$here/{HOST}/system${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
fi
exec "$here/{TARGET}/nsys" "$@"
"""


def find() -> Path | None:
    """The folder that holds target-linux-x64 and host-linux-x64 of the nsys at hand; None without one."""
    named = os.environ.get("PERFDOCTOR_NSYS") or shutil.which("nsys")
    if not named:
        return None
    path = Path(named).resolve()
    script = path.read_bytes()[:4096] if path.is_file() else b""
    if script.startswith(b"#!") and (found := re.search(rb"(/[^\s\"']+)/target-linux-x64/nsys", script)):
        return Path(found[1].decode())
    folders = [parent for parent in path.parents if (parent / TARGET / "nsys").is_file()]
    return folders[0] if folders and (folders[0] / HOST).is_dir() else None


def packed(folder: Path, cache: Path, *, fast: bool) -> bytes:
    """The parts as .tar.xz. To compress them takes minutes, so that the result is kept in `cache`."""
    key = f"{folder}{(folder / TARGET / 'nsys').stat().st_mtime_ns}{fast}{Path(__file__).read_text('utf-8')}"
    known = cache / f"nsys-{hashlib.sha256(key.encode()).hexdigest()[:16]}.tar.xz"
    if not known.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        draft = known.with_suffix(f".{os.getpid()}.tmp")
        draft.write_bytes(compressed(_archive(folder), fast=fast))
        draft.replace(known)
    return known.read_bytes()


def _archive(folder: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in (*_OF_TARGET, _newest_cupti(folder / TARGET)):
            if (folder / TARGET / name).exists():
                _add(archive, folder / TARGET / name, f"{TARGET}/{name}")
        for name in _OF_HOST:
            inside = f"{name}.bin" if name == _IMPORTER else name
            _add(archive, folder / HOST / name, f"{HOST}/{inside}")
        for name, library in _libraries(folder / HOST).items():
            of_nsys = library.is_relative_to((folder / HOST).resolve())
            _add(archive, library, f"{HOST}/{name}" if of_nsys else f"{HOST}/system/{name}")
        _add_script(archive, f"{HOST}/{_IMPORTER}", _WITH_LIBRARIES % f"{_IMPORTER}.bin")
        _add_script(archive, "bin/nsys", _START)
    return made.getvalue()


def _newest_cupti(target: Path) -> str:
    """It serves drivers of its own age and newer ones; for a driver that it does not know, nsys takes the newest."""
    found = [path.name for path in target.glob("libcupti.so.*")]
    return max(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default="")


def _libraries(host: Path) -> dict[str, Path]:
    """What importer and exporter load, by the name they ask for, but for the system's own."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(host)}
    printed = "".join(
        subprocess.run(["ldd", str(host / name)], capture_output=True, text=True, check=True, env=environment).stdout
        for name in _OF_HOST
    )
    return {name: Path(path).resolve() for name, path in _LINKED.findall(printed) if not _OF_SYSTEM.match(name)}


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            inside = f"{name}/{file.relative_to(path)}" if path.is_dir() else name
            archive.add(file.resolve(), inside, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _add_script(archive: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(text.encode()), 0o755
    archive.addfile(member, io.BytesIO(text.encode()))
