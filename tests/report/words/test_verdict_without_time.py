"""Does the verdict fit files without a timeline: descriptions of a machine, or single kernels?"""

from __future__ import annotations

import pytest
from ncu_tables import RAW, wide

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.report.words import wording
from perfdoctor.vocabulary.rulebook import load_rules

TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-5\nGPU1\tNV4\t X \t0-5\n"
TESTS = "NCCL version 2.27.7+cuda13.0\n"
SAMPLES = "index, power.draw [W]\n0, 300.00 W\n1, 310.00 W\n"
APPS = "gpu_uuid, pid, used_gpu_memory [MiB]\nGPU-a, 1, 100 MiB\n"


def diagnosed(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return diagnose(read([tmp_path / name for name in files]), list(load_rules().values()))


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (TOPOLOGY, "2 GPUs: 1 pair over NV4"),
        (SAMPLES, "2 samples of 2 GPUs, power 300-310 W"),
        (APPS, "1 list of the processes on 1 GPU, at most 1 on one"),
    ],
)
def test_the_verdict_is_the_note_on_the_machine(tmp_path, text, note):
    diagnosis = diagnosed(tmp_path, file=text)
    assert wording.verdict(diagnosis) == f"{note}. No problem found; no timeline was recorded."
    assert wording.recorded(diagnosis)[0] == "no timeline recorded"  # not "no GPU": the file is about some
    assert diagnosis.notes[-1].startswith("Only the machine was recorded")
    assert not any("can be accounted for" in note for note in diagnosis.notes)


def test_of_several_files_the_verdict_has_the_first(tmp_path):
    diagnosis = diagnosed(tmp_path, topology=TOPOLOGY, samples=SAMPLES)
    assert "2 GPUs: 1 pair over NV4 (1 more file). No problem" in wording.verdict(diagnosis)


def test_a_finding_comes_first(tmp_path):
    log = "host:10:15 [0] NCCL INFO init.cc:310 -> 2\nhost:10:15 [0] init.cc:30 NCCL WARN no memory\n"
    verdict = wording.verdict(diagnosed(tmp_path, log=log))
    assert verdict == "NCCL reported errors. No timeline was recorded."


def test_the_share_of_single_kernels_in_a_step_is_unknown(tmp_path):
    rows = [row for row in RAW if "sectors" not in row[0]]
    busy = wide([(name, unit, "90" if name.startswith("sm__throughput") else value) for name, unit, value in rows])
    diagnosis = diagnosed(tmp_path, kernels=busy)
    assert not diagnosis.findings
    assert wording.verdict(diagnosis) == (
        "add: 52.6 µs, 100 % of the measured time; at the limit of the instruction rate of the SMs (their busiest pipe at "
        "90 % of its peak). Single kernels were measured: their share of the whole is unknown."
    )
    heads = ["kernels: 1 launch", "Nsight Compute measured single", "add: 52.6 µs", "Record with ncu --set full"]
    assert all(note.startswith(head) for note, head in zip(diagnosis.notes, heads, strict=True))


def test_of_single_kernels_the_verdict_is_the_first_finding(tmp_path):
    verdict = wording.verdict(diagnosed(tmp_path, kernels=wide([row for row in RAW if "sectors" not in row[0]])))
    assert verdict == (
        "Kernels at the memory bandwidth limit: 100 % of the measured time. Single kernels were measured: their share of "
        "the whole is unknown."
    )
