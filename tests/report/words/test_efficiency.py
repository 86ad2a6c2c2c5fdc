"""Does the line on the use of the peak say what is known, and what to do about the rest?"""

from __future__ import annotations

import json
from io import StringIO

import pytest
from msgspec.structs import replace
from report.samples import INPUT_BOUND
from rich.console import Console

from perfdoctor.records.work_done import Ceiling, Efficiency, Roofline, RooflineRow
from perfdoctor.report import json_report, markdown, terminal
from perfdoctor.report.words import wording
from perfdoctor.report.words.efficiency import line
from perfdoctor.vocabulary.basis import RECORDING

ROW = RooflineRow(
    kind="op", name="aten::mm", sizes="8 × 8, 8 × 8", kernel="gemm", data_type="bf16", count=2.0, ns=1e6, flop=5e12,
    moved_bytes=2e9, flop_per_second=5e14, flop_per_byte=2500.0, roof_flop_per_second=9.894e14, share_of_roof=0.505,
    limit="compute",
)  # fmt: skip
KNOWN = Efficiency(
    model_from="shapes", flop_per_step=5e12, model_flop_per_step=4e12, recomputed_flop_per_step=1e12, known_share=1.0,
    mfu=0.41, hfu=0.512, data_type="bf16", gpu="NVIDIA H100 SXM", peak_flop_per_second=989.4e12, peak_source="a paper",
    items="tokens", items_per_step=16384.0, items_per_second=12345.6,
    roofline=Roofline(0, 0, "NVIDIA H100 SXM", 3.35e12, (Ceiling("bf16", 989.4e12, 295.3),), (ROW,)),
)  # fmt: skip
UNKNOWN = replace(KNOWN, mfu=None, hfu=None, peak_flop_per_second=None, items="", items_per_second=None)


def said(efficiency: Efficiency | None, **more) -> str:
    return line(replace(INPUT_BOUND, efficiency=efficiency, **more))


def test_it_says_use_work_and_pace():
    assert said(KNOWN) == (
        "MFU 41 %, HFU 51 % of 989 TFLOP/s (bf16, dense; NVIDIA H100 SXM). 5.00 TFLOP a step, from the shapes of 100 % "
        "of the matmul time; 20 % of it is recomputed forward work. 12,346 tokens a second per GPU."
    )
    assert "TFLOP in the recording" in said(KNOWN, basis=RECORDING)


def test_equal_shares_are_said_once():
    same = replace(KNOWN, hfu=0.41, recomputed_flop_per_step=0.0)
    assert said(same).startswith("MFU 41 % of 989 TFLOP/s")
    assert "recomputed" not in said(same)


def test_what_was_not_counted_makes_it_at_least():
    assert said(replace(KNOWN, known_share=0.7)).startswith("MFU at least 41 %, HFU at least 51 % of")
    from_parameters = replace(KNOWN, known_share=0.0, model_from="parameters", hfu=None, flop_per_step=None)
    assert said(from_parameters).startswith("MFU 41 % of 989 TFLOP/s")


def test_more_than_the_peak_is_called_impossible():
    text = said(replace(KNOWN, mfu=2.78, hfu=None))
    assert text.startswith("MFU 278 % of 989 TFLOP/s (bf16, dense; NVIDIA H100 SXM): impossible, so the GPU")
    assert "impossible" not in said(replace(KNOWN, mfu=0.999, hfu=1.0))


@pytest.mark.parametrize(
    ("lacks", "more", "words"),
    [
        (("shapes",), {"flop_per_step": None}, "record shapes with `perfdoctor run`"),
        (("steps",), {"flop_per_step": None}, "--tokens-per-step needs steps, and none were found"),
        (
            ("shapes",),
            {"known_share": 0.1},
            "the FLOP of only 10 % of the matmul time follow from the recorded shapes; give --parameters",
        ),
        (("shapes", "peaks"), {"flop_per_step": None}, "--parameters and --tokens-per-step"),
        (
            ("peaks",),
            {},
            "the peaks of 'NVIDIA H100 SXM' are not known; give --gpu NAME or --peak bf16=…T",
        ),
        (("peaks",), {"gpu": ""}, "the recording does not name the GPU"),
        (("type_peak",), {"data_type": "fp8"}, "no fp8 peak of NVIDIA H100 SXM is known; give it with --peak fp8=…T"),
        (("data_type",), {"data_type": ""}, "the data type of most matmuls was not recorded"),
    ],
)
def test_what_is_missing_says_what_to_do(lacks, more, words):
    text = said(replace(UNKNOWN, lacks=lacks, **more))
    assert text.startswith("MFU is unknown: ")
    assert words in text


def test_without_a_gpu_mfu_is_not_mentioned():
    text = said(replace(UNKNOWN, on_gpu=False, lacks=("peaks",), recomputed_flop_per_step=0.0))
    assert text == "5.00 TFLOP a step."
    assert said(None) == ""


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (0.0003, "<0.1 %"), (0.0041, "0.4 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (0.41, "41 %"), (2.78, "278 %")],
)  # fmt: skip
def test_small_shares_keep_a_decimal(share, text):
    assert wording.fine_share(share) == text


@pytest.mark.parametrize(("flop", "text"), [(140e9, "140 GFLOP"), (5.4976e12, "5.50 TFLOP"), (7e15, "7.00 PFLOP")])
def test_flop_are_counted_in_thousands(flop, text):
    assert wording.flop(flop) == text
    assert wording.flop_rate(flop) == f"{text}/s"


def test_a_hostile_name_is_only_text():
    poisoned = replace(UNKNOWN, lacks=("peaks",), gpu="[red]</b>\x1b[31m<script>`$(x)` @all " + "x" * 500)
    diagnosis = replace(INPUT_BOUND, efficiency=poisoned)
    out = StringIO()
    terminal.render(diagnosis, Console(file=out, width=100))
    assert "\x1b" not in out.getvalue()
    assert "[red]" in out.getvalue()
    assert "<script>" not in markdown.render(diagnosis)
    assert "x" * 60 not in line(diagnosis)


def test_terminal_and_markdown_show_the_line():
    diagnosis = replace(INPUT_BOUND, efficiency=KNOWN)
    out = StringIO()
    terminal.render(diagnosis, Console(file=out, width=100))
    assert "MFU 41 %, HFU 51 % of 989 TFLOP/s" in " ".join(out.getvalue().split())
    assert "MFU 41 %, HFU 51 % of 989 TFLOP/s" in markdown.render(diagnosis)


def test_json_has_numbers_and_rows():
    document = json.loads(json_report.render(replace(INPUT_BOUND, efficiency=KNOWN)))
    assert document["efficiency"]["mfu"] == 0.41
    assert "roofline" not in document["efficiency"]
    assert document["roofline"]["ceilings"] == [
        {"data_type": "bf16", "flop_per_second": 989.4e12, "ridge_flop_per_byte": 295.3}
    ]
    assert document["roofline"]["rows"][0]["share_of_roof"] == 0.505
    empty = json.loads(json_report.render(replace(INPUT_BOUND, efficiency=None)))
    assert (empty["efficiency"], empty["roofline"]) == (None, None)
    on_cpu = json.loads(json_report.render(replace(INPUT_BOUND, efficiency=replace(KNOWN, roofline=None))))
    assert on_cpu["roofline"] is None
