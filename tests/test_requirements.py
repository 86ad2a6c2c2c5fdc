"""Are the settled versions of the development environment those of pyproject.toml, and the same from any index?"""

from __future__ import annotations

import re
import sys

import pytest
from folders import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FILES = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "requirements").glob("*.txt"))}
GROUPS = {"dev.txt": "dev", "night.txt": "night"}
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def of_group(name: str) -> list[str]:
    found = []
    for each in PYPROJECT["dependency-groups"][name]:
        found += [each] if isinstance(each, str) else of_group(each["include-group"])
    return found


def settled(text: str) -> list[Requirement]:
    return [Requirement(line.rstrip(" \\")) for line in text.splitlines() if re.match(r"\w", line)]


def test_each_group_that_is_installed_by_make_is_settled() -> None:
    assert FILES.keys() == GROUPS.keys()
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(f"requirements/{name}" in makefile for name in FILES)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", FILES)
def test_what_pyproject_asks_for_is_settled_once_for_each_python_in_a_version_that_fits(name: str, python: str) -> None:
    environment = {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "platform_machine": "x86_64",
        "platform_system": "Linux", "os_name": "posix", "platform_python_implementation": "CPython",
    }  # fmt: skip
    versions: dict[str, list[str]] = {}
    for each in settled(FILES[name]):
        if each.marker is None or each.marker.evaluate(environment):
            (one,) = each.specifier
            assert one.operator == "=="
            versions.setdefault(canonicalize_name(each.name), []).append(one.version)
    assert [name for name, of_it in versions.items() if len(of_it) > 1] == []
    for asked in map(Requirement, [*PYPROJECT["project"]["dependencies"], *of_group(GROUPS[name])]):
        if asked.marker is None or asked.marker.evaluate(environment):
            (version,) = versions.get(canonicalize_name(asked.name), [""])
            assert version, f"{asked}: run `make lock`"
            assert asked.specifier.contains(version, prereleases=True), f"{asked} has {version}: run `make lock`"


@pytest.mark.parametrize("name", FILES)
def test_each_version_has_hashes_and_no_index_is_named(name: str) -> None:
    entries = re.split(r"\n(?=\w)", FILES[name])
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    left = re.sub(r"--hash=sha256:[0-9a-f]{64}", "", FILES[name])
    assert not re.search(r"://|--(?!hash)|@|file:", left)
