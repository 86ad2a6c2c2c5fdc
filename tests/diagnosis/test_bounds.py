"""Is every share between nothing and the whole, and every saving within the step, whatever the ranks' windows are?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from builders import draw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfdoctor.diagnosis.engine import examine
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, Measure, Rows
from perfdoctor.records.views import Table
from perfdoctor.views.build import views
from perfdoctor.vocabulary.rulebook import load_rules

RULES = list(load_rules().values())


@st.composite
def ranks(draw_from: st.DrawFn) -> Timeline:
    """Two to four ranks with as many steps each, of lengths of their own, or one whose window is far shorter."""
    repeat = draw_from(st.integers(1, 5))
    chosen = []
    for rank in range(draw_from(st.integers(2, 4))):
        compute, wait, nccl, behind = (draw_from(st.integers(0, 12)) for _ in range(4))
        width = 1 + compute + wait + nccl + behind
        calls = ["l" + " " * (compute + wait) + ("l" if nccl else " ")]
        chosen.append(
            draw(
                kernels="#" * (1 + compute) + " " * (width - 1 - compute),
                nccl=" " * (1 + compute + wait) + "=" * nccl + " " * behind,
                copies=" " * (width - behind) + draw_from(st.sampled_from("hHd ")) * behind,
                host=[*calls, draw_from(st.sampled_from("oisgfb")) * width][: draw_from(st.integers(0, 2))],
                rank=rank,
                repeat=draw_from(st.sampled_from((repeat, repeat, repeat + 1))),
                unit_us=draw_from(st.sampled_from((10, 100, 1000))),
                world_size=draw_from(st.sampled_from((0, 8))),
                mark=draw_from(st.sampled_from(("ProfilerStep#{n}", None))),
            )
        )
    return merge(chosen)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ranks())
def test_nothing_is_negative_or_more_than_the_whole(timeline: Timeline) -> None:
    run = prepare(timeline)
    examination = examine(run, RULES)
    diagnosis = examination.diagnosis
    assert [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"] == []
    for advice in all_of(diagnosis.findings):
        within_the_step(advice, diagnosis.base_ns)
    prediction_is_within(diagnosis)
    for table in views(run, diagnosis).tables:
        parts_of_a_whole(table)


def all_of(findings: tuple[Advice, ...]) -> Iterator[Advice]:
    for advice in findings:
        yield advice
        yield from advice.symptoms


def within_the_step(advice: Advice, step_ns: int) -> None:
    saving = advice.saving_ns_per_step
    assert 0 <= saving.low <= saving.likely <= saving.high <= step_ns, advice.rule
    assert 1 <= advice.speedup[0] <= advice.speedup[1] <= advice.speedup[2], advice.rule
    for name, value in advice.values.items():
        if name.endswith("_percent") and name != "slower_percent":  # than another rank: no part of anything
            assert 0 <= float(value) <= 100.0001, (advice.rule, name, value)
        elif name.endswith("_ms"):
            assert float(value) >= 0, (advice.rule, name, value)
    for piece in advice.evidence:
        if isinstance(piece, Measure):
            assert piece.value >= 0, (advice.rule, piece)
            assert piece.unit != "share" or piece.value <= 1.0001, (advice.rule, piece)
        elif isinstance(piece, Rows):
            for row in piece.rows:
                for unit, value in zip(piece.units, row, strict=True):
                    assert unit == "text" or float(value) >= 0, (advice.rule, piece.label, row)
                    is_part = unit == "share" and "against" not in piece.label  # of another rank's it may be more
                    assert not is_part or float(value) <= 1.0001, (advice.rule, piece.label, row)


def parts_of_a_whole(table: Table) -> None:
    for column in table.columns:
        if column.unit in ("share", "ns") and column.name != "slower by":
            known = [float(value) for value in column.values if value is not None and not math.isnan(value)]
            assert all(value >= 0 for value in known), (table.title, column.name, known)
            assert column.unit != "share" or all(value <= 1.0001 for value in known), (table.title, column.name, known)


def prediction_is_within(diagnosis: Diagnosis) -> None:
    prediction = diagnosis.prediction
    if prediction is None:
        return
    low, likely, high = prediction.step_ns
    assert 0 <= low <= likely <= high <= diagnosis.base_ns
    assert 1 <= prediction.speedup[0] <= prediction.speedup[1] <= prediction.speedup[2]
