"""Dumps of PyTorch's flight recorder: pickles and JSON of plain values."""

from __future__ import annotations

import json
import pickle

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers import formats
from perfdoctor.readers.nccl import flight_recorder


def entry(seq: int = 1, **more: object) -> dict[str, object]:
    return {
        "frames": [{"name": "step", "filename": "train.py", "line": 3}], "record_id": seq, "pg_id": 0,
        "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
        "profiling_name": "nccl:all_reduce", "time_created_ns": 1, "input_sizes": [[1000, 1000]],
        "input_dtypes": ["BFloat16"], "output_sizes": [[1000, 1000]], "output_dtypes": ["BFloat16"],
        "state": "completed", "duration_ms": 0.5, "retired": True, "timeout_ms": 600_000, "is_p2p": False, **more,
    }  # fmt: skip


def dump(*entries: dict[str, object]) -> dict[str, object]:
    return {
        "version": "2.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "entries": list(entries),
    }


@pytest.fixture(params=["pickle", "json"])
def write(request, tmp_path):
    def written(content: object):
        file = tmp_path / "dump"
        data = pickle.dumps(content, protocol=2) if request.param == "pickle" else json.dumps(content).encode()
        file.write_bytes(data)
        return file

    return written


def test_a_message_with_its_duration_is_a_measure_of_the_links(write):
    file = write(dump(entry()))
    assert formats.kind_of(file) == "flight-recorder"
    found = flight_recorder.read(file)
    frame = found["link_tests"]
    assert list(frame.name) == ["all_reduce"]
    assert (frame["bytes"][0], frame["ranks"][0], frame["time_ns"][0]) == (2_000_000, 4, 500_000)
    # 2 MB in 0.5 ms are 4 GB/s; each link carries 2 * 3 / 4 of it
    assert frame.floats("bus_bytes_per_second")[0] == pytest.approx(4e9 * 1.5)
    assert list(frame.text("members")) == ["0 1 2 3"]
    assert found.recorded == {"link_tests"}


@pytest.mark.parametrize(
    ("name", "sizes", "size", "factor"),
    [
        ("nccl:_all_gather_base", ([[10]], [[40]]), 160, 0.75),
        ("nccl:_reduce_scatter_base", ([[40]], [[10]]), 160, 0.75),
        ("nccl:broadcast", ([[10]], [[10]]), 40, 1.0),
        ("nccl:all_to_all", ([[10], [10]], [[10], [10]]), 80, 0.75),
    ],
)
def test_each_kind_has_its_size_and_factor(write, name, sizes, size, factor):
    types = ["Float"] * len(sizes[0])
    message = entry(
        profiling_name=name, input_sizes=sizes[0], output_sizes=sizes[1], input_dtypes=types, output_dtypes=types
    )
    frame = flight_recorder.read(write(dump(message)))["link_tests"]
    assert frame["bytes"][0] == size
    assert frame.floats("bus_bytes_per_second")[0] == pytest.approx(size / 0.0005 * factor)


@pytest.mark.parametrize(
    "unknown",
    [
        {"duration_ms": None}, {"state": "started"}, {"input_dtypes": ["Strange"], "output_dtypes": ["Strange"]},
        {"profiling_name": "nccl:recv 0<-1"}, {"input_sizes": "many", "output_sizes": None}, {"duration_ms": -1},
        {"process_group": None, "pg_id": 9},
    ],
)  # fmt: skip
def test_what_is_unknown_is_no_measure(write, unknown):
    found = flight_recorder.read(write(dump(entry(**unknown))))
    assert len(found["link_tests"]) == 0
    assert found.recorded == frozenset()


def test_collectives_that_hang_are_noted(write):
    found = flight_recorder.read(write(dump(entry(), entry(7, state="started"), entry(8, state="scheduled"))))
    assert any("2 collectives had not ended (1 started), the first all_reduce, number 7" in n for n in found.notes)


def test_what_runs_is_refused(tmp_path):
    class Runs:
        def __reduce__(self):
            return print, ("ran",)

    file = tmp_path / "dump"
    file.write_bytes(pickle.dumps({"entries": [Runs()], "pg_config": {}}))
    with pytest.raises(PerfdoctorError, match="not opened"):
        flight_recorder.read(file)


@pytest.mark.parametrize("content", [[], {"entries": 5}, {"entries": [1], "pg_config": {}}])
def test_other_content_is_refused(write, content):
    with pytest.raises(PerfdoctorError, match="no dump of the flight recorder"):
        flight_recorder.read(write(content))


def test_profiler_traces_are_not_taken_for_dumps():
    head = b'{"schemaVersion": 1, "distributedInfo": {"pg_config": [{"pg_name": "0"}]}, "traceEvents": ['
    assert not flight_recorder.looks_like(head)
