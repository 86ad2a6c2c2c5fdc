"""What was logged is read back with each tracker's own means: the numbers, the tags and the page. None has a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from folders import FIXTURES, ROOT

from perfdoctor.cli.report_files import is_page

TRACE = FIXTURES / "input-bound-single-process" / "torch"
#: 30 ms of 16.2 ms compute, 18.0 ms input wait: the fixture's own numbers.
STEP_S = 0.034306


def needs(*packages):
    """`make test-all` installs them."""
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


pytestmark = pytest.mark.thorough


@pytest.fixture
def log(tmp_path):
    def logged(*options, code=0, **environment):
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "WANDB_"))}
        done = subprocess.run(
            [sys.executable, "-m", "perfdoctor.cli.main", "analyze", TRACE, *options, "--json", "diagnosis.json"],
            capture_output=True, text=True, cwd=tmp_path, check=False,
            env={**ours, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path / "home"), **environment},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        document = json.loads((tmp_path / "diagnosis.json").read_text("utf-8"))
        first = document["findings"][0]
        expected = {
            "perfdoctor/step_seconds": STEP_S,
            "perfdoctor/step_median_seconds": document["run"]["steps"]["median_ns"] / 1e9,
            f"perfdoctor/finding_saving_seconds/{first['rule']}/likely": first["saving_ns_per_step"]["likely"] / 1e9,
            "perfdoctor/part_ratio/input_wait": document["time"][0]["idle_causes_ns"]["input_wait"]
            / document["time"][0]["window_ns"],
            "perfdoctor/findings": 1,
        }
        return done, {name: pytest.approx(value, rel=1e-5) for name, value in expected.items()}

    return logged


# --- MLflow


@pytest.fixture(params=["sqlite", "file"])
def store(request, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # a client of a new SQLite store makes artifacts' folder where it is
    if request.param == "sqlite":
        pytest.importorskip("sqlalchemy")
        uri, more = f"sqlite:///{tmp_path / 'mlflow.db'}", {}
    else:
        uri, more = (tmp_path / "store").as_uri(), {"MLFLOW_ALLOW_FILE_STORE": "true"}
    os.environ.update(more)
    yield mlflow.MlflowClient(uri, uri), {"MLFLOW_TRACKING_URI": uri, "MLFLOW_REGISTRY_URI": uri, **more}
    for name in more:
        del os.environ[name]


@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_gets_a_new_run_with_numbers_tags_and_the_page(store, log, tmp_path):
    client, environment = store
    done, expected = log("--no-html", "--log", "mlflow", **environment)
    (run,) = client.search_runs(["0"])
    assert f"perfdoctor: logged to mlflow: run {run.info.run_id} at " in done.stderr
    assert run.info.status == "FINISHED"
    assert expected.items() <= run.data.metrics.items()
    assert run.data.tags["perfdoctor.verdict"].startswith("Training waits for data")
    assert run.data.tags["perfdoctor.device"] == "NVIDIA A100-SXM4-80GB"
    (artifact,) = client.list_artifacts(run.info.run_id, "perfdoctor")
    page = client.download_artifacts(run.info.run_id, artifact.path, str(tmp_path))
    assert is_page(Path(page))


@needs("mlflow", "sqlalchemy", "alembic")
def test_mlflow_gets_it_into_the_run_that_is_named_whose_state_stays(store, log):
    client, environment = store
    run = client.create_run("0").info.run_id
    client.log_metric(run, "loss", 0.5, step=3)
    client.log_param(run, "lr", "0.1")
    client.set_terminated(run, "FAILED")
    for _ in range(2):  # a recording may be logged again
        _, expected = log("--log", "mlflow", MLFLOW_RUN_ID=run, **environment)
    (found,) = client.search_runs(["0"])
    assert (found.info.run_id, found.info.status) == (run, "FAILED")
    assert (found.data.params, found.data.metrics["loss"]) == ({"lr": "0.1"}, 0.5)
    assert expected.items() <= found.data.metrics.items()


@needs("mlflow")
def test_a_server_that_does_not_answer_costs_two_lines(log):
    done, _ = log("--no-html", "--log", "mlflow", code=1, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert [line[:34] for line in done.stderr.splitlines()] == [
        "perfdoctor: --log mlflow: MlflowEx",
        "  → Log it later: perfdoctor analyz"[:34],
    ]


# --- Weights & Biases


def records(path):
    """Of an offline run: LevelDB's log format, behind a header of 7 bytes, in blocks of 32 KiB."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, last
            record = messages.Record()
            record.ParseFromString(whole)
            yield record.WhichOneof("record_type"), record
            whole = b""


def items(updates):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in updates}


@needs("wandb")
@pytest.mark.parametrize("given", ["", "abc123"])
def test_wandb_gets_numbers_tags_and_the_page_offline(given, log, tmp_path):
    more = {"WANDB_RUN_ID": given} if given else {}
    done, expected = log("--no-html", "--log", "wandb", WANDB_MODE="offline", WANDB_DIR=str(tmp_path), **more)
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    found = list(records(file))
    assert "perfdoctor: logged to wandb: " in done.stderr
    history = {
        key: value for kind, each in found if kind == "history" for key, value in items(each.history.item).items()
    }
    summary = {
        key: value for kind, each in found if kind == "summary" for key, value in items(each.summary.update).items()
    }
    assert expected.items() <= summary.items()
    assert bool(given) is not bool(expected.items() <= history.items())  # of a run that exists no step is written
    config = {
        key: value for kind, each in found if kind == "config" for key, value in items(each.config.update).items()
    }
    assert config["perfdoctor.device"] == "NVIDIA A100-SXM4-80GB"
    (artifact,) = [each.artifact for kind, each in found if kind == "artifact"] or [
        each.request.log_artifact.artifact for kind, each in found if kind == "request"
    ]
    assert artifact.type == "report"
    assert [entry.path for entry in artifact.manifest.contents] == ["report.html"]
    if given:
        assert file.name == f"run-{given}.wandb"


@needs("wandb")
def test_wandb_without_a_login_costs_two_lines(log):
    done, _ = log("--no-html", "--log", "wandb", code=1)
    assert "perfdoctor: --log wandb: " in done.stderr
    assert len(done.stderr.splitlines()) == 2


# --- TensorBoard


@needs("tensorboard")
def test_tensorboard_reads_numbers_and_text_and_the_page_lies_beside(log, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tensors = pytest.importorskip("tensorboard.util.tensor_util")
    done, expected = log("--no-html", "--log", "tensorboard", "--log", "tensorboard=elsewhere")
    (usual,) = (tmp_path / "runs" / "perfdoctor").iterdir()
    for folder in (usual, tmp_path / "elsewhere"):
        events = accumulator.EventAccumulator(str(folder)).Reload()
        (scalars,) = [{tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}]
        assert expected.items() <= scalars.items()
        (text,) = tensors.make_ndarray(events.Tensors("perfdoctor/report/text_summary")[0].tensor_proto)
        assert text.startswith(b"**Training waits for data")
        assert is_page(folder / "report.html")
        assert events.SummaryMetadata("perfdoctor/report/text_summary").plugin_data.plugin_name == "text"
    assert "perfdoctor: logged to tensorboard: elsewhere" in done.stderr
