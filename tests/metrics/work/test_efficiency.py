"""MFU, HFU, what a step trains on, and the roofline: hand-made runs, and the worked examples of the field."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders import BASE_NS, ELEMENTWISE, GEMM, SGEMM, TF32_GEMM, draw_steps, timeline
from counters_builder import sampled
from msgspec.structs import replace

from perfdoctor.hardware.peaks import peaks_of
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.batch_items import targets
from perfdoctor.metrics.kernels import memory_bandwidth
from perfdoctor.metrics.work.efficiency import efficiency, model_flop, utilization
from perfdoctor.metrics.work.roofline import least_ns, roof
from perfdoctor.model.timeline import Device, Frame, Text, Timeline, UserValues
from perfdoctor.records.work_done import Efficiency, RooflineRow
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
H100 = Device(0, 0, "NVIDIA H100 80GB HBM3", sm_count=132)
BF16, FLOAT = "c10::BFloat16", "float"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Params)"


CONVOLUTION = [[32, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []]
SETTINGS = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
CONVOLUTION_FLOP = 2 * 32 * 64 * 64 * 9 * 56 * 56


def op(
    name: str, ms: float, shapes: list, *, kernel: str = GEMM, types: str = BF16, values: list | None = None, **more
):
    given = json.dumps(values) if values else ""
    kinds = json.dumps([types] * len(shapes)) if types else ""
    return {"name": name, "ns": round(ms * MS), "input_shapes": json.dumps(shapes), "input_types": kinds,
            "input_values": given, "kernel": kernel, **more}  # fmt: skip


def mm(ms: float, side: int = 4096, **more):
    """2 · 4096³ = 137.4 GFLOP."""
    return op("aten::mm", ms, [[side, side], [side, side]], **more)


MM_FLOP = 2 * 4096**3


def recorded(*step: dict, steps: int = 4, device: Device | None = H100, idle_ms: float = 0, **given) -> Timeline:
    """Each step the same ops one behind the other, then nothing; each op launches one kernel, or as many as it says."""
    kernels, calls, ops, ranges, number = [], [], [], [], 0
    length = sum(each["ns"] for each in step) + round(idle_ms * MS)
    for count in range(steps):
        at = BASE_NS + count * length
        ranges.append({"name": f"ProfilerStep#{count}", "start_ns": at - 500, "end_ns": at + length - 501})
        for place, each in enumerate(step):
            host = at - 400 + 10 * place
            row = {key: each[key] for key in ("name", "input_shapes", "input_types", "input_values")}
            ops.append({**row, "start_ns": host, "end_ns": host + 8})
            if node := each.get("inside"):
                ops.append({"name": node, "start_ns": host - 1, "end_ns": host + 9})
            for part in range(each.get("kernels", 1)):
                number += 1
                share = each["ns"] // each.get("kernels", 1)
                common = {"correlation": number, "process": 100}
                kernels.append({**common, "name": each["kernel"], "start_ns": at, "end_ns": at + share})
                calls.append(
                    {**common, "name": "cudaLaunchKernel", "start_ns": host + 1 + part, "end_ns": host + 2 + part}
                )
                at += share
    built = timeline(
        kernels=kernels, calls=calls, ops=sorted(ops, key=lambda row: row["start_ns"]), ranges=ranges,
        devices=[device] if device else [],
    )  # fmt: skip
    return replace(built, user_values=UserValues(**given))


def found(*step: dict, **more) -> Efficiency:
    result = efficiency(prepare(recorded(*step, **more)))
    assert result is not None
    return result


# --- the worked examples of the field --------------------------------------------------------------------------------


def test_a_model_of_70_billion_parameters_reaches_82_percent_at_8_5_seconds():
    flop, peak = model_flop(70e9, 16_384), 989e12
    assert flop == 6 * 70e9 * 16_384
    assert round(utilization(flop, peak, 8.5e9), 2) == 0.82
    assert round(utilization(flop, peak, 2.5e9), 2) == 2.78  # impossible


def test_parameters_and_tokens_tell_mfu_without_any_shape():
    """A step of 8.5 s on an H100, of which nothing but a kernel was recorded."""
    step = op("aten::add", 8500, [], types="", kernel=GEMM)
    result = found(step, parameters=70e9, tokens_per_step=16_384, peaks={"bf16": 989e12})
    assert round(result.mfu, 2) == 0.82
    assert result.hfu is None
    assert (result.model_from, result.data_type, result.peak_source) == ("parameters", "bf16", "--peak bf16")
    assert result.items == "tokens"
    assert result.items_per_second == pytest.approx(16_384 / 8.5)
    assert result.lacks == ()


def test_of_inference_the_size_of_the_model_counts_forward_alone():
    """Two of the six FLOP for each parameter and token: prefill of Llama-2-13B in 0.5 s."""
    step = (op("aten::linear", 499, [], types=""), op("aten::silu", 1, [], types="", kernel=ELEMENTWISE))
    given = {"parameters": 13e9, "tokens_per_step": 8192, "peaks": {"bf16": 989e12}}
    assert found(*step, **given).mfu == pytest.approx(2 * 13e9 * 8192 / (989e12 * 0.5), rel=1e-3)
    trained = (*step, op("aten::nll_loss_forward", 1, [], types="", kernel=ELEMENTWISE))
    assert found(*trained, **given).mfu == pytest.approx(6 * 13e9 * 8192 / (989e12 * 0.501), rel=1e-3)


def test_tokens_of_a_step_are_not_held_against_a_window_without_steps():
    run = recorded(op("aten::add", 10, [], types="", kernel=GEMM), parameters=1e9, tokens_per_step=1000)
    frames = {signal: frame for signal, frame in run.frames.items() if signal != "ranges"}
    result = efficiency(prepare(replace(run, frames={**frames, "ranges": Frame.empty("ranges")})))
    assert (result.mfu, result.model_flop_per_step, result.lacks) == (None, None, ("steps",))
    assert result.items_per_second is None


# --- counted from shapes ---------------------------------------------------------------------------------------------


def test_mfu_is_flop_over_peak_and_step():
    """Two products of 137.4 GFLOP in a step of 10 ms: 27.5 of 989.4 TFLOP/s."""
    result = found(mm(2), mm(3), idle_ms=5)
    assert result.flop_per_step == result.model_flop_per_step == 2 * MM_FLOP
    assert result.mfu == result.hfu == pytest.approx(2 * MM_FLOP / (989.4e12 * 10e-3))
    assert (result.known_share, result.model_from, result.data_type) == (1.0, "shapes", "bf16")
    assert (result.gpu, result.peak_flop_per_second) == ("NVIDIA H100 SXM", pytest.approx(989.4e12))
    assert "white paper" in result.peak_source
    assert result.lacks == ()


def test_the_share_of_matmul_time_with_known_flop_is_reported():
    """3 of 4 ms: the shapes of the last one were not recorded. What multiplies nothing does not count."""
    result = found(mm(3), op("aten::mm", 1, [], types=""), op("aten::add", 6, [[8, 8]], kernel=ELEMENTWISE))
    assert result.known_share == pytest.approx(0.75)
    assert result.flop_per_step == MM_FLOP
    row = next(row for row in result.roofline.rows if row.kind == "family")
    assert (row.ns, row.unknown_ns) == (3 * MS, 1 * MS)


def test_of_less_than_half_of_the_work_no_share_of_the_peak_is_reported():
    """A half is enough, as a lower limit; below it FLOP are reported, and MFU is not."""
    untold = op("aten::mm", 2, [], types="")
    half = found(mm(2), untold)
    assert (half.known_share, half.mfu) == (0.5, pytest.approx(MM_FLOP / (989.4e12 * 4e-3)))
    less = found(mm(1.9), untold)
    assert (less.mfu, less.hfu, less.flop_per_step, less.lacks) == (None, None, MM_FLOP, ("shapes",))
    assert found(mm(1.9), untold, parameters=1e9, tokens_per_step=100).mfu > 0


def test_the_sum_of_pieces_is_not_the_kernel_that_tells_the_type():
    """cuBLAS adds up what several blocks computed, in a kernel named after none of the types of the product."""
    run = recorded(mm(2, kernels=2, types=FLOAT, kernel=TF32_GEMM))
    names = [("splitKreduce_kernel<32, float>" if row % 2 else name) for row, name in enumerate(run.kernels.name)]
    kernels = run.kernels.with_columns(name=Text.of(names), end_ns=run.kernels.end_ns + np.arange(len(names)) % 2)
    result = efficiency(prepare(replace(run, frames={**run.frames, "kernels": kernels})))
    assert result.data_type == "tf32"
    assert row_of(result, "op").kernel == TF32_GEMM


def test_forward_work_done_again_counts_in_hfu_only():
    """One product inside a node of the backward pass, beside an op that no gradient formula uses."""
    node = "autograd::engine::evaluate_function: CheckpointFunctionBackward"
    again = op("aten::convolution", 2, CONVOLUTION, values=SETTINGS, inside=node)
    result = found(mm(2), again, op("aten::relu", 0.1, [[4, 4]], kernel=ELEMENTWISE))
    assert result.recomputed_flop_per_step == 0  # nothing in the node says that it is forward work
    whole = recorded(mm(2), again)
    rows = whole.ops.take(whole.ops.name.equals("aten::convolution")).start_ns.tolist()
    assert len(rows) == 4
    forward = timeline(ops=[{"name": "aten::conv2d", "start_ns": at - 1, "end_ns": at + 9} for at in rows])
    ops = Frame.join([whole.ops, forward.ops])
    result = efficiency(prepare(replace(whole, frames={**whole.frames, "ops": ops})))
    assert result.recomputed_flop_per_step == CONVOLUTION_FLOP
    assert result.flop_per_step == MM_FLOP + CONVOLUTION_FLOP
    assert result.model_flop_per_step == MM_FLOP
    assert result.mfu / result.hfu == pytest.approx(MM_FLOP / (MM_FLOP + CONVOLUTION_FLOP))


def test_fp32_is_held_against_what_its_kernels_ran_on():
    assert found(mm(2, types=FLOAT, kernel=TF32_GEMM)).data_type == "tf32"
    plain = found(mm(2, types=FLOAT, kernel=SGEMM))
    assert (plain.data_type, plain.peak_flop_per_second) == ("fp32", pytest.approx(66.9e12))
    unclear = found(mm(2, types=FLOAT, kernel="a gemm of its own"))
    assert (unclear.mfu, unclear.data_type, unclear.lacks) == (None, "", ("data_type",))
    assert unclear.flop_per_step == MM_FLOP


def test_where_types_were_not_recorded_kernels_tell_them():
    assert found(mm(2, types="")).data_type == "bf16"


def test_the_type_of_most_flop_is_the_one_of_the_peak():
    result = found(mm(1), mm(5, side=512, types=FLOAT, kernel=SGEMM))
    assert result.data_type == "bf16"


def test_what_is_missing_is_named():
    assert found(mm(2), device=None).lacks == ("peaks",)
    assert found(mm(2), device=Device(0, 0, "A new one")).lacks == ("peaks",)
    volta = found(mm(2), device=Device(0, 0, "Tesla V100-SXM2-16GB"))
    assert (volta.lacks, volta.mfu) == (("type_peak",), None)  # it has no units for bfloat16
    bare = found(op("aten::mm", 2, [], types=""))
    assert (bare.lacks, bare.mfu, bare.flop_per_step, bare.known_share) == (("shapes",), None, None, 0.0)


def test_the_user_tells_the_gpu_and_its_peaks():
    given = found(mm(2), device=None, gpu="NVIDIA H200 NVL")
    assert given.mfu == pytest.approx(MM_FLOP / (835.5e12 * 2e-3))
    assert found(mm(2), gpu="NVIDIA H200 NVL").mfu == given.mfu  # also where the recording says otherwise
    own = found(mm(2), device=None, peaks={"bf16": 1e15})
    assert own.mfu == pytest.approx(MM_FLOP / (1e15 * 2e-3))
    assert own.peak_source == "--peak bf16"


def test_kernels_launched_before_the_recording_are_unknown_and_not_free():
    """The call of one kernel was not recorded: its FLOP are not known, its time is."""
    run = recorded(mm(1), mm(1))
    calls = run.calls.take(run.calls["correlation"] != 5)
    result = efficiency(prepare(replace(run, frames={**run.frames, "calls": calls})))
    assert 0 < result.known_share < 1


def test_an_op_counts_in_the_window_in_which_it_began():
    """One product begins before the first step, on a stream of its own, and ends inside: its FLOP are not the step's."""
    run = recorded(mm(2), mm(2))
    at = int(run.kernels.start_ns[0])
    common = {"correlation": 10**6, "process": 100}
    early = timeline(
        kernels=[{**common, "name": GEMM, "start_ns": at - MS, "end_ns": at + MS, "stream": 9}],
        calls=[{**common, "name": "cudaLaunchKernel", "start_ns": at - 2 * MS + 2, "end_ns": at - 2 * MS + 4}],
        ops=[{"name": "aten::mm", "input_shapes": "[[4096, 4096], [4096, 4096]]", "input_types": f'["{BF16}"]',
              "start_ns": at - 2 * MS, "end_ns": at - 2 * MS + 9}],
    )  # fmt: skip
    frames = {signal: Frame.join([frame, early[signal]]) for signal, frame in run.frames.items()}
    (place,) = prepare(replace(run, frames=frames)).places
    assert len(place.kernels) == 2 * place.units + 1
    assert efficiency(prepare(replace(run, frames=frames))).flop_per_step == 2 * MM_FLOP


