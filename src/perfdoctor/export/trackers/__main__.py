"""How is one diagnosis logged? `python -m perfdoctor.export.trackers REQUEST ANSWER`, two JSON files.

Trackers print, ask for passwords, and keep threads: nothing of that reaches the command that started this.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path


def main(request: str, answer: str) -> int:
    """The exit code. The answer says where it was logged, or what went wrong, in one line."""
    if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 (as Python writes it) -m puts the user's folder first
        del sys.path[0]
    asked = json.loads(Path(request).read_text("utf-8"))
    said: dict[str, str] = {}
    try:
        said["where"] = import_module(f"perfdoctor.export.trackers.to_{asked['tracker']}").log(asked)
    except Exception as error:  # noqa: BLE001 whatever a tracker raises becomes one line
        said["error"] = f"{type(error).__name__}: {error}"
    Path(answer).write_text(json.dumps(said), "utf-8")
    return 0 if "where" in said else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
