"""A series over numbers of GPUs as JSON, in the shape of docs/json.md. Keys are added, never renamed."""

from __future__ import annotations

from perfdoctor import __version__
from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.comparison.statistics import CONFIDENCE
from perfdoctor.records.document import FORMAT
from perfdoctor.report.comparison.json_report import finding
from perfdoctor.report.json_report import as_text


def render(scaling: ScalingResult) -> str:
    document = {
        "format": FORMAT,
        "perfdoctor": __version__,
        "kind": "scaling",
        "scaling": scaling.kind or None,
        "scaling_from": scaling.kind_from or None,
        "throughput_counts": scaling.counted,
        "confidence": CONFIDENCE,
        "settings": [
            {
                "name": each.name,
                "matters": each.matters,
                "values": [{"value": value, "ranks": ranks} for value, ranks in each.values],
            }
            for each in scaling.settings
        ],
        "rungs": scaling.rungs,
        "step_growth": scaling.whole,
        "growth": scaling.growth,
        "serial": scaling.serial,
        "checked": scaling.checked,
        "predicted": scaling.ahead,
        "not_replayed": scaling.unpredicted or None,
        "work": scaling.work,
        "work_rest": {"delta_ns": scaling.work_rest_ns, "count": scaling.work_rest_count},
        "new_findings": [finding(each) for each in scaling.findings],
        "notes": scaling.notes,
    }
    return as_text(document)
