"""Which launches does a report of Nsight Compute hold? Read from the file, without NVIDIA's package.

The format is documented (Nsight Compute Customization Guide, "Report File Format", version 7; the messages are in
`extras/FileFormat/*.proto` of each installation). Behind the magic number follow a header and blocks. Each is a
protobuf message behind its length of four bytes, little-endian. A block's header contains the number of sources and
results that follow it, and the names that they are the first to use. Numbers are in base units. Only the fields below
are read, so new ones do no harm; a file of another version is left to NVIDIA's own tools.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.ncu.metric_names import (
    Launch,
    RuleAdvice,
    base_unit,
    is_one_of_many,
    plain_message,
    speedup_share,
    wanted_names,
)
from perfdoctor.system.protobuf import Value, fields

MAGIC = b"NVR\0"
VERSION = 7
_LENGTH = struct.Struct("<I")

#: Field numbers, by message.
_FILE_VERSION = 1
_NUM_SOURCES, _NUM_RESULTS, _STRINGS, _PAYLOAD_SIZE = 1, 2, 4, 5
_FUNCTION_NAME, _DEMANGLED_NAME, _GRID, _BLOCK, _METRIC, _RULE = 6, 7, 10, 11, 13, 19
_METRIC_NAME, _METRIC_VALUE = 1, 2
_RULE_ID, _RULE_BODY = 1, 3
_MESSAGE, _SPEEDUP = 1, 10
_MESSAGE_TEXT, _MESSAGE_TYPE, _MESSAGE_TITLE = 1, 2, 4
_SPEEDUP_TYPE, _SPEEDUP_PERCENT = 1, 2
_GLOBAL = 2
#: The type of a message of a rule that could not be evaluated: no advice, and it names folders of the machine.
_FAILED = 3

_GPU, _CAPABILITY = "device__attribute_display_name", "device__attribute_compute_capability_"
_DEVICE = "launch__device_id"
_OTHERWISE = "NVIDIA's own tools may read more versions: put ncu on PATH, or pip install 'perfdoctor[ncu]'."


def read_launches(report: Path) -> tuple[Launch, ...]:
    """All kernels of a report, in its order. PerfdoctorError where it is damaged, of another version, or holds none."""
    data = report.read_bytes()
    try:
        launches = tuple(_launch(result, names) for result, names in _results(data, report))
    except (struct.error, IndexError, ValueError) as error:
        raise unreadable(report, f"it is damaged ({error or type(error).__name__})") from error
    if not launches:
        raise unreadable(report, "it holds no measured kernel")
    return launches


# --- the file ---


def _results(data: bytes, report: Path) -> Iterator[tuple[bytes, list[str]]]:
    """Each result with the names of all blocks: it may use one that stands in a later block."""
    header, at = _sized(data, len(MAGIC))
    version = _number(header, _FILE_VERSION)
    if data[: len(MAGIC)] != MAGIC or version != VERSION:
        raise unreadable(report, f"it is written in version {version} of the format, not in {VERSION}")
    names: list[str] = []
    results: list[bytes] = []
    while at < len(data):
        header, at = _sized(data, at)
        end = at + _number(header, _PAYLOAD_SIZE)
        if end > len(data):
            raise ValueError("it breaks off")
        for table in _messages(header, _STRINGS):
            names += [_text(each) for each in _messages(table, 1)]
        for _ in range(_number(header, _NUM_SOURCES)):
            _, at = _sized(data, at)
        for _ in range(_number(header, _NUM_RESULTS)):
            result, at = _sized(data, at)
            results.append(result)
        at = end
    yield from ((result, names) for result in results)


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    """The message whose length stands at `at`, and where the next one begins."""
    (length,) = _LENGTH.unpack_from(data, at)
    start, end = at + _LENGTH.size, at + _LENGTH.size + length
    if end > len(data):
        raise ValueError("it breaks off")
    return data[start:end], end


# --- one launch ---


def _launch(result: bytes, names: list[str]) -> Launch:
    wanted = {*wanted_names(), _GPU, _DEVICE, f"{_CAPABILITY}major", f"{_CAPABILITY}minor"}
    launch, about, function = Launch(""), dict[str, int | float | str](), ""
    for number, value in fields(result):
        if number == _METRIC and isinstance(value, bytes):
            name = names[_number(value, _METRIC_NAME)]
            if name in wanted or is_one_of_many(name):
                about.update((name, each) for each in _values(value))
        elif number == _DEMANGLED_NAME:
            launch.name = _text(value)
        elif number == _FUNCTION_NAME:
            function = _text(value)
        elif number == _GRID:
            launch.grid = _sizes(value)
        elif number == _BLOCK:
            launch.block = _sizes(value)
        elif number == _RULE and isinstance(value, bytes):
            launch.advice += _advice(value)
    launch.name = launch.name or function
    _set_metrics(launch, about)
    return launch


def _set_metrics(launch: Launch, about: dict[str, int | float | str]) -> None:
    """Set what the metrics contain about the device, and what they measured."""
    launch.gpu = str(about.pop(_GPU, ""))
    device, major, minor = (about.pop(name, None) for name in (_DEVICE, f"{_CAPABILITY}major", f"{_CAPABILITY}minor"))
    launch.device = _small(device)
    if min(_small(major), _small(minor)) >= 0:
        launch.compute_capability = 10 * _small(major) + _small(minor)
    launch.metrics = {
        name: [(float(value), base_unit(name))] for name, value in about.items() if not isinstance(value, str)
    }


def _small(value: float | str | None) -> int:
    """A number of a device or version; -1 where it is none."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 1000 else -1


