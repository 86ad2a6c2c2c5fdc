"""Pickles that need more than plain data are refused, and nothing in them is executed."""

from __future__ import annotations

import gc
import io
import os
import pickle
import resource
import struct
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers import plain_pickle

PLAIN = {"a": [1, 2.5, None, True, (3, "text")], "b": {"c": "text" * 5}, "large": 2**70}


@pytest.fixture(autouse=True, params=[True, False], ids=["limited", "in-python"])
def is_limited(request, monkeypatch):
    """Each test runs as where memory can be limited, and as on macOS and Windows."""
    if not request.param:
        monkeypatch.setitem(sys.modules, "resource", None)  # what is imported of it here stays
    return request.param


def written(folder: Path, data: bytes) -> Path:
    path = folder / "made.pickle"
    path.write_bytes(data)
    return path


class Calls:
    def __init__(self, function: object, *arguments: object) -> None:
        self.made_of = function, arguments

    def __reduce__(self) -> object:
        return self.made_of


class Pointing(pickle.Pickler):
    def persistent_id(self, found: object) -> object:
        return "outside" if found == "here" else None


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_is_read_in_every_binary_protocol(tmp_path, protocol):
    path = written(tmp_path, pickle.dumps(PLAIN, protocol))
    assert plain_pickle.is_pickle(path.read_bytes()[:16])
    assert plain_pickle.load(path) == PLAIN


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_command_is_not_run(tmp_path, protocol):
    proof = tmp_path / "proof"
    path = written(tmp_path, pickle.dumps({"segments": [Calls(os.system, f"touch {proof}")]}, protocol))
    with pytest.raises(PerfdoctorError, match=r"would build `(posix|nt)\.system`: it was not opened"):
        plain_pickle.load(path)
    assert not proof.exists()


@pytest.mark.parametrize("function", [eval, exec, print, getattr, __import__, open])
def test_no_function_of_python_is_called(tmp_path, function):
    path = written(tmp_path, pickle.dumps(Calls(function, "1")))
    with pytest.raises(PerfdoctorError, match="was not opened"):
        plain_pickle.load(path)


@pytest.mark.parametrize("value", [OrderedDict(a=1), Path("x"), io.BytesIO(b"x"), complex(1, 2), slice(1)])
def test_no_class_is_built_however_harmless(tmp_path, value):
    with pytest.raises(PerfdoctorError, match="was not opened"):
        plain_pickle.load(written(tmp_path, pickle.dumps(value)))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(b"\x80\x02cos\nsystem\n(S'true'\ntR.", id="GLOBAL and REDUCE"),
        pytest.param(b"\x80\x02(S'true'\nios\nsystem\n.", id="INST"),
        pytest.param(b"\x80\x02(cos\nsystem\nS'true'\no.", id="OBJ"),
        pytest.param(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", id="STACK_GLOBAL"),
        pytest.param(b"\x80\x02cbuiltins\nobject\n)\x81.", id="NEWOBJ"),
    ],
)
def test_every_way_to_name_a_class_is_refused(tmp_path, program):
    with pytest.raises(PerfdoctorError, match="was not opened"):
        plain_pickle.load(written(tmp_path, program))


def test_an_object_outside_of_the_file_is_refused(tmp_path):
    data = io.BytesIO()
    Pointing(data, 4).dump(["here"])
    with pytest.raises(PerfdoctorError, match="an object outside of the file"):
        plain_pickle.load(written(tmp_path, data.getvalue()))


def test_every_truncation_is_a_clear_error(tmp_path):
    data = pickle.dumps(PLAIN)
    for length in range(2, len(data)):
        with pytest.raises(PerfdoctorError, match="breaks off or is damaged"):
            plain_pickle.load(written(tmp_path, data[:length]))


def test_bytes_of_any_kind_raise_nothing_else(tmp_path):
    data = bytearray(pickle.dumps(PLAIN))
    for place in range(2, len(data)):
        for value in (0x00, 0x2E, 0x52, 0x62, 0x93, 0xFF):
            damaged = bytes(data[:place]) + bytes([value]) + bytes(data[place + 1 :])
            try:
                plain_pickle.load(written(tmp_path, damaged))
            except PerfdoctorError as error:
                assert error.what
                assert error.do


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is the system's")
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(b"\x80\x04Nr" + struct.pack("<I", 2**31) + b".", id="a memo of 32 GB"),
        pytest.param(b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.", id="bytes of 1 TB"),
        pytest.param(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x.", id="a bytearray of 1 TB"),
    ],
)
def test_a_few_bytes_do_not_get_gigabytes(tmp_path, program, is_limited):
    before = resource.getrlimit(resource.RLIMIT_AS)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if is_limited:
        with pytest.raises(PerfdoctorError):
            plain_pickle.load(written(tmp_path, program))
    else:
        _load_in_little(written(tmp_path, program))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib < 1 << 20
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_the_interpreter_prints_of_a_damaged_pickle_is_not_seen(tmp_path, monkeypatch, capsys):
    """Python prints by `sys.excepthook` where it has no memory for a bytearray: seen in 4 of 108,000 changed files."""
    hook = sys.excepthook

    def prints(*_: object) -> None:
        sys.excepthook(SystemError, SystemError("deallocated bytearray object has exported buffers"), None)

    monkeypatch.setattr(plain_pickle._PlainData, "persistent_load", prints)
    assert plain_pickle.load(written(tmp_path, b"\x80\x04NQ.")) is None
    assert capsys.readouterr().err == ""
    assert sys.excepthook is hook


def _load_in_little(file: Path) -> None:
    """Load it, or be refused, with 4 GB at hand: whoever asks for more gets a MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (4 << 30), before[1]))
    try:
        plain_pickle.load(file)
    except PerfdoctorError as error:
        assert "far more memory" not in error.what
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_the_collector_is_on_again_after_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("perfdoctor.system.own_process._is_own", True)
    assert gc.isenabled()
    with pytest.raises(PerfdoctorError):
        plain_pickle.load(written(tmp_path, b"\x80\x04"))
    assert gc.isenabled()
