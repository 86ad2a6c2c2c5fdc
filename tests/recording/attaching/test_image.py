"""Are functions where the files say, and is a place nobody uses really one?"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.recording.attaching import image
from perfdoctor.recording.attaching.target import inspect, interpreter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has /proc")


def test_a_function_lies_where_the_loader_of_the_system_has_it() -> None:
    files = image.files(image.maps(os.getpid()))
    ((_, found),) = interpreter(os.getpid(), files, ("Py_AddPendingCall", "PyRun_SimpleString"))
    for name, address in found.items():
        assert address == ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value


def test_the_version_of_a_process_is_that_of_its_python() -> None:
    found = inspect(os.getpid())
    assert found is not None
    assert found.python == sys.version_info[:2]
    assert (found.pid, found.inner_pid, found.user) == (os.getpid(), os.getpid(), os.geteuid())


def test_there_is_nothing_to_say_of_a_process_that_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert inspect(process.pid) is None


@pytest.mark.parametrize("of_code", [False, True])
def test_bytes_behind_a_library_are_zero_may_be_written_and_lie_in_no_part_of_it(of_code: bool) -> None:
    mapped = image.maps(os.getpid())
    found = 0
    for file, base in image.files(mapped).items():
        address = image.spare(Path(file), base, mapped, 300, of_code=of_code)
        if address is None or not (Path(file).name.startswith("lib")):
            continue
        written = image.read(Path(file))
        assert written is not None
        assert address > base + max(end for _, end in (written.code if of_code else written.data))
        found += not any(image.bytes_at(os.getpid(), address, 300))
    assert found


def test_what_is_no_program_of_64_bits_has_no_image(tmp_path: Path) -> None:
    for name, content in (("empty", b""), ("text", b"#!/bin/sh\n" * 100), ("cut", b"\x7fELF\x02\x01" + b"\xff" * 20)):
        (tmp_path / name).write_bytes(content)
        assert image.read(tmp_path / name, ("main",)) is None


def test_memory_that_may_not_be_read_is_empty_and_is_not_written() -> None:
    assert image.bytes_at(os.getpid(), 0, 8) == b""
    assert not image.write_at(os.getpid(), 0, b"x")
