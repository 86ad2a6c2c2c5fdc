"""memory-bound-kernels: kernels that move their bytes as fast as the memory gives them."""

from __future__ import annotations

import json

import pytest
from builders import ELEMENTWISE, GEMM, draw_steps, findings, only_finding, summary, timeline
from counters_builder import sampled
from ncu_builders import alone, steps, with_ncu

from perfdoctor.diagnosis.engine import diagnose, missing
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.memory_bandwidth import moved_bytes
from perfdoctor.model.timeline import UNKNOWN, Device
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
PEAK = 2039e9  # bytes/s of an A100 with 80 GB
A100 = Device(0, 0, "NVIDIA A100-SXM4-80GB")
SIDE = [8192, 8192]


def recorded(*ops: dict, matmul_ms: int = 10, device: Device = A100):
    """Ops one behind the other, each launching its kernels; then one matmul."""
    kernels, calls, rows, at, number = [], [], [], 0, 0
    for op in (*ops, {"ns": matmul_ms * MS, "name": "aten::mm", "kernel": GEMM}):
        first = 1000 * len(rows)
        for part in range(op.get("kernels", 1)):
            number += 1
            end = at + round(op["ns"]) // op.get("kernels", 1)
            name = op.get("kernel", ELEMENTWISE)
            kernels.append({"start_ns": at, "end_ns": end, "name": name, "correlation": number, "process": 1})
            start = first + 10 + 20 * part
            calls.append({"start_ns": start, "end_ns": start + 5, "name": "cudaLaunchKernel", "correlation": number,
                          "process": 1})  # fmt: skip
            at = end
        shapes, types = json.dumps(op.get("shapes", [])), json.dumps(op.get("types", []))
        rows.append({"start_ns": first, "end_ns": first + 500, "name": op["name"], "process": 1,
                     "input_shapes": shapes, "input_types": types})  # fmt: skip
    return timeline(kernels=kernels, calls=calls, ops=rows, devices=[device])


def add(share_of_peak: float, *, side=SIDE, **more) -> dict:
    """Two tensors of floats read and one written, at this share of the peak."""
    moved = 3 * side[0] * side[1] * 4
    both = {"shapes": [side, side, []], "types": ["float", "float", "Scalar"]}
    return {"name": "aten::add", "ns": moved / (share_of_peak * PEAK) * 1e9, **both, **more}


def test_it_fires_where_sums_run_at_the_pace_of_the_memory():
    """Twenty sums of 805 MB at 85 %: 0.4647 ms each, 9.294 ms beside a matmul of 10."""
    finding = only_finding("memory-bound-kernels", recorded(*[add(0.85)] * 20))
    assert finding.saving_ns_per_step == Saving(0, 0, 0)
    one_ns = 3 * 8192 * 8192 * 4 / (0.85 * PEAK) * 1e9
    assert finding.values["near_ms"] == pytest.approx(20 * one_ns / MS, rel=1e-4)
    assert finding.values["compute_percent"] == pytest.approx(100 * 20 * one_ns / (20 * one_ns + 10 * MS), rel=1e-4)
    assert finding.values["peak_percent"] == pytest.approx(85, rel=1e-4)
    assert "at 85 % of the peak memory bandwidth (2,039 GB/s)" in summary(finding)
    assert [measure.value for measure in finding.evidence[1:2]] == [20 * 3 * 8192 * 8192 * 4]


@pytest.mark.parametrize(
    "op",
    [
        add(0.5),  # something else limits it
        add(0.69),
        add(1.3),  # out of a cache, or expanded
        add(0.85, side=[1024, 1024]),  # fits into the cache
        add(0.85, shapes=[], types=[]),  # not recorded
        add(0.85, types=["?", "?", "Scalar"]),
        add(0.85, name="aten::index"),  # what it reads does not follow from its shapes
        add(0.85, kernels=2),  # which of them did it?
        add(0.85, kernel=GEMM),
    ],
)
def test_it_stays_silent_where_the_limit_is_not_shown(op):
    assert findings("memory-bound-kernels", recorded(*[op] * 20)) == []