def test_without_a_gpu_flop_are_counted_and_no_peak_is_made_up():
    run = recorded(mm(2))
    frames = {signal: frame for signal, frame in run.frames.items() if signal in ("ops", "ranges")}
    result = efficiency(prepare(Timeline.build(frames, frames)))
    assert result is not None
    assert (result.flop_per_step, result.mfu, result.roofline, result.on_gpu) == (MM_FLOP, None, None, False)
    assert result.known_share == 1
    assert efficiency(prepare(Timeline.build({}, ()))) is None


# --- what a step trains on -------------------------------------------------------------------------------------------


def loss(items: int):
    return op("aten::nll_loss_forward", 0.1, [[items, 1000], [items], [], [], []], kernel=ELEMENTWISE)


def test_the_loss_tells_how_many_items_a_step_has():
    result = found(mm(1.9), loss(8192))
    assert (result.items, result.items_per_step) == ("targets", 8192)
    assert result.items_per_second == pytest.approx(8192 / 2e-3)


@pytest.mark.parametrize("losses", [(), (loss(64), loss(64)), (op("aten::nll_loss_forward", 0.1, []),)])
def test_several_losses_a_step_or_none_tell_nothing(losses):
    result = found(mm(1.9), *losses)
    assert (result.items, result.items_per_step, result.items_per_second) == ("", None, None)


