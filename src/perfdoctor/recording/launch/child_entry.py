"""How does a program that a profiler starts get back to where the user started it?

    python -I -S child_entry.py PROCESS_GROUP UMASK TELLING WAITING STANDARD_OUTPUT STANDARD_ERROR PROGRAM …

The profiler starts this in the program's place. Where it can, it goes back into our process group and becomes the
program. nsys puts it into a session of its own, from which no way leads back to the user's terminal: there it hands
us the environment that the profiler made, we start the program in it, and this stays in its place until that ends.

What it tells: its pid, and where it cannot come back its environment; a NUL after each, and one more at the end. The
answer is the program's pid, its own or another.
Standard library only, no site.
"""

import os
import select
import signal
import sys
import time

_POLL_S = 0.2


def _environment() -> dict[bytes, bytes]:
    """As the profiler made it. Python puts LC_CTYPE into its own where the locale is C."""
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 pathlib would take as long as all the rest
            given = b"\0" + file.read()
    except OSError:
        given = b"\0LC_CTYPE="
    return {name: value for name, value in os.environb.items() if name != b"LC_CTYPE" or b"\0LC_CTYPE=" in given}


def _tell(pipe: int, *fields: bytes) -> None:
    """Ends us where nobody listens: started from here, the program might run a second time."""
    left = b"".join(field + b"\0" for field in fields) + b"\0"
    try:
        while left:
            left = left[os.write(pipe, left) :]
        os.close(pipe)
    except OSError:
        os._exit(127)


def _answer(pipe: int) -> str:
    """The program's pid. Without one nothing is to be started from here any more."""
    pid = os.read(pipe, 32)
    if not pid:
        os._exit(127)
    os.close(pipe)
    return pid.decode()


def _stay(pid: str, kept: tuple[int, ...]) -> None:
    """Keep the place until the program has ended. Started anew without the profiler's library, so as not to be seen."""
    for number in kept:
        if number >= 0:
            os.close(number)
    environment = {name: value for name, value in os.environb.items() if name != b"LD_PRELOAD"}
    os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, "wait", pid], environment)


def _wait_for(pid: int) -> None:
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
    # Python ignores two signals and handles a third; a program inherits what is ignored.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _become(program: list[str], environment: dict[bytes, bytes]) -> None:
    try:
        os.execvpe(program[0], program, environment)
    except OSError as reason:
        os.write(2, f"{program[0]}: {reason.strerror}\n".encode())
        os._exit(127 if isinstance(reason, FileNotFoundError) else 126)


def main() -> None:
    if sys.argv[1] == "wait":
        _wait_for(int(sys.argv[2]))
        return
    group, mask, telling, waiting, output, error = (int(value) for value in sys.argv[1:7])
    pid, environment = str(os.getpid()).encode(), _environment()
    try:
        os.setpgid(0, group)
    except OSError:  # another session
        _tell(telling, pid, *(name + b"=" + value for name, value in environment.items()))
        _stay(_answer(waiting), (output, error))
    _tell(telling, pid)
    _answer(waiting)
    _put_back(mask, output, error)
    _become(sys.argv[7:], environment)


main()
