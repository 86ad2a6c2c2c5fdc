"""unused-gpu: the machine has a GPU, and the program computes on its processor."""

from __future__ import annotations

from builders import draw, findings, only_finding, summary
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Device, Source, Timeline
from perfdoctor.report.words.wording import verdict
from perfdoctor.vocabulary.rulebook import load_rules

T4 = (Device(0, 0, "Tesla T4"),)


def steps(op: str, ops: int = 39, *, devices: tuple[Device, ...] = T4, unit_us: float = 1000) -> Timeline:
    drawn = draw(host=["m" * ops + " " * (40 - ops)], repeat=6, unit_us=unit_us, legend={"m": ("ops", op)})
    return replace(drawn, devices=devices)


def test_it_is_said_first_and_what_it_saves_is_not_known():
    drawn = steps("aten::mkldnn_convolution")
    finding = only_finding("unused-gpu", drawn)
    assert (finding.saving_ns_per_step.likely, finding.confidence) == (0, "high")
    assert finding.saving_ns_per_step.high == finding.values["step_ms"] * 1e6
    assert "lists a GPU (`Tesla T4`), and all 1 ops of a" in summary(finding)
    first, *_ = (diagnosis := diagnose(drawn, list(load_rules().values()))).findings
    assert (first.rule, first.is_verdict) == ("unused-gpu", True)
    assert verdict(diagnosis).startswith("The recording lists a GPU")


def test_a_product_that_takes_longer_than_any_launch_was_computed_on_the_processor():
    assert only_finding("unused-gpu", steps("aten::addmm")).confidence == "medium"
    assert findings("unused-gpu", steps("aten::addmm", unit_us=5)) == [], "these may be launches, not recorded further"


def test_it_stays_silent_without_a_gpu_and_where_the_processor_mostly_waits():
    assert findings("unused-gpu", steps("aten::mkldnn_convolution", devices=())) == []
    assert findings("unused-gpu", steps("aten::mkldnn_convolution", ops=19)) == []


def test_it_stays_silent_where_the_file_is_cut_off_and_where_little_of_the_work_is_for_processors():
    drawn = steps("aten::mkldnn_convolution")
    cut = replace(drawn, sources=(Source("kineto", "cut.json", "", cut_off=True),))
    assert findings("unused-gpu", cut) == [], "what ran on the GPU may stand behind the cut"
    legend = {"m": ("ops", "aten::mkldnn_convolution"), "t": ("ops", "aten::relu")}
    little = draw(host=["mmm" + "t" * 36 + " "], repeat=6, unit_us=1000, legend=legend)
    assert findings("unused-gpu", replace(little, devices=T4)) == [], "it prepares its inputs"


def test_it_stays_silent_where_the_gpu_was_used_and_not_recorded():
    assert findings("unused-gpu", steps("aten::cudnn_convolution")) == []
