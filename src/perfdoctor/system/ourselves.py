"""How is a module of this very perfdoctor started as a program of its own?

Not the one on PATH, and by no PYTHONPATH that others see too. Nothing is imported from the folder where it is started.
"""

from __future__ import annotations

import sys
from pathlib import Path

_SOURCE = str(Path(__file__).absolute().parents[2])
_ENTRY = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "
    "sys.path.insert({at}, {source!r}); from {module} import main; main()"
)


def command(module: str, python: str = "") -> tuple[str, ...]:
    """Runs the module's `main`. `python`: another one that may have a perfdoctor of its own, which it then takes."""
    at = "len(sys.path)" if python else "0"
    return (python or sys.executable, "-c", _ENTRY.format(at=at, source=_SOURCE, module=module))