@pytest.mark.parametrize(("second", "items"), [(8192, 8192), (4096, None)])
def test_ranks_whose_batches_differ_tell_no_batch(second, items):
    runs = [recorded(mm(1.9), loss(8192)), recorded(mm(1.9), loss(second))]
    frames = {}
    for signal, frame in runs[1].frames.items():
        ranks = np.ones(len(frame), dtype=np.int64)
        frames[signal] = Frame.join([runs[0][signal], frame.with_columns(rank=ranks)])
    run = prepare(replace(runs[0], frames=frames, devices=(H100, replace(H100, rank=1))))
    assert len(run.places) == 2
    result = efficiency(run)
    assert result.items_per_step == items
    assert result.mfu == pytest.approx(MM_FLOP / (989.4e12 * 2e-3))  # a mean, and no sum


@pytest.mark.parametrize(
    ("shapes", "items"),
    [("[[8, 10], [8], [], [], []]", 8), ("[[8, 10], [7]]", 0), ("[[10], []]", 0), ("", 0), ("{}", 0), ("[[8, 10, 5, 5], [8, 5, 5]]", 0)],
)  # fmt: skip
def test_targets_are_recognised_by_two_inputs_that_agree(shapes, items):
    assert targets(shapes) == items


# --- the roofline ----------------------------------------------------------------------------------------------------


