"""Where is the importer of an nsys, which makes its report, and does it start?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from perfdoctor.system import tool_process

_PROBE_TIMEOUT_S = 30


def find(tool: str) -> Path | None:
    """QdstrmImporter of an nsys: `…/host-linux-x64/QdstrmImporter` for `…/target-linux-x64/nsys`."""
    on_path = shutil.which("QdstrmImporter")
    if on_path:
        return Path(on_path)
    program = Path(tool).resolve()
    places = ("host-linux-*/QdstrmImporter", "nsight-systems/host-linux-*/QdstrmImporter")
    parents = (parent for start in (program, *_started_by(program)) for parent in start.parents[:4])
    return next((found for parent in parents for place in places for found in parent.glob(place)), None)


def _started_by(program: Path) -> list[Path]:
    """The programs named nsys that a wrapper script starts."""
    try:
        head = program.read_bytes()[:4_096]
    except OSError:
        return []
    named = re.findall(rb"(/[^\s\"']*/nsys)\b", head) if head.startswith(b"#!") else []
    return [Path(os.fsdecode(name)).resolve() for name in named]


def trouble(importer: Path) -> str:
    """Why this importer does not start, in the words of the system; "" if it does."""
    try:
        done = tool_process.asked([importer, "--version"], _PROBE_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return (done.stderr.strip() or f"it ended with {done.returncode}")[:200] if done.returncode else ""
