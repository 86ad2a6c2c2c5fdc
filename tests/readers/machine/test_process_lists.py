"""Lists of processes on GPUs, as nvidia-smi prints them: literal files."""

from __future__ import annotations

import math
from datetime import datetime

import pytest
from builders import draw

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers import formats, side_files
from perfdoctor.readers.machine import process_lists
from perfdoctor.readers.open import read as read_all
from perfdoctor.vocabulary.rulebook import load_rules

GIB, MIB = 1 << 30, 1 << 20
A, B = "GPU-230e70f3-fcca-c799-d8c2-bb5185aee96c", "GPU-d49b39db-9a12-3085-d584-4a3f323241a5"
QUERY = f"""\
gpu_uuid, pid, process_name, used_gpu_memory [MiB]
{A}, 72210, /root/miniconda3/envs/x/bin/python, 41502 MiB
{A}, 72999, python, 1024 MiB
{B}, 72211, [Not Found], 41510 MiB
"""
PMON = """\
# gpu        pid  type    sm   mem   enc   dec   command
# Idx          #   C/G     %     %     %     %   name
    0      22010     C    60    56     -     -   python3 -c x y
    0      22011   M+C    55     1     -     -   other
    0       1234     G     1     0     -     -   Xorg
    1          -     -     -     -     -     -   -
    0      22010     C    98    56     -     -   python3
    1          -     -     -     -     -     -   -
# gpu        pid  type    sm   mem   enc   dec   command
# Idx          #   C/G     %     %     %     %   name
    0      22010     C     -     -     -     -   python3
    1      22044     C    10     0     -     -   python3
"""


def read(tmp_path, text: str):
    file = tmp_path / "processes.txt"
    file.write_text(text, encoding="utf-8")
    assert formats.kind_of(file) == "processes"
    return process_lists.read(file)


def samples(timeline):
    """(GPU, listing, processes, MiB, share in use); None is unknown."""
    frame = timeline["device_samples"]
    listings = sorted(set(frame.start_ns.tolist()))
    columns = (frame.floats(c).tolist() for c in ("processes", "memory_used_bytes", "utilization_share"))
    rows = zip(frame["device"].tolist(), frame.start_ns.tolist(), *columns, strict=True)
    return [
        (gpu, listings.index(at), n, None if math.isnan(held) else held / MIB, None if math.isnan(used) else used)
        for gpu, at, n, held, used in rows
    ]


def test_a_query_is_one_listing_and_names_gpus_by_their_uuid(tmp_path):
    found = read(tmp_path, QUERY)
    assert samples(found) == [(0, 0, 2, 42526, None), (1, 0, 1, 41510, None)]
    assert not found["device_samples"]["is_on_clock"].any()
    assert found.notes == ("processes.txt: 1 list of the processes on 2 GPUs, at most 2 on one.",)


def test_names_of_processes_are_not_kept(tmp_path):
    assert "miniconda" not in str(read(tmp_path, QUERY).frames)


def test_without_a_header_the_list_is_recognised_by_its_uuids(tmp_path):
    assert samples(read(tmp_path, QUERY.split("\n", 1)[1])) == samples(read(tmp_path, QUERY))


def test_names_with_commas_and_memory_that_is_unknown(tmp_path):
    text = f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{A}, 1, a,b,c, [N/A]\n{A}, 2, python, 10 MiB\n"
    assert samples(read(tmp_path, text)) == [(0, 0, 2, None, None)]


def test_a_query_again_and_again_has_times(tmp_path):
    at = "2024/05/01 12:34:{:02}.500"
    rows = [(56, A, 1), (56, A, 2), (56, B, 3), (57, A, 1), (57, B, 3), (58, B, 4), (59, B, 5)]
    text = "timestamp, gpu_uuid, pid, used_gpu_memory [MiB]\n" + "".join(
        f"{at.format(second)}, {gpu}, {pid}, 100 MiB\n" for second, gpu, pid in rows
    )
    found = read(tmp_path, text)
    assert [row[:3] for row in samples(found)] == [(0, 0, 2), (1, 0, 1), (0, 1, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)]
    first = datetime.fromisoformat("2024-05-01T12:34:56.500+00:00").timestamp() * 1e9
    assert found["device_samples"].start_ns[0] == first


def test_pmon_lists_what_each_process_uses_and_which_only_draw(tmp_path):
    """Two of 60 and 55 % are one GPU at work all the time; Xorg computes nothing; the last one has no use."""
    assert samples(read(tmp_path, PMON)) == [
        (0, 0, 2, None, 1.0), (1, 0, 0, None, None),
        (0, 1, 1, None, pytest.approx(0.98)), (1, 1, 0, None, None),
        (0, 2, 1, None, None), (1, 2, 1, None, pytest.approx(0.1)),
    ]  # fmt: skip


def test_pmon_with_dates_and_memory(tmp_path):
    text = (
        "#Date       Time        gpu        pid  type    fb   ccpm   command\n"
        "#YYYYMMDD   HH:MM:SS    Idx          #   C/G    MB     MB   name\n"
        " 20240501   12:34:56      3       2635     C   900      0   python\n"
        " 20240501   12:34:57      3       2635     C   901      0   python\n"
    )
    found = read(tmp_path, text)
    assert samples(found) == [(3, 0, 1, 900, None), (3, 1, 1, 901, None)]
    first = datetime.fromisoformat("2024-05-01T12:34:56+00:00").timestamp() * 1e9
    assert found["device_samples"].start_ns[0] == first


@pytest.mark.parametrize("text", [QUERY.split("\n", maxsplit=1)[0] + "\n", "\n".join(PMON.split("\n")[:2])])
def test_an_empty_list_is_refused_with_how_to_write_one(tmp_path, text):
    with pytest.raises(PerfdoctorError, match="lists no process") as caught:
        read(tmp_path, text)
    assert "--query-compute-apps=" in caught.value.do


def test_lines_that_are_no_process_are_left_out_and_counted(tmp_path):
    found = read(tmp_path, QUERY + "No running processes found\nGPU-1, x, y, z\n")
    assert "2 lines are no process: left out." in found.notes[-1]


def test_another_process_on_the_gpu_is_found_from_a_list_alone(tmp_path):
    """Four listings, one rank that reserved 20 GiB, and a second process with 20 more."""
    listing = "".join(f"{A}, {pid}, python, 20480 MiB\n" for pid in (7, 8))
    (tmp_path / "apps.csv").write_text("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n" + 4 * listing)
    frame = read_all([tmp_path / "apps.csv"])["device_samples"]
    assert frame["processes"].tolist() == [2] * 4
    trained = draw(kernels="######  ", launched_us_before=50, repeat=8)
    run = side_files.joined(trained, [read_all([tmp_path / "apps.csv"])])
    found = diagnose(run, list(load_rules().values()))
    assert "shared-gpu" in [advice.rule for advice in found.findings]


@pytest.mark.parametrize(
    "text",
    [
        "Wed May  1 12:34:56 2024\n+------+\n| NVIDIA-SMI 550.54    Driver Version: 550.54   CUDA Version: 12.4 |\n",
        "\n==============NVSMI LOG==============\n\nTimestamp   : Wed May  1 12:34:56 2024\n",
    ],
)
def test_a_status_page_is_refused_with_what_to_print_instead(tmp_path, text):
    (tmp_path / "smi.txt").write_text(text)
    with pytest.raises(PerfdoctorError, match="status page of nvidia-smi") as caught:
        read_all([tmp_path / "smi.txt"])
    assert "--query-gpu=" in caught.value.do
