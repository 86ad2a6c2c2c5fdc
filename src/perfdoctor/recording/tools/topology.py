"""How are the GPUs of this machine connected? The output of `nvidia-smi topo -m` is kept in the run's folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: It takes a second where drivers are loaded; one that hangs must not delay the diagnosis.
_TIMEOUT_S = 10


def store(target: Path) -> bool:
    """Write the table into `target`; False, and no file, where there is no nvidia-smi or no GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        done = subprocess.run(
            [tool, "topo", "-m"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode or b"GPU0" not in done.stdout:
            return False
        target.write_bytes(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return True
