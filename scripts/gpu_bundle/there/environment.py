"""How does perfdoctor get an environment of its own where there is a Python, but perhaps no pip, venv or network?

An environment is a folder with `pyvenv.cfg`, a link to the interpreter, and a `.pth` file that names the packages'
folders: made by hand, it needs neither ensurepip nor a compiler, and the Python that trains stays as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

_FACTS = """
import json, os, sys
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({"version": list(sys.version_info[:2]), "base": os.path.realpath(base)}))
"""


class NotPossibleError(Exception):
    """What is missing, in a sentence."""


def unpack(bundle: Path, work: Path) -> list[str]:
    """The bundle's parts into `work`; their names: `common`, `cp312`, `nsys` …"""
    names = []
    with zipfile.ZipFile(bundle) as packed:
        for member in packed.namelist():
            if member.endswith(".tar.xz"):
                names.append(member.removesuffix(".tar.xz"))
                _untar(Path(packed.extract(member, work)), work / names[-1])
    return names


def _untar(archive: Path, target: Path) -> None:
    target.mkdir()
    try:
        with tarfile.open(archive, "r:xz") as packed:
            if hasattr(tarfile, "data_filter"):
                packed.extraction_filter = tarfile.tar_filter  # links of nsys point beside their folder
            packed.extractall(target)
    except tarfile.CompressionError:  # this Python was built without lzma
        if shutil.which("xz") is None:
            raise NotPossibleError(
                "this Python has no lzma, and there is no xz: start it with another --python"
            ) from None
        subprocess.run(["tar", "-xJf", str(archive), "-C", str(target)], check=True)
    archive.unlink()


def make(work: Path, parts: list[str], python: str) -> Path:
    """The interpreter of a new environment in `work` that has perfdoctor and the packages for its version."""
    facts = json.loads(subprocess.run([python, "-c", _FACTS], check=True, capture_output=True, text=True).stdout)
    major, minor = facts["version"]
    tag = f"cp{major}{minor}"
    if tag not in parts:
        known = ", ".join(sorted(part for part in parts if part.startswith("cp")))
        raise NotPossibleError(f"{python} is Python {major}.{minor}, and this bundle was built for {known}")
    folder = work / "environment"
    site = folder / "lib" / f"python{major}.{minor}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(facts["base"])
    (folder / "pyvenv.cfg").write_text(
        f"home = {Path(facts['base']).parent}\ninclude-system-site-packages = false\n", "utf-8"
    )
    for program in (work / "common").glob("*.data/scripts/*"):  # of wheels: py-spy
        program.chmod(0o755)
        (folder / "bin" / program.name).symlink_to(program)
    (site / "bundle.pth").write_text(f"{work / tag}\n{work / 'common'}\n", "utf-8")
    return folder / "bin" / "python"


def variables(work: Path, parts: list[str]) -> dict[str, str]:
    """Our environment variables, the bundled nsys where the machine has none, and a cache that goes with `work`."""
    own = {**os.environ, "XDG_CACHE_HOME": str(work / "cache")}
    if "nsys" in parts and "PERFDOCTOR_NSYS" not in own and shutil.which("nsys") is None:
        own["PERFDOCTOR_NSYS"] = str(work / "nsys" / "bin" / "nsys")
    return own
