"""How does the interpreter of a running process come to run a few words of ours, where it is safe?

Python 3.14 and newer does it itself: `sys.remote_exec` (PEP 768) names a file, which the main thread runs before its
next instruction of bytecode. Older ones have `Py_AddPendingCall`, which may be called at any moment and in any thread:
it puts a function and an argument into a queue, and the main thread calls it between two instructions, when it holds no
lock of the allocator, of the collector or of an import in C. The function is `PyRun_SimpleString`, the argument the
address of the words. This one call is made by ptrace (`calling.py`).

Where the main thread waits in the kernel while another thread trains (Ray Train, a server), the queue is not come to.
There `PyThread_start_new_thread` is called, which is C and needs nothing of the interpreter, with a few instructions of
ours: they take the GIL as any foreign thread does (`PyGILState_Ensure`), and run the words.

The words only start a thread, in which all else happens: the main thread may be anywhere in the program's own Python.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.recording.attaching import calling, image, waiting
from perfdoctor.recording.attaching.target import Target, interpreter
from perfdoctor.system import tool_process

#: The first minor version with sys.remote_exec.
REMOTE_EXEC = 14
_ADD, _RUN = "Py_AddPendingCall", "PyRun_SimpleString"
PENDING_CALL = (_ADD, _RUN)
_START, _ENSURE, _RELEASE = "PyThread_start_new_thread", "PyGILState_Ensure", "PyGILState_Release"
OWN_THREAD = (_START, _ENSURE, _RUN, _RELEASE)
_QUEUE_FULL = _NO_THREAD = -1
#: Libraries that nothing unloads: Python's own, those of C and C++, and torch's, which cannot be imported twice.
_STAYS = regex(r"lib(?:python3|c[.-]|m[.-]|stdc\+\+\.|torch_cpu\.)")
#: The ending of the file that sys.remote_exec names.
WORDS = ".words"
_REMOTE_EXEC, _PTRACE = "remote_exec", "ptrace"
_REMOTE_LIMIT_S = 20.0
_REMOTE = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_DISABLED = "PYTHON_DISABLE_REMOTE_DEBUG"
#: What the main thread runs. Nothing gets a name in the program's `__main__`, and nothing is raised. Ctrl-C that comes
#: in these microseconds is raised in the program instead.
_WORDS = """\
try:
 __import__('_thread').start_new_thread(exec,({inner!r},{{}}))
except KeyboardInterrupt:
 __import__('_thread').interrupt_main()
except Exception:
 pass
"""
#: What the thread runs; without the file, because nobody waits any more, nothing.
_INNER = """\
try:
 with open({file!r}) as f:
  exec(f.read(),{{'__name__':'perfdoctor_start'}})
except BaseException:
 pass
