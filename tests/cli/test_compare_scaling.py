"""`perfdoctor compare --scaling` takes a series in any order, shows it in every form, and refuses what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from comparison import scaled
from folders import FIXTURES, public
from plant import write_kineto
from real_nsys import nsys
from test_docs import is_described, paths_of
from typer.testing import CliRunner

from perfdoctor.cli.main import app

CPU = str(FIXTURES / "cpu-slow-input")


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series")
    for ranks in (1, 2, 4):
        write_kineto(scaled.training_on_a_ring(ranks).play(), folder / f"{ranks}gpu")
    return [str(folder / f"{ranks}gpu") for ranks in (4, 1, 2)]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(*arguments):
    return CliRunner().invoke(app, ["compare", "--scaling", *arguments])


def test_every_form_is_written(series):
    done = call(*series, "--json", "series.json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("4 GPUs bring 3.")
    assert "exposed communication" in done.stdout
    assert Path("scaling.html").read_text("utf-8").startswith("<!doctype html>\n<!-- perfdoctor report")
    found = json.loads(Path("series.json").read_text("utf-8"))
    assert [each["ranks"] for each in found["rungs"]] == [1, 2, 4]
    assert (found["kind"], found["scaling"], found["checked"][0]["by"]) == ("scaling", "weak", "replay")
    undescribed = [path for path in set(paths_of(found)) if not is_described(path)]
    assert sorted(undescribed) == []
    said = call(*series, "--format", "markdown", "--no-html").stdout
    assert "| GPUs | step | throughput | speed-up | efficiency |" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((CPU,), 2, "takes two recordings or more, 1 is given"),
        ((CPU, CPU, "--weak", "--strong"), 2, "exclude each other"),
        ((CPU, CPU, "--network", "fast"), 2, "that is no rate"),
        ((CPU, CPU, "--fail-above", "5%"), 2, "are not for --scaling"),
        ((CPU, CPU), 1, "different numbers, or use perfdoctor compare without"),
        ((CPU, str(FIXTURES / "healthy")), 1, "on a CPU alone, the other on a GPU"),
        ((CPU, "none"), 1, "none"),
    ],
)
def test_what_is_no_series_is_refused(arguments, code, said):
    done = call(*arguments, "--no-html")
    assert done.exit_code == code
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


@pytest.mark.recordings
@pytest.mark.nsys
def test_a_real_training_on_one_and_four_gpus_has_the_published_throughput(monkeypatch):
    """NERSC's tutorial of SC21: 64 samples a step in all, 1,272 samples/s on four GPUs."""
    monkeypatch.setenv("PERFDOCTOR_NSYS", nsys())
    folder = public("nsys/sc21")
    one, four = str(folder / "dali_amp_apex_jit.qdrep"), str(folder / "4gpu_baseline.qdrep")
    assert "does not say among how many ranks" in call(one, four, "--no-html").stderr
    found = json.loads(call(f"4={four}", one, "--no-html", "--json", "-").stdout)
    assert found["scaling"] == "strong"
    assert 64 * found["rungs"][1]["throughput"] == pytest.approx(1_272, rel=0.02)
