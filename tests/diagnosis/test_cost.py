"""Money is what a person with a pocket calculator makes of the recording and the price; nothing is shown that is not known."""

from __future__ import annotations

import json
import math
import shutil
from types import SimpleNamespace

import pytest
from folders import FIXTURES
from msgspec.structs import replace
from report.samples import ASKED, HEALTHY, INPUT_BOUND, LARGER, NO_STEPS, NOTHING
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.diagnosis.cost import cost, listed
from perfdoctor.hardware.peaks import named
from perfdoctor.hardware.prices import Price, listed_prices
from perfdoctor.records.work_done import Efficiency
from perfdoctor.report.words import cost as words
from perfdoctor.report.words import wording
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder

TRACE = FIXTURES / "input-bound-single-process" / "torch"
TWO_FIFTY = Price(2.5, "EUR")
A_STEP_S = INPUT_BOUND.base_ns / 1e9
TOKENS = Efficiency("", None, None, None, 0.0, None, None, "", "", None, "", "tokens", 16_384.0, 23_000.0)


def ran(*arguments, code=0):
    done = CliRunner().invoke(app, ["analyze", *map(str, arguments)], prog_name="perfdoctor")
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_a_step_costs_its_time_on_all_gpus():
    found = cost(INPUT_BOUND, TWO_FIFTY)
    assert found.per_step == pytest.approx(2.5 * A_STEP_S / 3600)
    assert found.per_month == 2.5 * 730 == 1825
    assert cost(INPUT_BOUND, TWO_FIFTY, run_seconds=90).per_run == pytest.approx(2.5 * 90 / 3600)


def test_a_job_pays_for_all_of_its_gpus_also_for_those_that_were_not_recorded():
    eight = cost(replace(INPUT_BOUND, world_size=8), TWO_FIFTY)
    assert (eight.gpus, eight.recorded_gpus) == (8, 1)
    assert eight.per_step == pytest.approx(8 * cost(INPUT_BOUND, TWO_FIFTY).per_step)
    assert "these 8 GPUs (1 recorded) cost 14,600 EUR a month" in words.line(replace(INPUT_BOUND, cost=eight))


def test_gpus_of_ranks_that_were_only_summarised_are_paid_for():
    """Of a hundred ranks a few are read in full: `gpus` has all, as `time` has."""
    hundred = replace(INPUT_BOUND, gpus=tuple(replace(INPUT_BOUND.gpus[0], rank=rank) for rank in range(100)))
    found = cost(hundred, TWO_FIFTY)
    assert (found.gpus, found.recorded_gpus) == (100, 100)
    threads = tuple(replace(split, device=None) for split in hundred.time)
    assert cost(replace(hundred, gpus=(), time=threads), TWO_FIFTY) is None


def test_a_million_tokens_cost_the_same_on_one_gpu_and_on_eight():
    """`items_per_step` is of one GPU: eight of them train on eight times the tokens."""
    by_hand = 2.5 * (A_STEP_S / 3600) / 16_384 * 1e6
    for ranks in (1, 8):
        diagnosis = replace(INPUT_BOUND, efficiency=TOKENS, world_size=ranks)
        assert cost(diagnosis, TWO_FIFTY).per_million_items == pytest.approx(by_hand)


def test_what_is_saved_in_a_month_is_the_share_by_which_the_step_gets_shorter():
    found, predicted = cost(INPUT_BOUND, TWO_FIFTY), INPUT_BOUND.prediction
    low, likely, high = predicted.step_ns
    shorter = [1 - ns / predicted.now_ns for ns in (high, likely, low)]
    assert found.saved_per_month == pytest.approx([1825 * share for share in shorter], rel=0.01)
    first, saving = found.findings[0], INPUT_BOUND.findings[0].saving_ns_per_step
    assert first.rule == INPUT_BOUND.findings[0].rule
    assert first.per_month == pytest.approx(
        [1825 * ns / INPUT_BOUND.base_ns for ns in (saving.low, saving.likely, saving.high)]
    )


def test_with_more_samples_in_a_step_the_same_work_is_counted_and_with_more_ranks_nothing_is_said():
    larger = replace(LARGER, prediction=replace(LARGER.prediction, scaling=None))
    month = 1825 * cost(larger, TWO_FIFTY).gpus
    assert cost(larger, TWO_FIFTY).saved_per_month == pytest.approx(
        [month * (1 - 1 / times) for times in larger.prediction.speedup]
    )
    assert LARGER.prediction.scaling is not None
    assert cost(LARGER, TWO_FIFTY).saved_per_month is None


def test_without_steps_nothing_costs_a_step_and_without_a_gpu_nothing_costs_anything():
    once = replace(INPUT_BOUND, basis=NO_STEPS.basis)
    found = cost(once, TWO_FIFTY)
    assert (found.per_step, found.per_million_items) == (None, None)
    assert words.line(replace(once, cost=found)).startswith("At 2.50 EUR per GPU hour, this GPU costs ")
    assert cost(NO_STEPS, TWO_FIFTY) is None
    assert cost(NOTHING, TWO_FIFTY) is None
    assert cost(HEALTHY, TWO_FIFTY).saved_per_month is None


