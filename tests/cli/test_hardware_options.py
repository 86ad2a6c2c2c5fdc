"""The user's values: read before anything else, and refused with valid ones."""

from __future__ import annotations

import json

import pytest
from builders import draw
from tables import of_each
from typer.testing import CliRunner

from perfdoctor.cli.hardware_options import number, user_values
from perfdoctor.cli.main import app
from perfdoctor.errors import UsageError
from perfdoctor.model.timeline import UserValues


@of_each(
    ("text", "value"),
    [
        ("16384", 16384), ("989e12", 989e12), ("989T", 989e12), ("3.35 T", 3.35e12), ("70B", 70e9), ("7.5G", 7.5e9),
        ("16k", 16e3), ("2P", 2e15), ("1e+3", 1e3), ("5M", 5e6), ("3.", 3),
        ("", None), ("T", None), ("-5", None), ("1e999", None), ("nan", None), ("inf", None), ("0x10", None),
        ("3.35TB/s", None), ("1_000", None), ("1,5", None),
    ],
)  # fmt: skip
def test_numbers_have_decimal_suffixes(text, value):
    assert number(text) == (None if value is None else pytest.approx(value))


def test_no_options_are_no_values():
    assert user_values(None, [], None, None) is None


def test_all_of_it_together():
    values = user_values("h100 sxm", ["bf16=900T", "memory=3T"], "16k", "70B")
    assert values == UserValues("NVIDIA H100 SXM", {"bf16": 900e12, "memory": 3e12}, 16e3, 70e9)
    assert user_values("NVIDIA H100 80GB HBM3", [], None, None).gpu == "NVIDIA H100 SXM"
    assert user_values(None, [], "4096", None) == UserValues(tokens_per_step=4096)


@pytest.mark.parametrize(
    ("given", "what", "do"),
    [
        ({"gpu": "H100"}, "--gpu 'H100' names no single GPU", "NVIDIA H100 NVL, NVIDIA H100 PCIe, NVIDIA H100 SXM"),
        ({"gpu": ""}, "--gpu '' names no single GPU", "and"),
        ({"peaks": ["fp17=3T"]}, "there is no peak 'fp17'", "fp64, fp32, tf32, fp16, bf16, fp8, int8, fp4, memory"),
        ({"peaks": ["bf16"]}, "'' is no rate in FLOP/s", "--peak bf16="),
        ({"peaks": ["bf16=989"]}, "'989' is no rate in FLOP/s", "989T"),
        ({"peaks": ["memory=fast"]}, "'fast' is no rate in bytes/s", "--peak memory="),
        ({"tokens_per_step": "0"}, "--tokens-per-step 0", "16384"),
        ({"tokens_per_step": "many"}, "--tokens-per-step many", "16384"),
        ({"parameters": "7B"}, "--parameters needs --tokens-per-step", "Give both"),
        ({"parameters": "-7B", "tokens_per_step": "5"}, "--parameters -7B", "7B"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(given, what, do):
    options = {"gpu": None, "peaks": [], "tokens_per_step": None, "parameters": None, **given}
    with pytest.raises(UsageError) as raised:
        user_values(**options)
    assert what in raised.value.what
    assert do in raised.value.do


def test_a_wrong_peak_exits_with_2_before_the_file_is_opened():
    result = CliRunner().invoke(app, ["analyze", "there-is-no-such-file", "--peak", "x=1T"])
    assert result.exit_code == 2
    assert "there is no peak 'x'" in result.output


def test_the_users_values_reach_the_diagnosis(monkeypatch, tmp_path):
    """A step of 1 ms without any shape: 6 · 1e6 · 1000 FLOP, of the 1e10 that 10 TFLOP/s give in it."""
    run = draw(kernels="GGGGGGGGG ", host=["l"], repeat=6)
    monkeypatch.setattr("perfdoctor.scale.read.recordings", lambda paths, progress, process: [])
    monkeypatch.setattr("perfdoctor.scale.read.read", lambda paths, progress, process: run)
    options = ["--peak", "bf16=10T", "--tokens-per-step", "1k", "--parameters", "1M", "--no-html", "--json", "-"]
    result = CliRunner().invoke(app, ["analyze", str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    efficiency = json.loads(result.stdout)["efficiency"]
    assert efficiency["mfu"] == pytest.approx(6e9 / (10e12 * 1e-3))
    assert (efficiency["items"], efficiency["items_per_second"]) == ("tokens", pytest.approx(1e6))
    assert efficiency["peak_source"] == "--peak bf16"


def test_run_refuses_a_wrong_peak_before_it_starts_the_program(tmp_path):
    started = tmp_path / "started"
    result = CliRunner().invoke(app, ["run", "-o", str(tmp_path / "run"), "--gpu", "H100", "--", "touch", str(started)])
    assert result.exit_code == 2
    assert "NVIDIA H100 SXM" in result.output
    assert not started.exists()
