"""Does diagnosis.json have every field that scripts rely on?"""

from __future__ import annotations

import json
from types import MappingProxyType

import jsonschema
import numpy as np
import pytest
from folders import FIXTURES, ROOT
from msgspec.structs import replace
from recorded import recording
from report.samples import INPUT_BOUND, LARGER, NO_STEPS, NOTHING, POISONED, SAMPLES

from perfdoctor import __version__
from perfdoctor.records.document import schema
from perfdoctor.report import json_report

REAL = ["unfused-optimizer/torch", "cpu-slow-input/torch", "straggler/nsys", "launch-bound/nsys", "pageable/torch"]


def rendered(diagnosis):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(json_report.render(diagnosis), parse_constant=refuse)


def test_the_document_has_the_documented_fields():
    document = rendered(INPUT_BOUND)
    assert (document["format"], document["perfdoctor"]) == (1, __version__)
    promised = {"format", "perfdoctor", "run", "time", "outcomes", "findings", "prediction", "contenders", "notes"}
    assert set(document) == promised | {
        "recording",
        "base_ns",
        "kernels",
        "critical_path",
        "efficiency",
        "roofline",
        "run_time",
        "gpu_metrics",
        "collectives",
        "memory",
        "modules",
        "modules_left_out",
        "cost",
    }
    assert document["run"] == {
        "sources": [
            {
                "kind": "kineto",
                "file": "rank0.pt.trace.json.gz",
                "tool_version": "2.8.0",
                "ranks": [0],
                "cut_off": False,
            }
        ],
        "gpus": [{"rank": 0, "device": 0, "name": "NVIDIA H100 80GB HBM3", "known_peaks": True}],
        "world_size": 1,
        "steps": {
            "count": 12,
            "used": 10,
            "median_ns": 701_000_000,
            "p10_ns": 698_000_000,
            "p90_ns": 722_000_000,
            "found_by": "profiler-step",
            "confidence": "high",
            "marked_by": "",
            "durations_ns": [],
            "unrecorded_ns": None,
            "stretch": None,
            "stretch_by_part": None,
            "real_time": None,
            "timed": None,
        },
        "project": None,
        "items_per_step": None,
        "contended_share": 0.0,
        "processes": [],
        "work": {"kind": "unknown", "server": "", "framework": "unknown"},
        "basis": {"noun": "step", "of": "", "serves": False, "computes": False},
        "gpu_not_recorded": False,
    }
    assert document["outcomes"][0] == {"rule": "input-wait", "status": "found", "missing": [], "error": None}
    assert document["outcomes"][6]["missing"] == ["collectives"]


def test_a_row_of_time_has_the_documented_fields_and_its_parts_sum():
    document = rendered(INPUT_BOUND)
    (row,) = document["time"]
    assert list(row) == [
        "rank", "device", "window_start_ns", "window_ns", "step_ns", "compute_ns", "exposed_communication_ns",
        "exposed_copy_ns", "idle_ns", "communication_ns", "hidden_communication_ns", "copy_ns", "kernel_count",
        "idle_causes_ns", "compute_by_family_ns", "matmul_ns_by_math_path", "compute_by_phase_ns",
    ]  # fmt: skip
    parts = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    assert sum(row[part] for part in parts) == row["window_ns"]
    assert sum(row["idle_causes_ns"].values()) == row["idle_ns"]
    promised_causes = (
        "input_wait host_sync launch_bound host_work allocator storage garbage_collection compilation peer_wait "
        "profiler unknown"
    )
    assert set(promised_causes.split()) <= set(row["idle_causes_ns"])
    families = "gemm attention convolution elementwise reduction normalization optimizer embedding other"
    assert list(row["compute_by_family_ns"]) == families.split()
    assert list(row["matmul_ns_by_math_path"]) == ["tensor_core", "no_tensor_core", "unknown"]
    assert list(document["recording"][0]) == list(row)


def test_without_steps_and_gpu_the_fields_are_null():
    row = rendered(NO_STEPS)["time"][0]
    assert (row["step_ns"], row["device"]) == (None, None)
    assert rendered(NOTHING)["prediction"] is None


def test_findings_are_flat_with_causes_before_their_symptoms():
    findings = rendered(INPUT_BOUND)["findings"]
    assert [(f["rank"], f["rule"], f["symptoms"], f["symptom_of"]) for f in findings] == [
        (1, "input-wait", ["pageable-copies"], None),
        (2, "pageable-copies", [], "input-wait"),
        (3, "host-syncs", [], None),
    ]
    first = findings[0]
    assert first["saving_ns_per_step"] == {"low": 330_000_000, "likely": 431_000_000, "high": 441_000_000}
    assert first["speedup"]["likely"] == pytest.approx(701 / 270)
    assert (first["category"], first["confidence"]) == ("input", "high")
    assert set(first) >= {"title", "summary", "values", "evidence", "fixes"}
    assert set(first["fixes"][0]) == {"title", "how", "effort", "changes_numerics", "caution"}


