"""Whatever a rule of somebody else's yields: the diagnosis is made, and every report of it."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from folders import FIXTURES
from own_rule_files import DOCUMENT, write
from rich.console import Console

from perfdoctor.detectors import own
from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.readers.open import read
from perfdoctor.records.findings import Finding, Measure, Rows, Span
from perfdoctor.records.savings import Saving
from perfdoctor.report import json_report, markdown, terminal
from perfdoctor.vocabulary.own_rules import all_rules
from perfdoctor.vocabulary.rulebook import load_rules

VALUES = {"kernels_ms": 1.0, "step_ms": 2.0, "kernels_per_step": 3, "kernels_percent": 4.0}
WILD = [
    None, 0, -1, 1.5, float("nan"), float("inf"), 2**70, "", "{y}", "\x1b[31m\ud800<script>", "a" * 10_000, [], [1], {},
    (), (1,), ("x",), b"x", True, np.int64(3), np.array([1, 2]), object(), {1: 2}, VALUES, {**VALUES, "extra": "\x00"},
]  # fmt: skip
FIELDS = (
    "rule", "saving_ns_per_step", "confidence", "values", "evidence", "situation", "symptom_of", "explains", "work",
    "affected_ns", "bound_ns", "thread_time", "waits", "sources", "formula", "changes", "if_longer", "stands_alone",
)  # fmt: skip
ACTIONS = ("kernels", "copies", "collectives", "input_wait", "fused")


def wild_findings(run: Run, chance: random.Random) -> Iterator[Finding]:
    for _ in range(chance.choice([1, 1, 2])):
        given = {
            "rule": "acme/slow-add",
            "saving_ns_per_step": Saving(1000, 20_000, 30_000),
            "confidence": "high",
            "values": VALUES,
        }
        for field in chance.sample(FIELDS, chance.choice([1, 1, 2, 3])):
            given[field] = chance.choice([chance.choice(WILD), *likely(field, run, chance)])
        yield Finding(**given)


def likely(field: str, run: Run, chance: random.Random) -> list[object]:
    """What looks right, and is nearly."""
    place = run.places[0]
    saving = object.__new__(Saving)
    for case in ("low", "likely", "high"):
        object.__setattr__(saving, case, chance.choice([*WILD, 5, 10**6]))
    wild = chance.choice
    return {
        "saving_ns_per_step": [saving, saving],
        "evidence": [(Measure(wild(WILD), wild(WILD), "ns"),), (Span("s", 99, 5, 3),), (Rows("t", ("a",), ("ns",), ((wild(WILD),),)),)],
        "work": [{place.rank_and_device: np.ones(len(rows), bool)} for rows in (place.kernels, place.copies, "abc")],
        "symptom_of": [("input-wait",), ("acme/slow-add",), ("nope",)],
        "explains": [("exposed-communication", "acme/slow-add"), ("nope",)],
        "thread_time": [{0: (np.array([1]), np.array([2]))}, {0: None}],
    }.get(field, [])  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("fixture", ["straggler/torch", "cpu-slow-input/torch"])
def test_no_finding_breaks_a_diagnosis(fixture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = read([FIXTURES / fixture])
    ours = [load_rules()[name] for name in ("input-wait", "exposed-communication", "rank-skew", "small-batch")]
    statuses = set()
    for seed in range(120):
        chance = random.Random(seed)
        document = DOCUMENT.replace('["kernels", "places"]', '["places"]')
        write(tmp_path, document.replace('action = "kernels"', f'action = "{chance.choice(ACTIONS)}"'))
        monkeypatch.setattr(own, "_detect_of", lambda *_, chance=chance: lambda run, at: wild_findings(run, chance))
        (rule,) = (rule for rule in all_rules([str(tmp_path)]).values() if rule.origin)
        diagnosis = examine(prepare(timeline), [*ours, rule]).diagnosis
        json_report.render(diagnosis).encode()
        markdown.render(diagnosis)
        terminal.render(diagnosis, Console(file=io.StringIO(), width=100), show_all=True)
        (outcome,) = (outcome for outcome in diagnosis.outcomes if outcome.rule == rule.id)
        statuses.add(outcome.status)
        assert len([note for note in diagnosis.notes if "was left out" in note]) == (outcome.status == "failed")
    assert statuses == {"found", "failed"}