"""


class Injection(Struct):
    """How the words were brought to the interpreter of `target`. `stopped_s`: how long it stood still for that.

    `withdraw` is for words that it has not run in time, `clear` for those that it has run.
    """

    target: Target
    way: str
    stopped_s: float = 0.0
    address: int = 0
    size: int = 0

    def clear(self) -> None:
        """Leave the memory as it was."""
        if self.address:
            image.write_at(self.target.pid, self.address, bytes(self.size))
            self.address = 0

    def withdraw(self) -> None:
        """Let the interpreter do nothing when it comes to it. Without their file the words of a pending call do so."""
        if self.way == _REMOTE_EXEC:  # it would say on the program's output that there is no such file
            _remote_exec(self.target, Path("/dev/null"))


def words(start: Path) -> str:
    """What the main thread is to run, so that a thread runs the Python file `start`. ASCII alone."""
    return _WORDS.format(inner=ascii_of(_INNER.format(file=str(start))))


def ascii_of(text: str) -> str:
    if not text.isascii():
        raise PerfdoctorError("the folder for temporary files has a name that is not ASCII", do="Set TMPDIR=/tmp.")
    return text


def prepare(target: Target, start: Path) -> None:
    """Write beside the file what `inject` needs, if it needs any."""
    assert target.python is not None
    if target.python >= (3, REMOTE_EXEC):
        script = start.with_suffix(WORDS)
        script.write_text(words(start), "ascii")
        script.chmod(0o644)


def inject(target: Target, start: Path) -> Injection:
    """Let the interpreter run the file in a thread of its own. PerfdoctorError where that cannot be."""
    assert target.python is not None
    if target.python >= (3, REMOTE_EXEC):
        _remote_exec(target, start.with_suffix(WORDS))
        return Injection(target, _REMOTE_EXEC)
    return _pending_call(target, words(start).encode("ascii") + b"\0")


# --- Python 3.14 and newer -------------------------------------------------------------------------------------------


def _remote_exec(target: Target, script: Path) -> None:
    """Let the target run a file. PEP 768 wants a Python of the same minor version: ours, else the target's own."""
    assert target.python is not None
    own = sys.version_info[:2] == target.python
    python = sys.executable if own else f"/proc/{target.pid}/exe"
    command = [python, *tool_process.isolated(), "-c", _REMOTE, str(target.pid), str(script)]
    try:
        done = tool_process.asked(command, _REMOTE_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise PerfdoctorError(f"sys.remote_exec failed: {error}", do="Try again.") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise PerfdoctorError(f"sys.remote_exec failed: {last[:200]}", do=_do_about(last))


def _do_about(said: str) -> str:
    if "not enabled" in said:
        return f"Start the program without {_DISABLED} and -X disable-remote-debug."
    if "PermissionError" in said:
        return "In a container, start it with --cap-add=SYS_PTRACE; elsewhere run perfdoctor attach as root."
    return "Try again; where it fails again, record from the start: perfdoctor run -- COMMAND"


# --- older ones ------------------------------------------------------------------------------------------------------


def _pending_call(target: Target, text: bytes) -> Injection:
    memory = _Memory(target, PENDING_CALL)
    injection = memory.with_words(text)
    called = calling.call(target.pid, memory.at[_ADD], memory.at[_RUN], injection.address)
    if called.value == _QUEUE_FULL:
        injection.clear()
        raise PerfdoctorError("the interpreter's queue of calls is full", do="Try again.")
    injection.stopped_s = called.stopped_s
    return injection


def in_own_thread(before: Injection, start: Path) -> Injection:
    """Let a new thread of the program run the file, whose main thread waits in the kernel (waiting.py).

    `before`: what that one has not come to. PerfdoctorError where it cannot be.
    """
    target = before.target
    memory = _Memory(target, OWN_THREAD)
    before.withdraw()
    code = _own_thread(memory.at)
    # It stays: the thread returns into it, nobody knows when.
    address = next(memory.places(len(code), of_code=True, holding=code), 0) or memory.place(code, of_code=True)
    # The main thread may come to the words of a pending call at any moment. They are the same ones.
    injection = before if before.address else memory.with_words(words(start).encode("ascii") + b"\0")
    called = calling.call(target.pid, memory.at[_START], address, injection.address, waits=waiting.WAITS)
    if called.value is None:
        raise PerfdoctorError("its main thread has gone on meanwhile", do="Try again.")
    if called.value == _NO_THREAD:
        raise PerfdoctorError("the program could not start a thread", do="Look at its limits: ulimit -u, pids.max.")
    injection.way, injection.stopped_s = f"{_PTRACE} in a thread of its own", called.stopped_s
    return injection


def _own_thread(at: dict[str, int]) -> bytes:
    """A function of the address of words, for x86-64 (System V ABI): the words are run with the GIL."""
    ensure, run, release = (at[name].to_bytes(8, "little") for name in (_ENSURE, _RUN, _RELEASE))
    call = b"\xff\xd0"  # call rax
    return b"".join((
        b"\xf3\x0f\x1e\xfa", b"\x53\x41\x54\x48\x83\xec\x08",  # endbr64; push rbx; push r12; sub rsp, 8
        b"\x48\x89\xfb",  # mov rbx, rdi
        b"\x48\xb8", ensure, call, b"\x41\x89\xc4",  # movabs rax, …; call rax; mov r12d, eax
        b"\x48\x89\xdf", b"\x48\xb8", run, call,  # mov rdi, rbx
        b"\x44\x89\xe7", b"\x48\xb8", release, call,  # mov edi, r12d
        b"\x48\x83\xc4\x08\x41\x5c\x5b\xc3",  # add rsp, 8; pop r12; pop rbx; ret
    ))  # fmt: skip


def without_symbols(target: Target) -> PerfdoctorError:
    return PerfdoctorError(
        f"the Python of {target.pid} does not say where its functions are (it is static, or stripped)",
        do="Record from the start: perfdoctor run -- COMMAND. Or train with a Python from python.org, Debian or conda.",
    )


def _never_unloaded_first(files: dict[str, int], executable: str) -> dict[str, int]:
    """The libraries and the executable, first what stays as long as the process: it may come to the words late.

    What a program loads itself, a plugin or code that was compiled for it, it may also unload.
    """
    libraries = [file for file in files if ".so" in Path(file).name]
    stay = [file for file in libraries if _STAYS.match(Path(file).name)]
    return {file: files[file] for file in (*stay, *(each for each in files if each == executable), *libraries)}


class _Memory:
    """The memory of a process: `at` are the addresses of these functions of its interpreter."""

    def __init__(self, target: Target, names: tuple[str, ...]) -> None:
        self.target = target
        self.mapped = image.maps(target.pid)
        files = image.files(self.mapped)
        found = interpreter(target.pid, files, names)
        if not found:
            raise without_symbols(target)
        (executable, self.at), *_ = found
        self._files = _never_unloaded_first(files, executable)

    def with_words(self, text: bytes) -> Injection:
        """Write the words where nobody uses the memory."""
        return Injection(self.target, _PTRACE, 0.0, self.place(text), len(text))

    def place(self, content: bytes, *, of_code: bool = False) -> int:
        """Write it where nobody uses the memory, and say where. PerfdoctorError where it cannot be."""
        address = next(self.places(len(content), of_code=of_code), 0)
        if not address or not image.write_at(self.target.pid, address, content):
            raise PerfdoctorError(
                "the program has no place for a few words", do="Record from the start: perfdoctor run"
            )
        return address

    def places(self, size: int, *, of_code: bool = False, holding: bytes = b"") -> Iterator[int]:
        """Yield addresses of so many bytes that nobody uses and that are all zero, or hold this already."""
        for file, base in self._files.items():
            if not Path(file).name.startswith("ld-"):  # which uses its own page
                path = Path(f"{self.target.root}{file}")
                address = image.spare(path, base, self.mapped, size, of_code=of_code)
                if address is not None and image.bytes_at(self.target.pid, address, size) == (holding or bytes(size)):
                    yield address
