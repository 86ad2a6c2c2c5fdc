"""What did the tests of a rule see? `rules check` runs them in a process of their own, which writes it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfdoctor.own_rules.tried import Tried, off

#: The environment variable that names the file.
FILE = "PERFDOCTOR_RULES_SEEN"


def line_of(document: Path, found: Tried) -> dict[str, Any]:
    """Of one recording, in which the rule may have found nothing."""
    listed = [*found.advice, *(symptom for advice in found.advice for symptom in advice.symptoms)]
    return {
        "document": str(document.resolve()),
        "lacking": list(found.lacking),
        "findings": [
            {
                "values": sorted(finding.values),
                "situation": finding.situation,
                "formula": finding.formula,
                "confidence": finding.confidence,
                "saves": finding.saving_ns_per_step.high > 0,
            }
            for finding in found.findings
        ],
        "amiss": list(found.amiss),
        "off": sorted({text for advice in listed if advice.derivation for text in off(advice.derivation)}),
    }


def read(file: Path, document: Path) -> list[dict[str, Any]]:
    """What was written of the rule of this document."""
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.is_file() else []
    return [line for line in lines if line["document"] == str(document.resolve())]
