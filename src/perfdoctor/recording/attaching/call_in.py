"""Calls one function in the main thread of a process, by ptrace(2), and leaves all its registers as they were.

A program of its own, which `calling.py` starts: whatever ends it, the kernel lets the thread go. Only that thread
stands still, for less than a millisecond. Registers of vectors are put back byte by byte as the kernel gave them: gdb
13 loses the upper sixteen of AVX-512 where no other ones are in use, as in a copy of memory by the C library, whose
bytes become zeros then.

The words are JSON: `pid`, `address`, `arguments`, and `waits`: null, or the numbers of the system calls in one of which
the thread has to wait (`calls`), and `futex`: the number of futex(2), a mask, and its operation behind that. Printed is
JSON, too: `value`, what the function returned as an int, null where the thread did not wait so, and `stopped_s`; or
`error`, in words, or `errno`. x86-64 only.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import struct
import sys
import time
from typing import Any, NoReturn

#: linux/ptrace.h, linux/elf.h, sys/wait.h.
_CONTINUE, _DETACH, _GET_REGISTERS, _SET_REGISTERS, _SEIZE, _INTERRUPT = 7, 17, 0x4204, 0x4205, 0x4206, 0x4207
_GENERAL, _EXTENDED = 1, 0x202  # NT_PRSTATUS, NT_X86_XSTATE
_EVENT_STOP, _WAIT_ALL = 128, 0x40000000
#: struct user_regs_struct (sys/user.h): 27 words of 8 bytes, and where in it these are.
_REGISTERS = struct.Struct("<27Q")
_RAX, _RSI, _RDI, _CALL, _RIP, _FLAGS, _RSP = 10, 13, 14, 15, 16, 18, 19
#: The System V ABI: a function may use so many bytes below its stack; the flag of direction is clear at a call.
_RED_ZONE, _DIRECTION, _TRAP = 128, 1 << 10, 1 << 8
_NO_CALL = (1 << 64) - 1
#: More than the extended registers of any processor take: 11 kB with AMX.
_MOST_BYTES = 1 << 16
#: A thread that waits for a disk or a network does not stop. A function that waits for a lock has it soon.
_STOPS_WITHIN_S, _RETURNS_WITHIN_S = 10.0, 10.0


class _CallError(Exception):
    """The call cannot be made, or failed: its text says why."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Thread:
    """A main thread that is traced. OSError where the kernel refuses something."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self._ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._ptrace.restype = ctypes.c_long
        self._ask(_SEIZE)

    def _ask(self, request: int, address: int = 0, data: Any = 0) -> None:
        if self._ptrace(request, self.pid, address, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def stop(self) -> None:
        """Stop it, wherever it is. Signals that come meanwhile are delivered."""
        self._ask(_INTERRUPT)
        while True:
            number, event = self._stopped(
                _STOPS_WITHIN_S, "its main thread did not stop: it waits for a disk or a network"
            )
            if event and number == signal.SIGTRAP:
                return
            if event:
                raise _CallError("it is stopped")
            self._ask(_CONTINUE, 0, number)

    def _stopped(self, limit_s: float, late: str) -> tuple[int, bool]:
        """Wait until it stops: the number of the signal, and is that none of its own?"""
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            _, status = os.waitpid(self.pid, _WAIT_ALL)
        except TimeoutError as error:
            raise _CallError(late) from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if not os.WIFSTOPPED(status):
            raise _CallError("it ended")
        return os.WSTOPSIG(status), status >> 16 == _EVENT_STOP

    def registers(self, kind: int) -> bytes:
        buffer = ctypes.create_string_buffer(_MOST_BYTES)
        vector = _Vector(ctypes.addressof(buffer), _MOST_BYTES)
        self._ask(_GET_REGISTERS, kind, ctypes.addressof(vector))
        return buffer.raw[: vector.size]

    def set_registers(self, kind: int, content: bytes) -> None:
        buffer = ctypes.create_string_buffer(content, len(content))
        vector = _Vector(ctypes.addressof(buffer), len(content))
        self._ask(_SET_REGISTERS, kind, ctypes.addressof(vector))

    def call(self, address: int, arguments: list[int], general: bytes, extended: bytes) -> int:
        """Call it, and put back these registers. It returns to address 0, where no code is: that is its end."""
        words = list(_REGISTERS.unpack(general))
        # A call of the system that was interrupted goes on afterwards, when the kernel finds its number again.
        words[_RIP], words[_CALL], words[_RAX] = address, _NO_CALL, 0
        words[_RSP] = (words[_RSP] - _RED_ZONE) // 16 * 16 - 8
        words[_FLAGS] &= ~(_DIRECTION | _TRAP)
        words[_RDI], words[_RSI] = (*arguments, 0, 0)[:2]
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:  # noqa: PTH123 pathlib takes as long to load as the rest
            memory.seek(words[_RSP])
            memory.write(bytes(8))
        self.set_registers(_GENERAL, _REGISTERS.pack(*words))
        try:
            return self._returned()
        finally:
            self.set_registers(_EXTENDED, extended)
            self.set_registers(_GENERAL, general)

    def _returned(self) -> int:
        number = 0
        while True:
            self._ask(_CONTINUE, 0, number)
            try:
                number, event = self._stopped(_RETURNS_WITHIN_S, "the call did not return")
            except _CallError:
                self._ask(_INTERRUPT)  # its registers can be put back only where it stands
                self._stopped(_STOPS_WITHIN_S, "its main thread did not stop again")
                raise
            if number in (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE) and not event:
                words = _REGISTERS.unpack(self.registers(_GENERAL))
                if words[_RIP]:
                    raise _CallError(f"the call failed with {signal.Signals(number).name}")
                return ctypes.c_int(words[_RAX] & 0xFFFFFFFF).value
            number = 0 if event else number  # a signal of the program's own is delivered

    def let_go(self) -> None:
        self._ask(_DETACH)


def _waits(general: bytes, waits: dict[str, list[int]]) -> bool:
    words = _REGISTERS.unpack(general)
    futex, mask, operation = waits["futex"]
    return words[_CALL] in waits["calls"] or (words[_CALL] == futex and words[_RSI] & mask == operation)


def _called(given: dict[str, Any]) -> dict[str, Any]:
    thread = _Thread(given["pid"])
    thread.stop()
    begun = time.monotonic()
    try:
        general, extended = thread.registers(_GENERAL), thread.registers(_EXTENDED)
        if given["waits"] is not None and not _waits(general, given["waits"]):
            value = None
        else:
            value = thread.call(given["address"], given["arguments"], general, extended)
    finally:
        thread.let_go()
    return {"value": value, "stopped_s": time.monotonic() - begun}


def _late(_number: int, _frame: object) -> NoReturn:
    raise TimeoutError


def main() -> None:
    signal.signal(signal.SIGALRM, _late)
    try:
        said = _called(json.loads(sys.argv[1]))
    except _CallError as error:
        said = {"error": str(error)}
    except OSError as error:
        said = {"error": "it ended"} if error.errno == errno.ESRCH else {"errno": error.errno}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