def row_of(result: Efficiency, kind: str, **equal) -> RooflineRow:
    (row,) = [
        row
        for row in result.roofline.rows
        if row.kind == kind and all(getattr(row, key) == value for key, value in equal.items())
    ]
    return row


def test_left_of_the_ridge_memory_is_the_roof_and_right_of_it_arithmetic():
    peaks = peaks_of("NVIDIA H100 80GB HBM3")
    ridge = 989.4e12 / 3.35e12
    assert roof(peaks, "bf16", 100) == (pytest.approx(100 * 3.35e12), "memory")
    assert roof(peaks, "bf16", ridge * 0.999)[1] == "memory"
    assert roof(peaks, "bf16", ridge * 1.001) == (pytest.approx(989.4e12), "compute")
    assert roof(peaks, "bf16", None) == (pytest.approx(989.4e12), "compute")
    assert roof(peaks, "fp4", 100) == roof(None, "bf16", 100) == roof(peaks, "", 100) == (None, "")


def test_a_row_holds_work_time_and_share_of_what_the_roofline_allows():
    """Two products of the same sizes in 0.5 ms, and a thin one that only streams its matrix."""
    thin = op("aten::mm", 0.02, [[1, 4096], [4096, 4096]])
    result = found(mm(0.2), mm(0.3), thin)
    row = row_of(result, "op", sizes="4096 × 4096, 4096 × 4096")
    assert (row.count, row.ns, row.flop, row.kernel) == (2, 0.5 * MS, 2 * MM_FLOP, GEMM)
    assert row.moved_bytes == 2 * 3 * 4096**2 * 2
    assert row.flop_per_byte == pytest.approx(4096 / 3)
    assert row.flop_per_second == pytest.approx(2 * MM_FLOP / 0.5e-3)
    assert (row.limit, row.share_of_roof) == ("compute", pytest.approx(2 * MM_FLOP / 0.5e-3 / 989.4e12))
    row = row_of(result, "op", sizes="1 × 4096, 4096 × 4096")
    moved = 2 * (4096**2 + 2 * 4096)
    assert (row.limit, row.moved_bytes) == ("memory", moved)
    assert row.share_of_roof == pytest.approx(moved / 0.02e-3 / 3.35e12)
    family = row_of(result, "family", name="gemm")
    assert (family.ns, family.flop, family.count) == (0.52 * MS, 2 * MM_FLOP + 2 * 4096**2, 3)
    assert [ceiling.data_type for ceiling in result.roofline.ceilings][:2] == ["fp64", "fp32"]
    assert row_of(result, "op", sizes="1 × 4096, 4096 × 4096").data_type == "bf16"


