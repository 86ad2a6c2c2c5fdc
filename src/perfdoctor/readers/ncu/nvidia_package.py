"""Which launches does a report of Nsight Compute hold? Read with NVIDIA's own package `ncu-report` (`perfdoctor[ncu]`).

It is optional, as it is under NVIDIA's licence. It reads reports of all versions up to its own, and needs no GPU and no
ncu. It does not recognise damage: a damaged report appears empty, a call raises some error, or the library aborts. A
process of its own loads it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from math import isnan, nan
from pathlib import Path
from typing import Any

import msgspec

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
from perfdoctor.readers.ncu.report_file import unreadable
from perfdoctor.system import tool_process
from perfdoctor.system.memory import limited

#: NVIDIA's SpeedupType of the whole kernel, not of a part of it.
_GLOBAL = 2
#: NVIDIA's MsgType of a rule that could not be evaluated: no advice, and it names folders of the machine.
_FAILED = 4
_NAME = "ncu_report"
#: A few hundred launches are read in a second.
_TIMEOUT_S = 300
#: Objects take some ten times the bytes of their report; the library itself takes 200 MB.
_GROWTH, _FREE_BYTES = 32, 1 << 30


class _Answer(msgspec.Struct, frozen=True):
    """What the process of its own found, or why it could not."""

    launches: tuple[Launch, ...] = ()
    why: str = ""


def is_installed() -> bool:
    return find_spec(_NAME) is not None


def read_apart(report: Path) -> tuple[Launch, ...]:
    """All kernels of a report, in its order, read by another process. PerfdoctorError where it is damaged."""
    code, printed, _ = tool_process.run(
        [*tool_process.own_command(__name__), str(report.absolute())],
        environment=dict(os.environ), timeout_s=_TIMEOUT_S, not_started="Check the installation of Python.",
        too_slow=_damaged(report, f"NVIDIA's package took more than {_TIMEOUT_S // 60} minutes"),
    )  # fmt: skip
    if code:
        raise _damaged(report, "the library that reads it crashed" if code < 0 else "its process failed")
    answer = msgspec.msgpack.decode(printed, type=_Answer)
    if answer.why:
        raise _damaged(report, answer.why)
    return answer.launches


def main() -> None:
    """Print the launches of the report sys.argv[1], for `read_apart`."""
    report = Path(sys.argv[1])
    limited(_FREE_BYTES + _GROWTH * report.stat().st_size)
    module = package()
    try:
        found = _Answer(read_launches(module, report)) if module else _Answer(why="NVIDIA's package does not load")
    except PerfdoctorError as error:
        found = _Answer(why=error.what.partition("cannot be read: ")[2] or error.what)
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


def package() -> Any | None:
    """The module, or None: not installed, or built for another machine than this one."""
    try:
        return importlib.import_module(_NAME)
    except (ImportError, OSError):
        return None


def read_launches(module: Any, report: Path) -> tuple[Launch, ...]:
    """All kernels of a report, in its order. PerfdoctorError where it is damaged, or holds none."""
    try:
        context = module.load_report(str(report))
        kernels = [action for each in context for action in each if _is_kernel(module, action)]
        launches = tuple(_launch(module, action) for action in kernels)
    except Exception as error:  # a damaged report may raise any error
        raise _damaged(report, str(error) or type(error).__name__) from error
    if not launches:
        raise _damaged(report, "it holds no measured kernel")
    if not any(launch.metrics for launch in launches):
        raise _damaged(report, "it breaks off before its metrics")
    return launches


def _damaged(report: Path, why: str) -> PerfdoctorError:
    newer = "If it is newer than the package ncu-report: pip install -U ncu-report."
    return unreadable(report, " ".join(why.split())[:200], newer)


def _is_kernel(module: Any, action: Any) -> bool:
    """Is it a kernel, and not a range or a graph that was measured as a whole?"""
    kind = getattr(module.IAction, "WorkloadType_KERNEL", 0)
    return not hasattr(action, "workload_type") or action.workload_type() == kind


def _launch(module: Any, action: Any) -> Launch:
    demangled = getattr(module.IAction, "NameBase_DEMANGLED", None)
    capability = "device__attribute_compute_capability_"
    major, minor = (int(_value(action, f"{capability}{part}", -1)) for part in ("major", "minor"))
    launch = Launch(
        str((action.name(demangled) if demangled is not None else "") or action.name() or ""),
        device=int(_value(action, "launch__device_id", -1)),
        grid=_sizes(action, "launch__grid_dim_"),
        block=_sizes(action, "launch__block_dim_"),
        gpu=str(_value(action, "device__attribute_display_name", "")),
        compute_capability=10 * major + minor if min(major, minor) >= 0 else -1,
        advice=list(_advice(action.rule_results_as_dicts())),
    )
    there = set(action.metric_names())
    for name in (*(name for name in wanted_names() if name in there), *sorted(filter(is_one_of_many, there))):
        value = _value(action, name, None)
        if isinstance(value, (int, float)):
            # For a chip unknown to the package there are no units; numbers in a report are in base units.
            unit = str(action.metric_by_name(name).unit() or "") or base_unit(name)
            launch.metrics[name] = [(float(value), unit)]
    return launch


def _value(action: Any, name: str, default: Any) -> Any:
    """The value of a metric; `default` where it has none."""
    metric = action.metric_by_name(name)
    value = metric.value() if metric is not None and metric.has_value() else None
    return default if value is None else value


def _sizes(action: Any, prefix: str) -> tuple[int, ...]:
    sizes = tuple(int(_value(action, prefix + axis, 0)) for axis in "xyz")
    return sizes if all(sizes) else ()


def _advice(results: Iterable[dict[str, Any]]) -> Iterator[RuleAdvice]:
    """What the rules advise: no results without words (tables, values for other rules), and no failures."""
    for result in results:
        estimate, message = result.get("speedup_estimation") or {}, result.get("rule_message") or {}
        words = " ".join(str(message.get(key, "")) for key in ("title", "message")).strip()
        share = speedup_share(float(estimate.get("speedup", nan)))
        if message.get("type") != _FAILED and (words or not isnan(share)):
            rule, is_global = str(result.get("rule_identifier", "")), int(estimate.get("type", 0)) == _GLOBAL
            yield RuleAdvice(rule, share, is_global, plain_message(words))


if __name__ == "__main__":
    main()
