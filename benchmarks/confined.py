"""How is a stranger's file read so that nothing but its own folder can be changed, and so much memory and time is used?

A child process is held by three things: Linux' Landlock lets it write below one folder alone (where the kernel has it),
an audit hook of Python names what it tried besides, and limits of the system bound its memory. Nothing of it follows a
link: what a link leads to is outside of the folder, and Landlock judges the file and not its name.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from perfdoctor.recording.agent.perfdoctor_agent import apart

MOST_BYTES = 3 << 29  # 1.5 GB
#: Of these, what the interpreter, numpy and this program take before a file is read.
_OWN_BYTES = 400 << 20
#: Of the processor; by the clock so many times as long, as other programs may have it, and what waits uses none.
MOST_SECONDS = 20
CLOCK_FACTOR = 5
#: Events of Python's audit that no reading of a file needs.
_NEVER = ("socket.connect", "socket.bind", "socket.getaddrinfo", "os.exec", "os.system", "os.posix_spawn", "ctypes.dlopen",
          "os.chmod", "os.chown", "os.kill", "os.putenv")  # fmt: skip
_CHANGING = ("os.rename", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.utime", "shutil.rmtree")


def confine(folder: Path) -> list[str]:
    """Let this process write below the folder alone. Returns a list that what it tried besides is added to."""
    apart.only_below(str(folder))
    # whoever forked it may hold much that is not ours: a worker of the tests, with all that they import
    held = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    most = MOST_BYTES + max(held - _OWN_BYTES, 0)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return watched(folder)


def watched(*folders: Path) -> list[str]:
    """A list to which each change outside of the folders, and each connection and program, is added as it is tried."""
    tried: list[str] = []
    inside = (*(f"{folder}/" for folder in folders), os.devnull)

    def is_outside(path: object, folder: int = -1) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):  # a descriptor, whose opening was seen
            return False
        base = "." if folder < 0 else f"/proc/self/fd/{folder}"
        return not os.path.realpath(Path(base, os.fsdecode(path))).startswith(inside)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in _NEVER:
            tried.append(f"{event} {arguments[:1]}")
        elif event == "subprocess.Popen":
            if arguments[0] != sys.executable:  # which is confined as well
                tried.append(f"{event} {arguments[0]}")
        elif event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if changes and is_outside(path):
                tried.append(f"open to write {path!r}")
        elif event in ("os.remove", "os.rmdir"):
            if is_outside(*arguments):
                tried.append(f"{event} {arguments}")
        elif event in _CHANGING and any(
            map(is_outside, arguments[event == "os.symlink" : 2])
        ):  # a link may lead anywhere
            tried.append(f"{event} {arguments[:2]}")

    sys.addaudithook(hook)
    return tried
