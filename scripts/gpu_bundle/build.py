"""One file that tries perfdoctor on a machine without a network: `scripts/gpu-bundle [--python 3.12] [--output FILE]`.

The file is a shell script with a ZIP archive behind it: there, `sh FILE` starts the Python of that machine with it
(gpu_bundle/there/__main__.py). It holds perfdoctor and its dependencies as wheels, unpacked and compressed again, and
of the Nsight Systems at hand (PERFDOCTOR_NSYS, or on PATH) what is needed to record and to export.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email import message_from_bytes
from pathlib import Path

import nsys_parts
from compression import compressed

ROOT = Path(__file__).parents[2]
MOST_BYTES = 60_000_000
#: What wheels for Linux are tagged with: pip takes each tag literally. The oldest first.
_PLATFORMS = [
    "manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64",
    *(f"manylinux_2_{minor}_x86_64" for minor in (5, 12, 17, 24, 26, 27, 28)),
]  # fmt: skip
#: Wheels that a dependency asks for and that nothing here imports.
_LEFT_OUT = ("pip",)
_HEADER = b"""#!/bin/sh
# Tries perfdoctor here, without a network: sh perfdoctor-gpu-bundle.sh [--python PROGRAM] [--output FOLDER]
python=python3; next=
for word in "$@"; do
  if [ -n "$next" ]; then python=$word; next=; fi
  case "$word" in --python) next=1 ;; --python=*) python=${word#--python=} ;; esac
done
exec "$python" "$0" "$@"
"""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", metavar="3.N", help="for this Python; several (default: 3.12)")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "perfdoctor-gpu-bundle.sh", metavar="FILE")
    nsys = parser.add_mutually_exclusive_group()
    nsys.add_argument("--with-nsys", action="store_true", help="fail where it does not fit, instead of leaving it out")
    nsys.add_argument("--without-nsys", action="store_true")
    parser.add_argument("--fast", action="store_true", help="compress less: a larger file, sooner")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 where a bundle cannot be made."""
    given = _arguments()
    pythons = given.python or ["3.12"]
    if wrong := [each for each in pythons if not re.fullmatch(r"3\.\d+", each)]:
        sys.exit(f"gpu-bundle: {wrong[0]!r} is no version of Python: give --python 3.12")
    with tempfile.TemporaryDirectory() as scratch:
        parts = _of_wheels(pythons, Path(scratch), fast=given.fast)
        nsys = None if given.without_nsys else nsys_parts.find()
        if nsys:
            parts["nsys"] = nsys_parts.packed(nsys, _cache(), fast=given.fast)
    if nsys is None and given.with_nsys:
        sys.exit("gpu-bundle: no Nsight Systems: set PERFDOCTOR_NSYS, or run scripts/install-nsys")
    made = bundle(parts)
    if len(made) > MOST_BYTES and "nsys" in parts and not given.with_nsys:
        nsys_bytes = len(parts.pop("nsys"))
        print(
            f"Nsight Systems ({nsys_bytes / 1e6:.1f} MB) is left out: with it the bundle has {len(made) / 1e6:.1f} MB."
        )
        made = bundle(parts)
    for name, part in parts.items():
        print(f"{name:8} {len(part) / 1e6:6.1f} MB")
    if len(made) > MOST_BYTES:
        print(
            f"gpu-bundle: {len(made) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}: name fewer Pythons",
            file=sys.stderr,
        )
        return 1
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_bytes(made)
    given.output.chmod(0o755)
    print(f"{given.output}: {len(made) / 1e6:.1f} MB for Python {', '.join(pythons)}")
    return 0


def _cache() -> Path:
    return (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")) / "perfdoctor-bundle"


def bundle(parts: Mapping[str, bytes]) -> bytes:
    """The whole file. `parts`: archives (.tar.xz) by name: `common`, `cp312`, `nsys`."""
    made = io.BytesIO(_HEADER)
    made.seek(0, io.SEEK_END)
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as packed:
        there = sorted((Path(__file__).parent / "there").glob("*.py"))
        for file in (*there, ROOT / "fixtures" / "kept.py", ROOT / "fixtures" / "scrub.py"):
            packed.write(file, file.name)
        for name, part in parts.items():
            packed.writestr(f"{name}.tar.xz", part, zipfile.ZIP_STORED)
    return made.getvalue()


# --- wheels ----------------------------------------------------------------------------------------------------------


def _of_wheels(pythons: Sequence[str], scratch: Path, *, fast: bool) -> dict[str, bytes]:
    """`common`: wheels that every Python takes; `cp312` …: those of one."""
    own = _own_wheel(scratch / "own")
    wheels = {python: _downloaded(python, own, scratch / python) for python in pythons}
    common = set.intersection(*({path.name for path in paths} for paths in wheels.values()))
    everywhere = [path for path in wheels[pythons[0]] if path.name in common]
    parts = {"common": _packed_wheels(everywhere, scratch, fast=fast)}
    for python, paths in wheels.items():
        only = [path for path in paths if path.name not in common]
        parts[f"cp{python.replace('.', '')}"] = _packed_wheels(only, scratch, fast=fast)
    return parts


def _own_wheel(target: Path) -> Path:
    _run([sys.executable, "-m", "build", "--wheel", "--outdir", str(target), str(ROOT)])
    return next(target.glob("*.whl"))


def _downloaded(python: str, own: Path, target: Path) -> list[Path]:
    """The wheel of perfdoctor itself, and one for everything that it needs with this Python."""
    _fetch(python, [str(own)], target)
    while more := missing(python, target):
        _fetch(python, more, target)
    return sorted(path for path in target.glob("*.whl") if _project(path) not in _LEFT_OUT)


def _fetch(python: str, wanted: Sequence[str], target: Path) -> None:
    tags = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    _run([
        *_pip(), "download", "--quiet", "--dest", str(target), "--only-binary=:all:", "--implementation", "cp",
        "--python-version", python, *tags, *wanted,
    ])  # fmt: skip


def missing(python: str, folder: Path) -> list[str]:
    """What the wheels need with this Python and pip did not fetch: it reads conditions as if for its own Python."""
    from packaging.requirements import Requirement  # noqa: PLC0415 comes with `build`

    there, more = {_project(path) for path in folder.glob("*.whl")}, []
    of_target = {
        "python_version": python, "python_full_version": f"{python}.0", "implementation_version": f"{python}.0",
        "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": "",
    }  # fmt: skip
    for wheel in sorted(folder.glob("*.whl")):
        for text in _requirements(wheel):
            needed = Requirement(text)
            if (needed.marker is None or needed.marker.evaluate(of_target)) and _plain_name(needed.name) not in there:
                more.append(f"{needed.name}{needed.specifier}")
    return sorted(set(more))


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return message_from_bytes(packed.read(name)).get_all("Requires-Dist") or []


def _project(wheel: Path) -> str:
    return _plain_name(wheel.name.split("-")[0])


def _plain_name(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip() -> list[str]:
    for python in (sys.executable, shutil.which("python3") or sys.executable):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return [python, "-m", "pip"]
    sys.exit("gpu-bundle: there is no pip here, which fetches wheels: python3 -m ensurepip")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"gpu-bundle: {' '.join(command)} failed\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _packed_wheels(wheels: Iterable[Path], scratch: Path, *, fast: bool) -> bytes:
    """Their contents as they lie in site-packages: installed by unpacking."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.add(folder, ".", filter=_without_owner)
        return compressed(made.getvalue(), fast=fast)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """No names of this machine, and no compiled Python."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if "__pycache__" in member.name.split("/") else member


if __name__ == "__main__":
    sys.exit(main())