def test_the_line_says_price_steps_month_and_range():
    line = words.line(replace(INPUT_BOUND, cost=cost(INPUT_BOUND, TWO_FIFTY)))
    a_thousand = wording.money(2.5 * A_STEP_S / 3600 * 1000, "EUR")
    assert line.startswith(f"Cost: {a_thousand} per 1,000 steps. At 2.50 EUR per GPU hour, this GPU costs 1,820 EUR")
    assert "a month of 730 hours, of which the fixes would save " in line
    assert "what was asked for would save" in words.line(replace(ASKED, cost=cost(ASKED, TWO_FIFTY)))


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0, "0.00"),
        (0.000123456, "0.000123"),
        (0.0999, "0.0999"),
        (2.5, "2.50"),
        (99.94, "99.94"),
        (99.96, "100"),
        (999.4, "999"),
        (1824.9, "1,820"),
        (23_349, "23,300"),
        (math.inf, "–"),
    ],
)
def test_money_has_three_digits(amount, said):
    assert wording.money(amount) == said
    assert wording.money(amount, "USD") == (f"{said} USD" if math.isfinite(amount) else said)


def test_a_run_folder_pays_for_as_long_as_the_program_ran_under_the_first_tool(tmp_path):
    record = [PassRecord("ncu"), PassRecord("torch", seconds=90.0, state="done"), PassRecord("nsys", seconds=300.0)]
    folder = RunFolder.create(tmp_path / "run", Manifest(passes=record, started_unix_ns=1))
    shutil.copytree(TRACE, folder.path / "torch")
    target = tmp_path / "a.json"
    done = ran(folder.path, "--no-html", "--json", target, "--gpu-hour-price", "4")
    found = json.loads(target.read_text("utf-8"))["cost"]
    assert (found["per_run"], found["run_seconds"]) == (pytest.approx(0.1), 90)
    assert "0.100 for the recorded run of 90.0 s." in " ".join(done.stdout.split())


def test_gpus_of_several_kinds_have_no_common_list_price(monkeypatch):
    names = {0: "NVIDIA H100 SXM", 1: "NVIDIA H100 SXM", 2: "NVIDIA T4", 3: "NVIDIA TITAN V", 4: None}
    monkeypatch.setattr(
        "perfdoctor.diagnosis.cost.peaks", lambda place: SimpleNamespace(name=names[place]) if names[place] else None
    )

    class Rank(int):
        device = 0

    def price(*ranks):
        return listed(SimpleNamespace(places=[Rank(rank) for rank in ranks]))

    assert price(0, 1) == listed_prices()["NVIDIA H100 SXM"] == price(0)
    assert price(0, 2) is price(3) is price(4) is price(0, 4) is price() is None


# --- list prices


def test_every_list_price_is_of_a_known_gpu_and_says_whose_it_is_and_from_which_day():
    for gpu, price in listed_prices().items():
        found, _ = named(gpu)
        assert found is not None, gpu
        assert found.name == gpu
        assert 0.1 < price.per_gpu_hour < 20
        assert price.source
        assert len(price.currency) == 3
        assert price.date.startswith("2026-"), price
    assert "NVIDIA GeForce GTX 280" not in listed_prices()


def costs(*arguments):
    done = ran(TRACE, "--no-html", "--json", "-", *arguments)
    return json.loads(done.stdout)["cost"], done.stderr


def test_costs_are_shown_only_where_they_are_asked_for():
    assert costs() == (None, "")
    own, _ = costs("--gpu-hour-price", "2.5 eur", "--cost")
    assert own["price"] == {"per_gpu_hour": 2.5, "currency": "EUR", "gpu": "", "source": "", "date": ""}


def test_the_list_price_is_that_of_the_recorded_gpu_or_of_the_one_that_the_user_names():
    recorded, _ = costs("--cost")
    assert recorded["price"]["gpu"] == "NVIDIA A100 SXM 80GB"
    assert recorded["price"]["per_gpu_hour"] == listed_prices()["NVIDIA A100 SXM 80GB"].per_gpu_hour
    assert costs("--cost", "--gpu", "H100-SXM")[0]["price"]["gpu"] == "NVIDIA H100 SXM"


def test_where_no_price_is_known_a_line_says_so():
    unknown, said = costs("--cost", "--gpu", "RTX-2080-Ti")
    assert unknown is None
    assert said == "perfdoctor: no cost: no list price is known of NVIDIA A100-SXM4-80GB; give --gpu-hour-price\n"
    done = ran(FIXTURES / "cpu-slow-input" / "torch", "--no-html", "--gpu-hour-price", "3")
    assert "no cost: no GPU was recorded" in done.stderr
    assert "Cost" not in done.stdout


@pytest.mark.parametrize("price", ["0", "-1", "2,50", "free", "1e999", "nan", "2.5 dollars", ""])
def test_what_is_no_price_is_refused_in_two_lines(price):
    done = ran(TRACE, "--no-html", "--gpu-hour-price", price, code=2)
    assert done.stderr.splitlines()[0] == f"perfdoctor: --gpu-hour-price {price}: that is no price"
    assert len(done.stderr.splitlines()) == 2