def test_it_stays_silent_just_below_the_threshold():
    one_ms = add(0.85)["ns"] / MS
    below = recorded(add(0.85), matmul_ms=round(one_ms * 9.3 * 1000) / 1000)
    assert findings("memory-bound-kernels", below, min_share_of_step=0.1) == []
    above = recorded(add(0.85), matmul_ms=round(one_ms * 8.7 * 1000) / 1000)
    assert len(findings("memory-bound-kernels", above, min_share_of_step=0.1)) == 1


def test_it_stays_silent_on_a_gpu_that_nobody_knows():
    assert findings("memory-bound-kernels", recorded(*[add(0.85)] * 20, device=Device(0, 0, "A new one"))) == []


def test_what_nsight_compute_measured_of_the_memory_stands_above_shapes():
    """Sums that seem to run at 85 % do so at 40 %: half of their numbers were in a cache."""
    sums = recorded(*[add(0.85)] * 20)
    measured = [{"name": ELEMENTWISE, "dram_share": 0.4, "blocks": UNKNOWN}]
    assert findings("memory-bound-kernels", with_ncu(sums, measured)) == []


def test_kernels_that_fetch_in_vain_are_left_to_uncoalesced_access():
    """In another order they would be shorter, though the memory is at its limit now."""
    sums = recorded(*[add(0.85, shapes=[], types=[])] * 20)
    measured = {"name": ELEMENTWISE, "dram_share": 0.9, "dram_bytes": 7e8, "blocks": UNKNOWN}
    assert findings("memory-bound-kernels", with_ncu(sums, [{**measured, "excess_sector_share": 0.2}])) == []
    assert len(findings("memory-bound-kernels", with_ncu(sums, [{**measured, "excess_sector_share": 0.19}]))) == 1


def test_without_shapes_it_fires_where_nsight_compute_measured_the_memory_at_its_limit():
    unknown = recorded(*[add(0.85, shapes=[], types=[])] * 20)
    measured = [{"name": ELEMENTWISE, "dram_share": 0.9, "dram_bytes": 7e8, "blocks": UNKNOWN}]
    (finding,) = findings("memory-bound-kernels", with_ncu(unknown, measured))
    assert finding.values["peak_percent"] == pytest.approx(90)
    assert finding.evidence[1].value == pytest.approx(20 * 7e8)
    rule = load_rules()["memory-bound-kernels"]
    bare = steps({"name": ELEMENTWISE, "ns": MS}, device=A100)
    assert "ops" in missing(rule, prepare(bare))[-1]
    assert missing(rule, prepare(with_ncu(bare, measured))) == ()
    assert len(findings("memory-bound-kernels", with_ncu(bare, measured))) == 1


MILLION = [1000, 1000]


@pytest.mark.parametrize(
    ("op", "shapes", "types", "megabytes"),
    [
        ("aten::add", [MILLION, MILLION, []], ["float", "float", "Scalar"], 12),
        ("aten::add_", [MILLION, MILLION, []], ["c10::BFloat16", "c10::BFloat16", "Scalar"], 6),
        ("aten::add", [MILLION, [1000], []], ["float", "float", "Scalar"], 8.004),
        ("aten::mul", [MILLION, []], ["float", "double"], 8),
        ("aten::gelu", [MILLION, []], ["c10::Half", ""], 4),
        ("aten::clamp_min", [MILLION, [], MILLION], ["float", "Scalar", "float"], 8),  # out= is its result
        ("aten::copy_", [MILLION, MILLION, []], ["c10::Half", "float", "Scalar"], 6),
        ("aten::copy_", [MILLION, [], []], ["c10::Half", "float", "Scalar"], 0),
        ("aten::fill_", [MILLION, []], ["float", "Scalar"], 4),
        ("aten::native_layer_norm", [MILLION, [], [1000], [1000], []], ["float", "", "float", "float", "Scalar"], 8),
        ("aten::add", [[MILLION], []], ["TensorList", "Scalar"], 0),
    ],
)
def test_bytes_are_inputs_and_result_once_each(op, shapes, types, megabytes):
    assert moved_bytes(op, json.dumps(shapes), json.dumps(types)) == megabytes * 1e6


