"""results-copied-back: more than scalars goes back to the host at every step."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def step(exposed: int, char: str = "d", *, of: int = 40, **more):
    """A copy of `exposed` ms behind each step's compute."""
    return draw(
        **{
            "copies": " " * (of - exposed) + char * exposed,
            "kernels": "#" * (of - exposed) + " " * exposed,
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 1000,
            **more,
        }
    )


def test_it_fires_where_each_step_sends_much_back():
    finding = only_finding("results-copied-back", step(10), avoidable_share_low=0.5, avoidable_share_likely=0.8)
    assert finding.values == {
        "megabytes": pytest.approx(250.0),  # 10 ms at 25 GB/s
        "copies_per_step": 1.0,
        **of_step("exposed", 10.0, 40.0),
    }
    assert finding.saving_ns_per_step == Saving(5 * MS, 8 * MS, 10 * MS)
    assert "250.0 MB a step are copied to the host" in summary(finding)


def test_it_fires_also_where_the_memory_is_pageable():
    assert len(findings("results-copied-back", step(10, "D"))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("results-copied-back", step(1, of=40)) == []
    assert len(findings("results-copied-back", step(1, of=33))) == 1


def test_it_stays_silent_where_only_a_scalar_is_read():
    """However long its copy takes."""
    assert findings("results-copied-back", step(10, gigabytes_per_second=0.000001)) == []


def test_it_stays_silent_where_data_goes_to_the_device():
    assert findings("results-copied-back", step(10, "h")) == []


def test_it_stays_silent_where_it_happens_now_and_then():
    """A long copy in every second step only."""
    picture = draw(
        kernels=("#" * 30 + " " * 10) * 2,
        copies=" " * 30 + "d" * 10 + " " * 40,
        launched_us_before=50,
        repeat=4,
        unit_us=1000,
        mark=None,
        host="0" * 40 + "1" * 40,
    )
    assert findings("results-copied-back", picture) == []


def test_beside_a_pageable_batch_that_takes_longer_it_is_a_symptom_of_pageable_copies():
    picture = step(10, "D", copies="H" * 15 + " " * 15 + "D" * 10, kernels=" " * 15 + "#" * 15 + " " * 10)
    found = diagnose(picture, list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "pageable-copies")
    assert [each.rule for each in above.symptoms] == ["results-copied-back"]
    assert "DataLoader" in above.fixes[0].how
    assert "copied.synchronize()" in above.fixes[1].how


def test_to_pageable_memory_it_is_the_cause_of_pageable_copies():
    """Also where a batch that is copied to the device, which is exposed-copies', takes longer."""
    picture = step(10, "D", copies="h" * 15 + " " * 15 + "D" * 10, kernels=" " * 15 + "#" * 15 + " " * 10)
    found = diagnose(picture, list(load_rules().values())).findings
    assert "exposed-copies" in [each.rule for each in found]
    above = next(each for each in found if each.rule == "results-copied-back")
    (below,) = above.symptoms
    assert below.rule == "pageable-copies"
    assert "copies to pageable memory of the host" in below.summary
    assert not any("DataLoader" in fix.how for fix in (*above.fixes, *below.fixes))
    assert any("copied.synchronize()" in fix.how for fix in below.fixes)


def test_it_is_a_symptom_of_exposed_copies():
    found = diagnose(step(10), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "exposed-copies")
    assert "results-copied-back" in [each.rule for each in above.symptoms]
    assert not any("batch" in fix.title for fix in above.fixes)
    assert any("copied.synchronize()" in fix.how for fix in above.fixes)
