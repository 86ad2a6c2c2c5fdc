"""A series over numbers of GPUs as JSON, in the shape of docs/json.md. Keys are added, never renamed."""

from __future__ import annotations

from typing import Any

import msgspec

from perfdoctor import __version__
from perfdoctor.comparison.scaling.records import Scaling, Serial, SettingOver
from perfdoctor.comparison.statistics import CONFIDENCE
from perfdoctor.report.comparison.json_report import finding
from perfdoctor.report.json_report import FORMAT, plain


def render(scaling: Scaling) -> str:
    document = plain(_document(scaling))
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _document(scaling: Scaling) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "perfdoctor": __version__,
        "kind": "scaling",
        "scaling": scaling.kind or None,
        "scaling_from": scaling.kind_from or None,
        "throughput_counts": scaling.counted,
        "confidence": CONFIDENCE,
        "settings": [_setting(each) for each in scaling.settings],
        "rungs": [_fields(each) for each in scaling.rungs],
        "step_growth": _fields(scaling.whole),
        "growth": [_fields(each) for each in scaling.growth],
        "serial": _serial(scaling.serial) if scaling.serial else None,
        "checked": [_fields(each) for each in scaling.checked],
        "predicted": [_fields(each) for each in scaling.ahead],
        "not_replayed": scaling.unpredicted or None,
        "work": [_fields(each) for each in scaling.work],
        "work_rest": {"delta_ns": scaling.work_rest_ns, "count": scaling.work_rest_count},
        "new_findings": [finding(each) for each in scaling.findings],
        "notes": list(scaling.notes),
    }


def _setting(each: SettingOver) -> dict[str, Any]:
    values = [{"value": value, "ranks": ranks} for value, ranks in each.values]
    return {"name": each.name, "matters": each.matters, "values": values}


def _serial(serial: Serial) -> dict[str, Any]:
    return {**_fields(serial), "causes": [_fields(each) for each in serial.causes]}


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