@pytest.mark.parametrize(
    ("shapes", "types"),
    [
        ("", ""),
        ("{", "[]"),
        ("[[1], [2]]", '["float"]'),
        ("null", "null"),
        ("[[4294967296, 4294967296], []]", '["float", "float"]'),
    ],
)
def test_what_cannot_be_read_is_unknown(shapes, types):
    assert moved_bytes("aten::add", shapes, types) == 0


# --- without a timeline ---

#: An update at 92 % of what the memory can move, and a matmul that is no matter of bytes.
UPDATE = {"name": "void adamw_kernel3<float>(float*)", "sm_share": 0.2, "dram_share": 0.92, "memory_share": 0.92,
          "gpu_time_ns": 3 * MS, "peak_dram_bytes_per_second": 900e9}  # fmt: skip
PRODUCT = {"name": GEMM, "sm_share": 0.9, "dram_share": 0.3, "memory_share": 0.5, "gpu_time_ns": MS}


def test_without_a_timeline_measured_kernels_are_told_to_be_at_their_limit():
    """3 of 4 ms at 92 %: at the whole peak 2.76 ms. Of the program nothing is known, and nothing is promised."""
    finding = only_finding("memory-bound-kernels", alone([UPDATE, PRODUCT]))
    assert (finding.saving_ns_per_step, finding.confidence) == (Saving(0, 0, 0), "high")
    assert finding.measured_gain_ns == pytest.approx(3 * MS * 0.08, abs=1)
    said = summary(finding)
    assert said.startswith("Kernels that take 75 % of the measured time (3.000 of 4.000 ms")
    assert (
        "most in `adamw_kernel3`) update parameters at the limit of the memory bandwidth, 92 % of its peak of 900 GB/s"
        in said
    )
    assert said.endswith("At the whole peak they would take 2.760 ms.")


def test_without_a_timeline_only_what_updates_parameters_is_told_of_their_states():
    def titles(profile: dict) -> list[str]:
        (found,) = diagnose(alone([profile]), [load_rules()["memory-bound-kernels"]]).findings
        return [fix.title for fix in found.fixes]

    states = "Keep the optimizer's states in fewer bytes"
    assert states in titles(UPDATE)
    assert states not in titles({**UPDATE, "name": "void copy<float>(float*)"})


@pytest.mark.parametrize(
    "profile",
    [
        {"dram_share": 0.69, "memory_share": 0.69},
        {"dram_share": float("nan")},  # which of the memories is it?
        {"sm_share": 0.95},  # its instructions are the nearer limit
        {"excess_sector_share": 0.3},  # in another order it would be shorter
        {"gpu_time_ns": 0.1 * MS},  # below a tenth of the measured time
    ],
)
def test_without_a_timeline_it_stays_silent_where_the_memory_is_not_the_limit(profile):
    assert findings("memory-bound-kernels", alone([{**UPDATE, **profile}, PRODUCT])) == []


def test_without_a_known_peak_its_bandwidth_is_left_out():
    finding = only_finding("memory-bound-kernels", alone([{**UPDATE, "peak_dram_bytes_per_second": float("nan")}]))
    assert "92 % of its peak: only fewer bytes" in summary(finding)


# --- by the GPU's counters ---


def counted(read: float, written: float):
    """Steps of 20 ms, half of them element-wise kernels of unknown shapes that read and write at these shares."""
    drawn = draw_steps(kernels="e" * 10 + "G" * 10, gpu="NVIDIA A100-SXM4-80GB")
    return sampled(drawn, {"elementwise": {"dram_read_share": read, "dram_write_share": written}})


def test_it_fires_where_the_gpus_counters_measured_the_memory_at_its_limit():
    finding = only_finding("memory-bound-kernels", counted(0.5, 0.3))
    assert finding.values["near_ms"] == pytest.approx(10, rel=1e-3)
    assert finding.values["peak_percent"] == pytest.approx(80, abs=0.5)
    (measure,) = [each for each in finding.evidence if "peak of the memory" in each.label]
    assert measure.value == pytest.approx(0.8, abs=0.005)


def test_it_stays_silent_where_the_counters_measured_less():
    assert findings("memory-bound-kernels", counted(0.4, 0.28)) == []
