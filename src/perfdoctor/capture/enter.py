"""How does a program that a profiler starts get back to where the user started it?

    python -I -S enter.py PROCESS_GROUP UMASK PID_PIPE STANDARD_OUTPUT STANDARD_ERROR PROGRAM …

Standard library only, no site: it lives for a few milliseconds, and becomes the program.
"""

import os
import sys


def _enter(group: int, mask: int, pipe: int, output: int, error: int) -> None:
    os.umask(mask)  # nsys starts its programs with another one
    try:
        os.setpgid(0, group)
    except OSError:
        pass  # the group is gone: whoever started us was killed
    for kept, number in ((output, 1), (error, 2)):
        if kept >= 0:
            os.dup2(kept, number)
            os.close(kept)
        else:
            os.close(number)
    try:
        os.write(pipe, str(os.getpid()).encode())
    except OSError:
        pass
    os.close(pipe)


def main() -> None:
    program = sys.argv[6:]
    _enter(*(int(value) for value in sys.argv[1:6]))
    try:
        os.execvp(program[0], program)
    except OSError as reason:
        os.write(2, f"{program[0]}: {reason.strerror}\n".encode())
        os._exit(127 if isinstance(reason, FileNotFoundError) else 126)


main()
