"""What Prometheus reads is what the diagnosis says, in both of its formats; the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from math import fsum

import pytest
from folders import FIXTURES, ROOT
from hypothesis import given
from hypothesis.strategies import characters, text
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families as classic
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.export.numbers import METRICS, PREFIX, Number, numbers, open_metrics
from perfdoctor.history.facts import Facts
from perfdoctor.vocabulary.parts import PARTS
from perfdoctor.vocabulary.rulebook import load_rules

FIXTURE = FIXTURES / "straggler" / "torch"
HOSTILE = 'a"b\\c\nd{e="f"} # EOF\u202e\U0001f600'
DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "perfdoctor.json").read_text("utf-8"))


def ran(*arguments, code=0):
    done = CliRunner().invoke(app, ["analyze", *map(str, arguments)], prog_name="perfdoctor")
    assert done.exit_code == code, (done.output, done.exception)
    return done


def read(text, families=open_parser.text_string_to_metric_families):
    """By name and labels without `run`."""
    return {
        (sample.name, tuple(value for label, value in sorted(sample.labels.items()) if label != "run")): sample.value
        for family in families(text)
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The text, the document, of eight GPUs at 2 EUR an hour."""
    folder = tmp_path_factory.mktemp("metrics")
    target, document = folder / "nightly.prom", folder / "diagnosis.json"
    ran(
        FIXTURE, "--no-html", "--quiet", "--json", document, "--metrics", target, "--gpu-hour-price", "2EUR",
        "--tokens-per-step", "4096",
    )  # fmt: skip
    return target.read_text("utf-8"), json.loads(document.read_text("utf-8"))


def test_the_text_is_valid_in_both_formats_and_says_the_same_in_both(written):
    text, _ = written
    assert text.endswith("# EOF\n")
    assert read(text) == read(text, classic)
    for family in open_parser.text_string_to_metric_families(text):
        assert family.type == "gauge"  # `info` and `unknown` are no types of the classic format
        assert family.name.removeprefix(PREFIX) in METRICS
        assert family.unit == METRICS[family.name.removeprefix(PREFIX)].unit
        assert family.documentation == METRICS[family.name.removeprefix(PREFIX)].help
        assert all(sample.labels["run"] == "nightly" for sample in family.samples)
        assert all(sample.timestamp is None for sample in family.samples)  # node_exporter refuses the file otherwise


def test_the_values_are_those_of_the_document_in_base_units(written):
    text, document = written
    value = read(text)
    steps, predicted = document["run"]["steps"], document["prediction"]
    assert value["perfdoctor_step_median_seconds", ()] == pytest.approx(steps["median_ns"] / 1e9)
    assert value["perfdoctor_step_p90_seconds", ()] == pytest.approx(steps["p90_ns"] / 1e9)
    assert value["perfdoctor_step_seconds", ()] == pytest.approx(predicted["recorded_step_ns"] / 1e9)
    assert value["perfdoctor_predicted_step_seconds", ("likely",)] == pytest.approx(
        predicted["step_ns"]["likely"] / 1e9
    )
    assert value["perfdoctor_gpus", ()] == len(document["run"]["gpus"])
    first = document["findings"][0]
    assert value["perfdoctor_finding_saving_seconds", ("high", first["rule"])] == pytest.approx(
        first["saving_ns_per_step"]["high"] / 1e9
    )
    assert value["perfdoctor_items_per_second", ("tokens",)] == pytest.approx(
        document["efficiency"]["items_per_second"]
    )
    assert value["perfdoctor_month_cost", ("EUR",)] == pytest.approx(2 * len(document["run"]["gpus"]) * 730)


def test_the_parts_sum_to_the_step_and_their_shares_to_one(written):
    text, document = written
    value = read(text)
    assert fsum(value["perfdoctor_part_ratio", (part,)] for part in PARTS) == pytest.approx(1, abs=1e-12)
    step = value["perfdoctor_step_recorded_seconds", ()]
    assert fsum(value["perfdoctor_part_seconds", (part,)] for part in PARTS) == pytest.approx(step, rel=1e-9)
    windows = sum(row["window_ns"] for row in document["time"])
    idle = sum(row["idle_ns"] for row in document["time"])
    assert value["perfdoctor_idle_ratio", ()] == pytest.approx(idle / windows)
    compute = sum(row["compute_ns"] for row in document["time"])
    assert value["perfdoctor_part_ratio", ("compute",)] == pytest.approx(compute / windows)


def test_labels_have_few_values(written):
    """A new series for each run, rank, kernel or line would fill Prometheus."""
    text, _ = written
    for family in open_parser.text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name != "perfdoctor_run_info":
                assert set(sample.labels) <= {"run", "part", "rule", "case", "items", "currency"}
            assert sample.labels.get("part", "compute") in PARTS
            assert sample.labels.get("rule", "input-wait") in load_rules()


def test_hostile_names_are_escaped_and_come_back_unchanged():
    hostile = [Number(METRICS["run_info"], 1.0, (HOSTILE, "b", HOSTILE, "")), Number(METRICS["gpus"], 2.0)]
    for parse in (open_parser.text_string_to_metric_families, classic):
        families = {family.name: family for family in parse(open_metrics(hostile, HOSTILE))}
        assert families["perfdoctor_run_info"].samples[0].labels == {
            "run": HOSTILE, "perfdoctor": HOSTILE, "program": "b", "gpu": HOSTILE, "work": "",
        }  # fmt: skip
        assert families["perfdoctor_gpus"].samples[0].value == 2


