"""How does a forked copy of the program work without changing anything of it?

The copy has the program's memory, and writes to none of it: pages are copied when they are written. What is left that
the two share is taken away: open files are opened anew, to read, so that neither writes nor positions reach them;
sockets, pipes and devices become /dev/null; shared memory can only be read; files cannot grow. What the program's own
code does beyond that is refused by Python's audit events (PEP 578), and noted: then nothing is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_PROT_READ = 1  # of mman.h
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
#: System calls of all architectures since Linux 5.13 (linux/landlock.h).
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
#: Of LANDLOCK_ACCESS_FS_* all that change something: write, remove, make, refer, truncate; by version of Landlock.
_CHANGES = (0x1FF2, 0x3FF2, 0x7FF2)
_OF_FILES = 0x4002  # write and truncate: the others are of folders
_BELOW_PATH = 1  # LANDLOCK_RULE_PATH_BENEATH
#: Where shared memory without a file of its own lies.
_SHARED = ("/dev/shm/", "/dev/zero")  # noqa: S108
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: What of the module `os` only reads, or changes this process alone.
_HARMLESS = frozenset(
    "os." + name
    for name in ("listdir", "scandir", "walk", "fwalk", "getxattr", "listxattr", "chdir", "putenv", "unsetenv")
)
#: Other processes, machines and files that code of the program may reach.
_REACHES_OUT = (
    "os.", "shutil.", "tempfile.", "subprocess.", "socket.", "sqlite3.connect", "fcntl.flock", "fcntl.lockf",
    "fcntl.ioctl", "signal.pthread_kill", "syslog.", "webbrowser.", "pty.",
)  # fmt: skip


def only_below(*folders: str) -> bool:
    """Let this process and its children write below these folders alone (Landlock). False where the kernel cannot.

    Whatever opens a file, also code in C: the kernel refuses to write to any other one, to make or to remove it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = landlock_version()
    if version < 1:
        return False
    handled = _CHANGES[min(version, len(_CHANGES)) - 1]
    rules = libc.syscall(_LANDLOCK_CREATE, struct.pack("=Q", handled), ctypes.c_size_t(8), 0)
    try:
        for path in (*folders, os.devnull):
            opened = os.open(path, os.O_PATH)
            allowed = handled if path != os.devnull else handled & _OF_FILES
            refused = libc.syscall(_LANDLOCK_ADD, rules, _BELOW_PATH, struct.pack("=Qi", allowed, opened), 0)
            os.close(opened)
            if refused:
                raise OSError(ctypes.get_errno(), "landlock_add_rule: " + path)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if libc.syscall(_LANDLOCK_RESTRICT, rules, 0):
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(rules)
    return True


def landlock_version() -> int:
    """Its version here, below 1 where the kernel has none."""
    return int(ctypes.CDLL(None, use_errno=True).syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


class Guard:
    """Refuses what the program's own code does beyond reading, in the thread that is inside of `within`."""

    def __init__(self) -> None:
        self.refused = ""
        self._thread = 0

    def install(self) -> None:
        sys.addaudithook(self._heard)

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = 0
        if self.refused:  # the program may have caught the error
            raise PermissionError(self.refused)

    def _heard(self, event: str, arguments: Any) -> None:
        if self._thread != threading.get_ident() or not self._thread:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if writes or (event.startswith(_REACHES_OUT) and event not in _HARMLESS):
            self.refused = "it does more than read: " + event
            raise PermissionError(self.refused)


def separate(parent: int, keep: int) -> None:
    """Take away, in the copy, what it shares with the program. `keep`: a descriptor that stays as it is."""
    os.setpgid(0, 0)
    die_with_parent()
    if os.getppid() != parent:
        os._exit(0)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):  # the program's own
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.dont_write_bytecode = True
    _reopen(keep)
    _protect_shared_memory()


def die_with_parent(*_: Any) -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


@contextlib.contextmanager
def files_do_not_grow() -> Iterator[None]:
    """Also what is written without Python fails: no file grows."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def _reopen(keep: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in sorted(int(name) for name in os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the listing is closed again
            if number not in (keep, nothing):
                mode = os.fstat(number).st_mode
                _become(number, nothing, is_file=stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _become(number: int, nothing: int, *, is_file: bool) -> None:
    own = nothing
    if is_file:
        with contextlib.suppress(OSError):  # another user's: then it is nothing
            own = os.open("/proc/self/fd/" + str(number), os.O_RDONLY)
            with contextlib.suppress(OSError):
                os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(own, number)
    if own != nothing:
        os.close(own)


def _protect_shared_memory() -> None:
    """Whoever writes to it ends: it belongs to the program's files and other processes, too."""
    protect = ctypes.CDLL(None).mprotect
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        rows = [line.split(None, 5) for line in maps]
    for span, rights, *_, path in (row for row in rows if len(row) == 6):
        is_device = path.startswith("/dev/") and not path.startswith(_SHARED)
        is_file = path.startswith("/") and not path.startswith("/memfd:")
        if rights[1] == "w" and rights[3] == "s" and is_file and not is_device:
            start, end = (int(each, 16) for each in span.split("-"))
            protect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _PROT_READ)
