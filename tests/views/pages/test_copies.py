"""The page of copies: the numbers that plain loops over the recording find, and the bounds of links and memory."""

from __future__ import annotations

import statistics
from collections import defaultdict
from itertools import pairwise

import pytest
from builders import draw
from folders import FIXTURES
from machine_builders import beside, samples
from msgspec.structs import replace
from recorded import of_recordings, recording
from view_tables import GPU_RECORDINGS, inside_ns, on_device, plain_rows, tables_of, window_of

from perfdoctor.hardware.peaks import peaks_of
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Text, merge
from perfdoctor.views.pages import copies

US = 100_000
WORDS = {"h2d": "host to GPU", "d2h": "GPU to host", "d2d": "within the GPU", "memset": "memset"}
KIB, MIB = 1 << 10, 1 << 20
CLASSES = (
    (4 * KIB, "below 4 KiB"), (64 * KIB, "4 KiB to 64 KiB"), (MIB, "64 KiB to 1 MiB"), (16 * MIB, "1 MiB to 16 MiB"),
    (256 * MIB, "16 MiB to 256 MiB"), (1 << 62, "from 256 MiB"),
)  # fmt: skip


def tables(run):
    return tables_of(copies.view(run, None))


def size_class(size):
    return next(name for most, name in CLASSES if size < most)


def exposed_ns(copy, busy):
    """How long it runs while none of the busy pieces does: instant by instant between all edges."""
    edges = sorted(
        {copy.start_ns, copy.end_ns, *(edge for piece in busy for edge in piece if copy.start_ns < edge < copy.end_ns)}
    )
    return sum(
        after - before for before, after in pairwise(edges) if not any(start <= before < end for start, end in busy)
    )


@of_recordings(path for path in GPU_RECORDINGS if path.parent.name != "cuda-graphs")
def test_each_class_costs_what_plain_loops_find(path):
    run = recording(path).run
    rows, ns, exposed, size = defaultdict(list), defaultdict(float), defaultdict(float), defaultdict(float)
    for place in run.places:
        busy = [(row.start_ns, row.end_ns) for row in on_device(run, place, "kernels", "collectives")]
        for copy in on_device(run, place, "copies"):
            key = size_class(copy.bytes), WORDS[copy.direction], {"none": ""}.get(copy.host_memory, copy.host_memory)
            each = place.units * len(run.places)
            rows[key].append(copy)
            ns[key] += inside_ns(copy, window_of(place)) / each
            near = [piece for piece in busy if piece[1] > copy.start_ns and piece[0] < copy.end_ns]
            exposed[key] += exposed_ns(copy, near) / each
            size[key] += copy.bytes / each
    found = tables(run)["copies"]
    shown = {(row["size"], row["direction"], row["host memory"]): row for row in found}
    assert shown.keys() == rows.keys()
    for key, row in shown.items():
        own = rows[key]
        assert row["total count"] == len(own)
        assert row["bytes a step"] == pytest.approx(size[key])
        assert row["time a step"] == pytest.approx(ns[key])
        assert row["exposed a step"] == pytest.approx(exposed[key])
        assert row["exposed, of the step"] == pytest.approx(exposed[key] / run.step_ns)
        assert row["largest"] == max(copy.bytes for copy in own)
        rates = [copy.bytes / max(copy.end_ns - copy.start_ns, 1) * 1e9 for copy in own]
        assert row["bandwidth"] == pytest.approx(statistics.median(rates), rel=1e-6)


