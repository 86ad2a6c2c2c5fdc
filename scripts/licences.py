"""Under which licences is what `pip install perfdoctor` brings? What docs/licences.md is written from.

Distributions say it themselves: `License-Expression`, else their classifiers, else `License`. What is required only on
another Python or system is listed as well: the group `release` has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement

_SYSTEMS = (("linux", "Linux", "posix"), ("darwin", "Darwin", "posix"), ("win32", "Windows", "nt"))
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
_ENVIRONMENTS = [
    {"sys_platform": system, "platform_system": name, "os_name": os, "python_version": version,
     "python_full_version": f"{version}.0", "platform_machine": "x86_64", "extra": ""}
    for system, name, os in _SYSTEMS for version in _PYTHONS
]  # fmt: skip
#: A licence as short as this is a name; a longer one is its whole text.
_NAME_LENGTH = 60


#: Licences that ask others to open their source, or that are none: what has one cannot be required.
_CLOSED = re.compile(r"GPL|MPL|EPL|General Public|Mozilla|Eclipse|Proprietary|EULA")
_OPEN = re.compile(r"MIT|BSD|Apache|PSF|Python Software|ISC|Zlib|Public Domain|Unlicense")


def is_admitted(stated: str) -> bool:
    """May what is under this licence be required?"""
    return bool(_OPEN.search(stated)) and not _CLOSED.search(stated)


def normal(name: str) -> str:
    """Return the name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str = "perfdoctor") -> dict[str, set[str]]:
    """What a distribution needs, directly or not and on any supported Python and system, and who asks for each."""
    found: dict[str, set[str]] = {}
    waiting = [name]
    while waiting:
        asking = waiting.pop()
        for requirement in map(Requirement, distribution(asking).requires or []):
            if requirement.marker and not any(map(requirement.marker.evaluate, _ENVIRONMENTS)):
                continue
            needed_name = normal(requirement.name)
            if needed_name not in found:
                waiting.append(needed_name)
            found.setdefault(needed_name, set()).add(normal(asking))
    return found


def licence(package: Distribution) -> str:
    """What a distribution says of its licence; empty where it says nothing."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [each for each in metadata.get_all("Classifier") or [] if each.startswith("License :: ")]
    stated = metadata.get("License") or ""
    return ", ".join(each.rpartition(" :: ")[2] for each in classifiers) or (
        stated if len(stated) <= _NAME_LENGTH else ""
    )


def table() -> str:
    """One line a distribution."""
    return "\n".join(["| distribution | licence | needed by |", "| --- | --- | --- |", *_rows()])


def _rows() -> Iterator[str]:
    for name, asking in sorted(needed().items()):
        package = distribution(name)
        link = f"[{package.metadata['Name']}](https://pypi.org/project/{name}/)"
        yield f"| {link} | {licence(package)} | {', '.join(sorted(asking))} |"
