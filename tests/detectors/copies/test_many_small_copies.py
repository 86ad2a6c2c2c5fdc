"""many-small-copies: each one's latency counts, not its bytes."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary
from measured_builders import H100
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Text
from perfdoctor.vocabulary.rulebook import load_rules


def step(count: int, char: str = "h", *, of: int = 1000, rate: float = 1.0, **more):
    """`count` copies of 2 µs (2 kB at 1 GB/s) with 2 µs between them, then compute; `of` units of 2 µs."""
    return draw(
        **{
            "copies": (char + " ") * count + " " * (of - 2 * count),
            "kernels": " " * 2 * count + "#" * (of - 2 * count),
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 2,
            "gigabytes_per_second": rate,
            **more,
        }
    )


def test_it_fires_where_a_batch_is_sent_in_pieces():
    finding = only_finding("many-small-copies", step(100))
    assert finding.values == {
        **finding.values,
        "copies_per_step": 100.0,
        "mean_bytes": pytest.approx(2000.0),
        "mean_us": pytest.approx(2.0),
        **of_step("exposed", 0.2, 2.0),
    }
    # all are equally fast: by their rate alone nothing is won
    assert finding.saving_ns_per_step.likely == 0
    assert "100 copies a step" in summary(finding)


def test_what_remains_is_one_copy_at_the_best_rate_seen():
    """99 copies of 2 µs and one that carries 4 times as much in 4 µs: twice the rate is within reach."""
    even = step(100)
    size = even.copies["bytes"].copy()
    size[::100] = 4 * 2000  # one in each step, of 2 µs: 4 GB/s
    columns = even.copies.with_columns(bytes=size)
    from msgspec.structs import replace  # noqa: PLC0415

    uneven = replace(even, frames={**even.frames, "copies": columns})
    saving = only_finding("many-small-copies", uneven).saving_ns_per_step
    left = (99 * 2000 + 8000) / 4  # ns at 4 bytes a ns
    assert saving.likely == pytest.approx(200_000 - left, abs=2)
    assert saving.high == pytest.approx(200_000, abs=2)


def test_one_large_copy_goes_at_the_rate_of_the_link():
    """200 kB over PCIe 5, of which 8 % are acknowledgements and 24 of 280 bytes headers."""
    saving = only_finding("many-small-copies", step(100, gpu=H100)).saving_ns_per_step
    left = 200_000 / (63e9 * (57.88 / 62.96) * (256 / 280)) * 1e9
    assert saving.likely == pytest.approx(200_000 - left, abs=2)


def test_it_stays_silent_just_below_either_threshold():
    assert findings("many-small-copies", step(49)) == []  # 4.9 %, but 49 copies
    assert len(findings("many-small-copies", step(50))) == 1
    assert findings("many-small-copies", step(50, of=1700)) == []  # 2.9 %
    assert len(findings("many-small-copies", step(50, of=1650))) == 1


def test_it_stays_silent_where_copies_are_large():
    assert findings("many-small-copies", step(100, rate=40)) == []  # 80 kB each


def test_it_stays_silent_within_the_device():
    assert findings("many-small-copies", step(100, "x")) == []


def test_it_is_a_symptom_of_exposed_copies():
    found = diagnose(step(100), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert "many-small-copies" in [each.rule for each in above.symptoms]


def test_it_stays_silent_where_pages_of_managed_memory_move():
    drawn = step(100)
    memory = Text.constant("managed", len(drawn.copies))
    frames = {**drawn.frames, "copies": drawn.copies.with_columns(host_memory=memory)}
    assert findings("many-small-copies", replace(drawn, frames=frames)) == []
