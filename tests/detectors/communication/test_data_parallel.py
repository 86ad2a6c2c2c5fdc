"""data-parallel: one process drives several GPUs with nn.DataParallel."""

from __future__ import annotations

import pytest
from builders import findings, frame, only_finding, summary
from msgspec.structs import replace
from several_gpus_cases import MS, gpus

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules


def test_it_fires_where_the_range_and_several_gpus_are_there():
    finding = only_finding("data-parallel", gpus(30, 20, 20, 10), min_part_of_busiest=0.1)
    # mean 20 ms, the first 10 beyond; idle 10, 20, 20 and 30 of 40 ms
    assert finding.values == {
        "devices": 4,
        "idle_percent": pytest.approx(50, abs=1),
        "extra_ms": pytest.approx(10),
        "own_extra_ms": pytest.approx(10),
        **dict.fromkeys(("sent_ms", "hidden_ms", "copies_ms"), 0),
        "taken_share": pytest.approx(1 - 1 / 1.189),
    }
    assert finding.saving_ns_per_step == Saving(0, 10 * MS, 10 * MS)
    assert "drives 4 GPUs from one process" in summary(finding)


def test_what_is_sent_out_and_added_up_runs_beside_the_backward_pass_with_ddp():
    """A broadcast of 10 ms a step with nothing beside it: of two buckets the first is hidden, less what it takes."""
    drawn = gpus(30, 20)
    rows = [
        {"start_ns": row + 30 * MS, "end_ns": row + 40 * MS - 20_000, "device": device, "name": "ncclBroadcast", "kind": "broadcast"}
        for row in drawn.kernels.start_ns[drawn.kernels["device"] == 0].tolist()
        for device in (0, 1)
    ]  # fmt: skip
    drawn = replace(drawn, frames={**drawn.frames, "collectives": frame("collectives", rows)})
    finding = only_finding("data-parallel", drawn)
    saving = finding.saving_ns_per_step
    assert saving.likely == pytest.approx((5 / 1.189 + 5) * MS, rel=0.01)
    assert (saving.low, saving.high) == (0, pytest.approx((10 + 5) * MS, rel=0.01))
    assert "exposed-communication" in finding.explains


def test_nothing_is_promised_where_the_busiest_is_not_waited_for():
    assert only_finding("data-parallel", gpus(15, 5)).saving_ns_per_step.likely == 0


def test_it_stays_silent_where_the_other_gpu_is_just_below_a_part_of_it():
    assert findings("data-parallel", gpus(30, 2.9)) == []
    assert len(findings("data-parallel", gpus(30, 3.1))) == 1


@pytest.mark.parametrize("forward", ["DistributedDataParallel.forward", "forward", ""])
def test_it_stays_silent_where_something_else_runs(forward):
    assert findings("data-parallel", gpus(30, 20, forward=forward)) == []


def test_it_stays_silent_on_one_gpu_and_on_one_for_each_process():
    assert findings("data-parallel", gpus(30)) == []
    assert findings("data-parallel", gpus(30, 20, ranks=True)) == []


def test_uneven_gpus_are_a_symptom_of_it():
    found = diagnose(gpus(30, 15), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "data-parallel")
    assert [each.rule for each in above.symptoms] == ["uneven-gpus"]