def test_a_causal_mask_halves_the_work_under_the_roof():
    """Not in MFU, which counts all pairs by convention."""
    shapes = [[4, 16, 2048, 64]] * 3 + [[], [], []]
    name = "aten::_scaled_dot_product_flash_attention"
    result = found(op(name, 1, shapes, kernel=FLASH, values=["", "", "", "0.", "True", "False"]))
    full = 4 * 4 * 16 * 2048 * 2048 * 64
    assert result.flop_per_step == full
    assert row_of(result, "op").flop == pytest.approx(full * (2048 * 2049 / 2) / 2048**2)
    untold = found(op(name, 1, shapes, kernel=FLASH))
    assert untold.flop_per_step == full
    row = row_of(untold, "op")
    assert (row.flop, row.share_of_roof, row.limit) == (None, None, "")


def test_kernels_that_only_pass_over_numbers_are_held_against_memory():
    added = op("aten::add", 0.5, [[8192, 8192], [8192, 8192], []], kernel=ELEMENTWISE)
    row = row_of(found(mm(1), added), "memory")
    moved = 3 * 8192 * 8192 * 2
    assert (row.name, row.moved_bytes, row.flop, row.limit) == (ELEMENTWISE, moved, None, "memory")
    assert row.share_of_roof == pytest.approx(moved / 0.5e-3 / 3.35e12)


