"""What the command `perfdoctor` runs first: its own packages come before those that PYTHONPATH names for others.

The variable is for the program that is recorded. Modules of a cluster and old projects put packages of another Python
there; a `typing_extensions` of theirs in the place of ours would keep the command from starting the program. So this
imports nothing but Python's own library before it is done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    sys.path[:] = own_first(sys.path, os.environ.get("PYTHONPATH", ""))
    from perfdoctor.cli.main import main as command  # noqa: PLC0415 with the path in order

    command()


def own_first(path: list[str], given: str) -> list[str]:
    """Move the folders that PYTHONPATH gives behind all others, but for the one that this package itself is in."""
    own = Path(__file__).absolute().parents[1]
    named = {Path(each).absolute() for each in given.split(os.pathsep) if each} - {own}
    later = [each for each in path if Path(each).absolute() in named]
    return [each for each in path if each not in later] + later
