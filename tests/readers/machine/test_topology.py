"""`nvidia-smi topo -m` in the forms in which it is printed and copied."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from folders import public_files

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import formats
from perfdoctor.readers.machine import topology

TABS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tPIX\t0-13,28-41\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\t14-27\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n  SYS  = far\n\nNIC Legend:\n\n  NIC0: mlx5_3\n"
)


def read(tmp_path: Path, text: str) -> Timeline:
    file = tmp_path / "topo.txt"
    file.write_text(text, encoding="utf-8")
    assert formats.kind_of(file) == "topology"
    return topology.read(file)


def pairs(timeline: Timeline) -> dict[tuple[str, str], str]:
    frame = timeline["links"]
    return dict(zip(zip(frame.text("source"), frame.text("target"), strict=True), frame.name, strict=True))


def test_links_affinities_and_the_names_of_the_legend(tmp_path):
    found = read(tmp_path, TABS)
    assert pairs(found) == {
        ("GPU0", "GPU1"): "NV4", ("GPU1", "GPU0"): "NV4", ("GPU0", "mlx5_3"): "PIX", ("mlx5_3", "GPU0"): "PIX",
        ("GPU1", "mlx5_3"): "SYS", ("mlx5_3", "GPU1"): "SYS",
    }  # fmt: skip
    frame = found["links"]
    numa = dict(zip(frame.text("source"), frame["numa"].tolist(), strict=True))
    assert numa == {"GPU0": 0, "GPU1": 1, "mlx5_3": -1}
    assert found.recorded == {"links"}
    assert found.ranks == ()


def test_spaces_instead_of_tabs_and_no_numa_column(tmp_path):
    text = "        GPU0    GPU1    mlx5_0  CPU Affinity\n GPU0     X      SYS     NODE    0-11\n GPU1    SYS      X      PIX     12-23\n mlx5_0  NODE    PIX      X\n"
    found = read(tmp_path, text)
    assert pairs(found)["GPU1", "mlx5_0"] == "PIX"
    assert set(found["links"]["numa"].tolist()) == {-1}


def test_what_a_shell_prints_around_it_is_left_out(tmp_path):
    found = read(tmp_path, "$ nvidia-smi topo -m\n" + TABS.split("Legend", maxsplit=1)[0] + "user@host:~$ exit\n")
    assert len(found["links"]) == 6
    assert any("below the table" in note for note in found.notes)


def test_a_row_that_is_not_whole_ends_the_table(tmp_path):
    found = read(tmp_path, "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV1\tNV1\nGPU1\tNV1\t X \n")
    assert pairs(found) == {("GPU0", "GPU1"): "NV1", ("GPU0", "GPU2"): "NV1"}


@pytest.mark.parametrize("text", ["", "GPU0 is fast\n", "GPU0\tGPU1\n", "GPU0 GPU1 CPU Affinity\nfoo bar\n"])
def test_other_text_is_no_topology(text):
    assert not topology.looks_like(text.encode())


def test_a_file_without_a_table_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("nothing\n")
    with pytest.raises(PerfdoctorError, match="no topology"):
        topology.read(tmp_path / "x.txt")


@pytest.mark.recordings
@pytest.mark.parametrize("path", public_files("topology/*.txt"), ids=lambda path: path.name)
def test_a_real_machine_as_its_words_read_one_by_one(path):
    """Words of a row, counted from its device: the n-th is the link to the n-th device of the header."""
    found = topology.read(path)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in path.read_text().splitlines()]
    header = next(line for line in lines if line and line[0].startswith("GPU"))
    devices = header[: header.index("CPU")]
    names = {line[0].rstrip(":"): line[1] for line in lines if len(line) == 2 and re.fullmatch(r"NIC\d+:", line[0])}
    expected = {}
    for line in lines:
        if line and line != header and line[0] in devices:
            for target, link in zip(devices, line[1:], strict=False):
                if link != "X":
                    expected[names.get(line[0], line[0]), names.get(target, target)] = link
    assert {pair: link for pair, link in pairs(found).items() if link != "X"} == expected
    assert all(expected[b, a] == link for (a, b), link in expected.items()), "a link joins both ways"