def test_each_kind_of_evidence_names_its_type():
    evidence = rendered(INPUT_BOUND)["findings"][0]["evidence"]
    assert [entry["type"] for entry in evidence] == ["measure", "measure", "rows", "span"]
    assert evidence[0] == {"type": "measure", "label": "waiting for the next batch", "value": 434_000_000, "unit": "ns"}
    assert evidence[2]["rows"][0] == [7, 512_000_000, "DataLoader.__next__"]
    assert evidence[3] == {
        "type": "span",
        "label": "longest wait",
        "rank": 0,
        "start_ns": 4_401_000_000,
        "end_ns": 4_913_000_000,
    }


def test_a_prediction_has_its_ranges_and_steps():
    assert rendered(INPUT_BOUND)["prediction"] == {
        "fixed": ["input-wait", "host-syncs"],
        "step_ns": {"low": 240_000_000, "likely": 252_000_000, "high": 351_000_000},
        "speedup": {"low": 2.0, "likely": 2.8, "high": 2.9},
        "recorded_step_ns": 701_000_000,
        "unrecorded_step_ns": None,
        "steps": [
            {"rule": "input-wait", "step_ns": 270_000_000, "choice": "", "samples": 1.0},
            {"rule": "host-syncs", "step_ns": 252_000_000, "choice": "", "samples": 1.0},
        ],
        "replay_error": 0.001,
        "asked": False,
        "samples": 1.0,
        "scaling": None,
    }


def test_a_prediction_of_another_size_has_its_samples_and_how_well_ranks_scale():
    prediction = rendered(LARGER)["prediction"]
    assert prediction["samples"] == 16.0
    assert [step["samples"] for step in prediction["steps"]] == [1.0, 2.0, 16.0]
    assert prediction["scaling"] == {
        "recorded_ranks": 8,
        "asked_ranks": 64,
        "efficiency": {"low": 0.82, "likely": 0.9, "high": 0.95},
    }
    unknown = replace(LARGER.prediction, scaling=replace(LARGER.prediction.scaling, recorded=None))
    assert rendered(replace(LARGER, prediction=unknown))["prediction"]["scaling"]["recorded_ranks"] is None


@pytest.fixture(scope="module")
def validator():
    return jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text("utf-8")))


@pytest.mark.parametrize("name", SAMPLES)
def test_it_is_always_valid_json_and_by_the_schema(name, validator):
    assert json_report.render(SAMPLES[name]).encode()
    validator.validate(rendered(SAMPLES[name]))


@pytest.mark.parametrize("name", REAL)
def test_a_real_diagnosis_is_valid_by_the_schema(name, validator):
    validator.validate(rendered(recording(FIXTURES / name).diagnosis))


def test_the_schema_refuses_what_no_diagnosis_says(validator):
    for path, wrong in (
        (("format",), 2),
        (("run", "steps", "count"), "twelve"),
        (("findings", 0, "evidence", 0, "type"), "rumour"),
        (("findings", 0, "speedup"), [1.0, 2.0, 3.0]),
        (("time", 0, "compute_ns"), 1.5),
    ):
        document = rendered(INPUT_BOUND)
        inner = document
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = wrong
        assert not validator.is_valid(document), path


def test_the_schema_is_made_from_the_records():
    """`make docs` writes it."""
    assert json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text("utf-8")) == json.loads(json.dumps(schema()))


def test_names_are_complete_and_what_json_lacks_is_null():
    document = rendered(POISONED)
    assert document["kernels"][1]["name"] == "k" * 5_000
    assert document["findings"][0]["values"]["nan"] is None
    assert "\ufffd" in document["notes"][0]


def test_numbers_of_numpy_and_read_only_mappings_are_written_as_they_are():
    values = MappingProxyType({"n": np.int64(2**40), "x": np.float64(0.5), "bad": np.float64("nan"), "b": np.bool_(1)})
    finding = replace(INPUT_BOUND.findings[0], values=values)
    split = replace(INPUT_BOUND.time[0], idle_causes_ns=MappingProxyType(dict(INPUT_BOUND.time[0].idle_causes_ns)))
    document = rendered(replace(INPUT_BOUND, findings=(finding,), time=(split,)))
    assert document["findings"][0]["values"] == {"n": 2**40, "x": 0.5, "bad": None, "b": True}


def test_the_costliest_modules_are_listed_and_the_others_are_one_sum():
    one, outside = POISONED.modules
    named = [replace(one, path=f"Net.{n}", own_forward_ns=1e9 - n) for n in range(250)]
    document = rendered(replace(POISONED, modules=(*named, outside)))
    listed = document["modules"]
    assert [each["path"] for each in listed] == [f"Net.{n}" for n in range(200)] + [""]
    assert document["modules_left_out"]["count"] == 50
    whole_ns = sum(each.own_ns for each in (*named, outside))
    assert sum(each["own_ns"] for each in listed) + document["modules_left_out"]["own_ns"] == pytest.approx(whole_ns)