def _values(metric: bytes) -> Iterator[int | float | str]:
    """A text (1), a float (2), a double (3) or a whole number (4, 5)."""
    for message in _messages(metric, _METRIC_VALUE):
        for _, value in fields(message):
            yield _text(value) if isinstance(value, bytes) else value


def _sizes(value: Value) -> tuple[int, ...]:
    """x, y and z; protobuf may leave zeros out, and no launch has one."""
    sizes = tuple(int(each) for number, each in fields(value) if number in (1, 2, 3) and isinstance(each, int))
    return sizes if len(sizes) == 3 and all(sizes) else ()


def _advice(rule: bytes) -> Iterator[RuleAdvice]:
    """What one rule advises: no results without words (tables, values for other rules), and no failures."""
    name = next((_text(value) for number, value in fields(rule) if number == _RULE_ID), "")
    for body in _messages(rule, _RULE_BODY):
        for result in _messages(body, 1):
            share, is_global = nan, False
            for speedup in _messages(result, _SPEEDUP):
                estimate = dict(fields(speedup))
                percent = estimate.get(_SPEEDUP_PERCENT, nan)
                share = speedup_share(percent) if isinstance(percent, (int, float)) else nan
                is_global = estimate.get(_SPEEDUP_TYPE) == _GLOBAL
            message = dict(field for text in _messages(result, _MESSAGE) for field in fields(text))
            words = " ".join(_text(message.get(number, b"")) for number in (_MESSAGE_TITLE, _MESSAGE_TEXT)).strip()
            if message.get(_MESSAGE_TYPE) != _FAILED and (words or not isnan(share)):
                yield RuleAdvice(name, share, is_global, plain_message(words))


# --- fields ---


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    return (value for field, value in fields(message) if field == number and isinstance(value, bytes))


def _number(message: bytes, number: int) -> int:
    """A field's number; 0 where it is left out, as in protobuf."""
    return next((value for field, value in fields(message) if field == number and isinstance(value, int)), 0)


def _text(value: Value) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else ""


def unreadable(report: Path, why: str, otherwise: str = _OTHERWISE) -> PerfdoctorError:
    """The error. `otherwise`: what else than damage it may be, and what helps then."""
    do = f"Open it in Nsight Compute to see whether it is damaged. {otherwise}"
    return PerfdoctorError(f"`{report.name}` cannot be read: {why}", do=do)
