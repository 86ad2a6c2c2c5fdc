"""Are the stacks of Python that Nsight Systems samples read as the program ran? With a real recording, made here."""

from __future__ import annotations

import base64
import json
import sqlite3
import struct
import subprocess
import sys
from collections import Counter

import pytest
from real_nsys import nsys, with_its_agent

from perfdoctor.metrics.host import sampled_lines
from perfdoctor.readers.nsys.timeline import read

PROGRAM = """
import math, time

def slow(count):
    return sum(math.sin(tick) for tick in range(count))

def main():
    for _ in range(100):
        slow(100_000)

main()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The export, and of each sample the payload as `nsys export --type json` says it."""
    folder = tmp_path_factory.mktemp("sampled")
    (folder / "slow.py").write_text(PROGRAM)
    report, export, text = folder / "r.nsys-rep", folder / "r.sqlite", folder / "r.json"
    command = [nsys(), "profile", "-t", "osrt", "-s", "none", "--cpuctxsw=none", "--python-sampling=true", "-f", "true",
               "--python-sampling-frequency=200", "-o", report, sys.executable, folder / "slow.py"]  # fmt: skip

    def run(*command):
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)

    with_its_agent(lambda: run(*command), lambda done: done.stdout + done.stderr)
    for kind, file in (("sqlite", export), ("json", text)):
        run(nsys(), "export", "--type", kind, "-f", "true", "-o", file, report)
    if not text.exists():
        pytest.skip("this nsys recorded nothing")
    lines = text.read_text("utf-8", "replace").splitlines()
    events = [json.loads(line)["NvtxEvent"] for line in lines if '"Type":34,' in line and "BinaryData" in line]
    strings = next((json.loads(line)["data"] for line in lines if line.startswith('{"data":')), [])
    return export, strings, [(int(e["Timestamp"]), e["Payload"]["BinaryData"][0]["Data"]) for e in events]


def with_blobs(export, target, blobs):
    """The export as newer versions write it with --include-blobs."""
    target.write_bytes(export.read_bytes())
    with sqlite3.connect(target) as database:
        database.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN binaryData BLOB")
        sql = "UPDATE NVTX_EVENTS SET binaryData = ? WHERE start = ? AND eventType = 34"
        database.executemany(sql, [(blob, start) for start, blob in blobs])
    database.close()
    return target


@pytest.mark.parametrize("has_header", [True, False])
def test_samples_are_the_lines_that_nsys_itself_shows(recorded, tmp_path, has_header):
    export, strings, samples = recorded
    shown, blobs = Counter(), []
    for start, data in samples:
        raw = base64.b64decode(data)
        blobs.append((start, struct.pack("<QQQQ", 1, 5, len(raw), 32) * has_header + raw))
        frames = [struct.unpack_from("<QQI", raw, place) for place in range(16, len(raw), 24)]
        own = [line for _, file, line in frames if strings[file].endswith("/slow.py")]
        shown[own[0] if own else 0] += 1
    assert shown[5] > 20
    rows = read(with_blobs(export, tmp_path / "blobs.sqlite", blobs))["stack_samples"]
    assert rows.start_ns.tolist() == sorted(start for start, _ in samples)
    places = [sampled_lines.place_of(name) for name in rows.name]
    assert Counter(line if file.endswith("slow.py") else 0 for file, line, _ in places) == shown
    assert rows["is_on_clock"].all()
    assert rows["is_main"].all()


def test_an_export_without_them_says_how_to_get_them(recorded):
    timeline = read(recorded[0])
    assert not len(timeline["stack_samples"])
    assert any("--include-blobs" in note for note in timeline.notes)


ODD = [b"", b"x", bytes(16), bytes(40), struct.pack("<IIII", 3, 1, 1 << 31, 0) + bytes(24), "text", 5]


@pytest.mark.parametrize("blob", ODD, ids=range(len(ODD)))
def test_payloads_of_another_form_are_no_stacks(recorded, tmp_path, blob):
    export, _, samples = recorded
    target = with_blobs(export, tmp_path / "odd.sqlite", [(start, blob) for start, _ in samples])
    assert not len(read(target)["stack_samples"])