def test_the_bound_is_the_gpus_link_or_its_memory():
    drawn = draw(
        kernels="##",
        copies="  hdxm",
        launched_us_before=50,
        repeat=4,
        gpu="NVIDIA A100-SXM4-80GB",
        gigabytes_per_second=12,
    )
    gpu = peaks_of("NVIDIA A100-SXM4-80GB")
    most = {row["direction"]: row["peak bandwidth"] for row in tables(prepare(drawn))["copies"]}
    assert most == {
        "host to GPU": gpu.host_link_bytes_per_second,
        "GPU to host": gpu.host_link_bytes_per_second,
        "within the GPU": gpu.memory_bytes_per_second / 2,  # read and written
        "memset": gpu.memory_bytes_per_second,
    }
    of_the_peak = {row["direction"]: row["of the peak"] for row in tables(prepare(drawn))["copies"]}
    assert of_the_peak["host to GPU"] == pytest.approx(12e9 / gpu.host_link_bytes_per_second)


def test_a_link_that_was_sampled_narrower_counts():
    drawn = draw(kernels="##", copies="  h", launched_us_before=50, repeat=4, gpu="NVIDIA A100-SXM4-80GB")
    sampled = beside(drawn, device_samples=samples(4, pcie_generation=4.0, pcie_width=[4.0, 8.0, 8.0, 4.0]))
    (row,) = tables(prepare(sampled))["copies"]
    assert row["peak bandwidth"] == pytest.approx(8 * 16e9 * 128 / 130 / 8)


@pytest.mark.parametrize(
    ("gpu", "most"),
    [
        ("NVIDIA A100-SXM4-80GB", 300e9),  # through NVSwitch
        ("Tesla V100-SXM3-32GB", 150e9),
        ("Tesla V100-SXM2-16GB", 75e9),  # one to three of its six links lead to one neighbour
        ("AMD Instinct MI300X", 64e9),  # each of its seven links leads to another GPU
    ],
)
def test_between_gpus_the_bound_is_that_of_the_links_that_join_two(gpu, most):
    drawn = draw(kernels="##", copies="  x", launched_us_before=50, repeat=4, gpu=gpu)
    frame = drawn.copies.with_columns(direction=Text.constant("p2p", len(drawn.copies)))
    (row,) = tables(prepare(replace(drawn, frames={**drawn.frames, "copies": frame})))["copies"]
    assert (row["direction"], row["peak bandwidth"]) == ("GPU to GPU", pytest.approx(most))


def test_an_unknown_gpu_has_no_peak_bandwidth():
    for row in tables(prepare(draw(kernels="##", copies="  hx", launched_us_before=50, repeat=4)))["copies"]:
        assert "peak bandwidth" not in row


def test_a_rank_without_copies_counts_in_the_mean():
    run = prepare(merge([
        draw(kernels="##", copies="  h", launched_us_before=50, repeat=4, rank=0),
        draw(kernels="###", launched_us_before=50, repeat=4, rank=1),
    ]))  # fmt: skip
    (row,) = tables(run)["copies"]
    assert (row["copies a step"], row["time a step"], row["total count"]) == (0.5, US / 2, run.places[0].units)


def test_a_copy_counts_for_the_outermost_op_that_launched_it():
    run = recording(FIXTURES / "sync-drains-queue" / "torch").run
    ops, calls = plain_rows(run.timeline.ops), plain_rows(run.timeline.calls)
    launch = {call.correlation: call for call in reversed(calls) if call.correlation >= 0}
    expected = defaultdict(int)
    for place in run.places:
        for copy in on_device(run, place, "copies"):
            call = launch.get(copy.correlation)
            around = [
                op for op in ops if call and op.thread == call.thread and op.start_ns <= call.start_ns < op.end_ns
            ]
            outer = max(around, key=lambda op: op.end_ns - op.start_ns).name if around else "not recorded"
            expected[outer, WORDS[copy.direction]] += 1
    shown = defaultdict(int)
    for row in tables(run)["copies-by-op"]:
        shown[row["launched by"], row["direction"]] += row["total count"]
    assert shown == expected


def test_nothing_is_shown_without_copies():
    assert tables(prepare(draw(kernels="####"))) == {}
    assert "copies-by-op" not in tables(prepare(draw(kernels="####", copies="    h")))