def test_bytes_that_come_faster_than_from_memory_are_not_held_against_it():
    """0.4 GB in 60 µs would be 6.7 TB/s, of 3.35."""
    shape = [4096, 4096, 2]
    row = row_of(found(mm(1), op("aten::add", 0.06, [shape, shape, []], kernel=ELEMENTWISE, types="float")), "memory")
    assert row.moved_bytes == 3 * 4096 * 4096 * 2 * 4
    assert (row.share_of_roof, row.limit) == (None, "")
    assert load_rules()["memory-bound-kernels"].at["faster_than_memory"] == memory_bandwidth.MOST_OF_PEAK


def test_without_peaks_the_work_is_there_and_the_roof_is_not():
    result = found(mm(2), device=None)
    row = row_of(result, "op")
    assert (row.flop, row.roof_flop_per_second, row.share_of_roof) == (MM_FLOP, None, None)
    assert (result.roofline.ceilings, result.roofline.memory_bytes_per_second) == ((), 0)


def test_what_a_kernel_takes_at_the_least_is_the_roof_turned_round():
    """Of an op in two kernels each takes its half; what is not known takes nothing."""
    thin = op("aten::mm", 0.02, [[1, 4096], [4096, 4096]])
    unknown = op("aten::mm", 1, [], types="")
    (place,) = prepare(recorded(mm(0.2, kernels=2), thin, unknown)).places
    by_arithmetic, by_memory = MM_FLOP / 989.4e12 * 1e9, 2 * (4096**2 + 2 * 4096) / 3.35e12 * 1e9
    step = [by_arithmetic / 2, by_arithmetic / 2, by_memory, 0]
    assert least_ns(place) == pytest.approx(step * (len(place.kernels) // 4), rel=1e-6)
    (place,) = prepare(recorded(mm(0.2), device=None)).places
    assert not least_ns(place).any()


def test_kernels_of_one_op_count_together():
    """A product in two kernels, of which the second adds up pieces."""
    row = row_of(found(mm(2, kernels=2)), "op")
    assert (row.ns, row.flop, row.count) == (2 * MS, MM_FLOP, 1)


def test_what_the_memory_moves_is_measured_by_the_gpus_counters_where_no_shape_is_known():
    drawn = draw_steps(kernels="GGGGGeeeee", gpu="NVIDIA A100-SXM4-80GB")
    rates = {"elementwise": {"dram_read_share": 0.5, "dram_write_share": 0.3}}
    found = efficiency(prepare(sampled(drawn, rates)))
    (row,) = [each for each in found.roofline.rows if each.kind == "memory"]
    assert row.counted_bytes_per_second == pytest.approx(0.8 * 2.039e12, rel=0.01)
    assert (row.share_of_roof, row.moved_bytes) == (pytest.approx(0.8, abs=0.01), None)