@given(text(characters(codec="utf-8")), text(characters(codec="utf-8")))
def test_any_text_comes_back_unchanged(run, gpu):
    info = [Number(METRICS["run_info"], 1.0, ("", "", gpu, ""))]
    for parse in (open_parser.text_string_to_metric_families, classic):
        (family,) = parse(open_metrics(info, run))
        assert family.samples[0].labels == {"run": run, "perfdoctor": "", "program": "", "gpu": gpu, "work": ""}


def test_names_and_helps_follow_the_conventions():
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", name)
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_created"))
        assert metric.unit in ("", "seconds", "bytes", "ratio")
        assert name.endswith(f"_{metric.unit}") or not metric.unit
        assert not re.search(r"_(ms|ns|percent|mib|gib)\b", name)
        assert metric.help.endswith(".")
        assert not set('"\\\n') & set(metric.help)  # the two formats escape them differently


def test_a_recording_without_steps_has_no_times_of_steps():
    row = dict.fromkeys(("exit_code", "world_size", "program", "device", "work"))
    run = {
        **row,
        "perfdoctor": "1",
        "recorded_at": "2026-01-02T03:04:05.678Z",
        "gpus": 0,
        "steps": 0,
        "window_ns": None,
    }
    found = {number.metric.name: number.value for number in numbers(Facts(run, (), ()), None)}
    assert found == {
        "run_info": 1,
        "recorded_timestamp_seconds": 1767323045.678,
        "gpus": 0,
        "analysed_steps": 0,
        "findings": 0,
    }


# --- the option


def test_the_file_is_replaced_as_a_whole_and_another_programs_file_is_kept(tmp_path):
    own, other = tmp_path / "own.prom", tmp_path / "other.prom"
    for _ in range(2):
        ran(FIXTURE, "--no-html", "--quiet", "--metrics", own)
    assert [path.name for path in tmp_path.iterdir()] == ["own.prom"]
    other.write_text("node_cpu 1\n")
    done = ran(FIXTURE, "--no-html", "--metrics", other, code=1)
    assert done.stderr.splitlines()[0] == f"perfdoctor: --metrics {other} exists and was not written by perfdoctor"
    assert other.read_text() == "node_cpu 1\n"
    done = ran(FIXTURE, "--no-html", "--metrics", tmp_path / "missing" / "a.prom", code=1)
    assert len(done.stderr.splitlines()) == 2


def test_without_the_package_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = ran(FIXTURE, "--no-html", "--metrics", tmp_path / "a.prom", code=1)
    assert done.stderr.splitlines() == [
        "perfdoctor: --metrics needs a package that is not installed: prometheus_client",
        "  → pip install 'perfdoctor[metrics]'",
    ]


# --- the dashboard

EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
SELECTOR = re.compile(r"\b(perfdoctor_\w+)\{([^}]*)\}")


def test_every_query_of_the_dashboard_names_metrics_and_labels_that_are_written():
    queries = [variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    asked = set()
    for expression in (*EXPRESSIONS, *queries):
        names = re.findall(r"\bperfdoctor_\w+", expression)
        assert names, expression
        asked |= set(names)
        for name, selector in SELECTOR.findall(expression):
            labels = set(re.findall(r"(\w+)=~?\"", selector))
            assert labels <= {"instance", "run", *METRICS[name.removeprefix(PREFIX)].labels}, expression
    assert asked <= {PREFIX + name for name in METRICS}
    legends = {
        label
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
    }
    assert legends <= {"run", *(label for metric in METRICS.values() for label in metric.labels)}


def test_most_metrics_are_on_the_dashboard():
    shown = {name for expression in EXPRESSIONS for name in re.findall(r"\bperfdoctor_(\w+)", expression)}
    assert len(shown) >= 15
    assert {"step_seconds", "part_seconds", "finding_saving_ratio", "mfu_ratio", "month_saving"} <= shown


def lost(given, kept, path=""):
    """What Grafana's own types do not know, or would change."""
    if isinstance(given, dict):
        return [each for key in given for each in (lost(given[key], kept.get(key, "nothing"), f"{path}.{key}"))]
    if isinstance(given, list):
        assert len(given) == len(kept)
        return [each for one, other in zip(given, kept, strict=True) for each in lost(one, other, path)]
    return [] if given == kept else [(path, given, kept)]


def test_grafanas_own_types_load_the_dashboard_and_lose_nothing_of_it():
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder", reason="Grafana's types need Python 3.11")
    from grafana_foundation_sdk.models import (  # noqa: PLC0415 where there are any
        bargauge,
        dashboard,
        prometheus,
        stat,
        table,
        timeseries,
    )  # fmt: skip

    def encoded(record):
        return json.loads(encoder.JSONEncoder().encode(record))

    assert lost(DASHBOARD, encoded(dashboard.Dashboard.from_json(DASHBOARD))) == []
    kinds = {"stat": stat, "timeseries": timeseries, "bargauge": bargauge, "table": table}
    for panel in DASHBOARD["panels"]:
        assert lost(panel["options"], encoded(kinds[panel["type"]].Options.from_json(panel["options"]))) == []
        for target in panel["targets"]:
            assert lost(target, encoded(prometheus.Dataquery.from_json(target))) == []
        custom = panel["fieldConfig"]["defaults"]["custom"]
        assert lost(custom, encoded(timeseries.FieldConfig.from_json(custom))) == []


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23  # Grafana's grid has 24 columns
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
