"""How does a program that a profiler starts get back into the user's process group and terminal?

    python -I -S child_entry.py PROCESS_GROUP UMASK SENDING WAITING STANDARD_OUTPUT STANDARD_ERROR PROGRAM …

The profiler starts this script in place of the program. Where possible, the script joins our process group again and
becomes the program. nsys starts it in a new session, from which it cannot return to the user's terminal: then it sends
us the environment that the profiler set, we start the program with it, and the script waits until the program ends.

It sends its pid and, if it cannot return, its environment; a NUL ends each, and one more the whole. The answer is the
program's pid, its own or another.
Standard library only, no site.
"""

import os
import select
import signal
import sys
import time

_POLL_S = 0.2


def _environment() -> dict[bytes, bytes]:
    """The environment that the profiler set, without the LC_CTYPE that Python adds where the locale is C."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 pathlib would take as long as all the rest
            given = b"\0" + file.read()
    except OSError:
        given = b"\0LC_CTYPE="
    return {name: value for name, value in os.environb.items() if name != b"LC_CTYPE" or b"\0LC_CTYPE=" in given}


def _send(pipe: int, *fields: bytes) -> None:
    """Send, or exit if perfdoctor no longer reads: the program, started from here, might run a second time."""
    left = b"".join(field + b"\0" for field in fields) + b"\0"
    try:
        while left:
            left = left[os.write(pipe, left) :]
        os.close(pipe)
    except OSError:
        os._exit(127)


def _answer(pipe: int) -> str:
    """The program's pid, from perfdoctor. Exits without one, as nothing may be started then."""
    pid = os.read(pipe, 32)
    if not pid:
        os._exit(127)
    os.close(pipe)
    return pid.decode()


def _stay(pid: str, kept: tuple[int, ...]) -> None:
    """Wait until the program has ended, re-executed without the profiler's library, so as not to be recorded."""
    for number in kept:
        if number >= 0:
            os.close(number)
    environment = {name: value for name, value in os.environb.items() if name != b"LD_PRELOAD"}
    os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, "wait", pid], environment)


def _wait_for(pid: int) -> None:
    """Wait until the process has ended."""
    try:
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll()
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # Linux before 5.3
        while os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
            time.sleep(_POLL_S)


def _put_back(mask: int, output: int, error: int) -> None:
    os.umask(mask)
    for kept, number in ((output, 1), (error, 2)):
        if kept >= 0:
            os.dup2(kept, number)
            os.close(kept)
        else:
            os.close(number)
    # Python ignores two signals and handles a third; a program would inherit the ignored ones.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    if sys.argv[1] == "wait":
        _wait_for(int(sys.argv[2]))
        return
    group, mask, sending, waiting, output, error = (int(value) for value in sys.argv[1:7])
    pid, environment = str(os.getpid()).encode(), _environment()
    try:
        os.setpgid(0, group)
    except OSError:  # another session
        _send(sending, pid, *(name + b"=" + value for name, value in environment.items()))
        _stay(_answer(waiting), (output, error))
    _send(sending, pid)
    _answer(waiting)
    _put_back(mask, output, error)
    program = sys.argv[7:]
    try:
        os.execvpe(program[0], program, environment)
    except OSError as reason:
        os.write(2, f"{program[0]}: {reason.strerror}\n".encode())
        os._exit(127 if isinstance(reason, FileNotFoundError) else 126)


main()
