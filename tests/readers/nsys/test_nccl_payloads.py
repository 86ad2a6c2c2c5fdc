"""Bytes and group of a collective are those of NCCL's own ranges, and unknown where these lack them."""

from __future__ import annotations

import json
import sqlite3
import struct
from pathlib import Path

import pytest

from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.scrubbing.copies import scrubbed
from perfdoctor.system.progress import silent

PID, THREAD, DOMAIN = 77, 5, 1
TID = PID << 24 | THREAD
COMM = 0xDEADBEEF12345678
MIB = 1 << 20

#: The schemas of NCCL as nsys 2026.2 exports them: name, type and place of each entry (NULL for the first).
INIT, GATHER, REDUCE, PEER = 16777218, 16777220, 16777223, 16777225
SCHEMAS = {
    INIT: [("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12), ("CUDA device", 5, 16)],
    GATHER: [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)],
    REDUCE: [
        ("NCCL communicator ID", 18, None),
        ("Message size [bytes]", 22, 8),
        ("Reduction operation", 16777232, 16),
    ],
    PEER: [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8), ("Peer rank", 5, 16)],
}


def blob(schema: int, layout: str, *values: int) -> bytes:
    payload = struct.pack(layout, *values)
    return struct.pack("<QQQQ", DOMAIN, schema, len(payload), 32) + payload


def init(ranks: int = 8, comm: int = COMM) -> bytes:
    return blob(INIT, "<Qiiixxxx", comm, ranks, 3, 3)


def reduced(size: int, comm: int = COMM) -> bytes:
    return blob(REDUCE, "<QQixxxx", comm, size, 0)


def gathered(size: int, comm: int = COMM) -> bytes:
    return blob(GATHER, "<QQ", comm, size)


def peer(size: int, comm: int = COMM, rank: int = 1) -> bytes:
    return blob(PEER, "<QQixxxx", comm, size, rank)


def as_json(size: int, comm: int = COMM) -> str:
    return json.dumps({"NCCL communicator ID": comm, "Message size [bytes]": size, "Reduction operation": "Sum"})


class Export:
    """An export of one process: NCCL's ranges on the host, and in some of them the launch of a kernel."""

    def __init__(self) -> None:
        self.ranges: list[tuple] = []
        self.launches: list[tuple] = []
        self.kernels: list[tuple] = []
        self.names: dict[str, int] = {}
        self.now = 1000

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names) + 1)

    def call(self, name: str, payload: bytes | str | None = None, *, kernel: str | None = None, kernels: int = 1):
        start = self.now
        for _ in range(kernels if kernel else 0):
            number = len(self.kernels) + 1
            self.launches.append((self.now + 1, self.now + 3, TID, number, self.name("cudaLaunchKernelExC_v11060")))
            place = (self.now + 10, self.now + 60, 0, 7, number, PID << 24, self.name(kernel), self.name(kernel))
            self.kernels.append(place)
            self.now += 100
        self.now += 100
        text, raw = (payload, None) if isinstance(payload, str) else (None, payload)
        self.ranges.append((start, self.now - 50, 59, None, TID, self.name(name), DOMAIN, None, text, raw))
        return self

    def read(self, path: Path) -> Timeline:
        with sqlite3.connect(path) as connection:
            tables = {
                "META_DATA_EXPORT": ("name, value", [("EXPORT_PRODUCT_VERSION", "2026.2.1.210")]),
                "StringIds": ("id, value", [(number, text) for text, number in self.names.items()]),
                "NVTX_EVENTS": (
                    "start, end, eventType, text, globalTid, textId, domainId, jsonTextId, jsonText, binaryData",
                    self.ranges,
                ),
                "CUPTI_ACTIVITY_KIND_RUNTIME": ("start, end, globalTid, correlationId, nameId", self.launches),
                "CUPTI_ACTIVITY_KIND_KERNEL": (
                    "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName",
                    self.kernels,
                ),
                "NVTX_PAYLOAD_SCHEMA_ENTRIES": (
                    "domainId, schemaId, idx, flags, type, name, description, arrayOrUnionDetail, offset",
                    [
                        (DOMAIN, schema, index, None, kind, name, None, None, at)
                        for schema, entries in SCHEMAS.items()
                        for index, (name, kind, at) in enumerate(entries)
                    ],
                ),
            }
            for table, (columns, rows) in tables.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
                if rows:
                    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        connection.close()
        return nsys.read(path)


@pytest.fixture
def at(tmp_path: Path) -> Path:
    return tmp_path / "run.sqlite"


def sizes_and_groups(timeline: Timeline) -> list[tuple[int, str, int]]:
    frame = timeline.collectives
    return list(zip(frame["bytes"].tolist(), frame.text("group_name"), frame["group_size"].tolist(), strict=True))


ALL_REDUCE, ALL_GATHER = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(A)", "ncclDevKernel_AllGather_RING_LL(A)"
SEND_RECV = "ncclDevKernel_SendRecv(A)"
GROUP = f"{COMM:#x}"


@pytest.mark.parametrize("payload", [reduced(100 * MIB), as_json(100 * MIB)], ids=["bytes", "JSON"])
def test_a_collective_has_the_bytes_and_the_communicator_of_the_call_that_launched_it(at, payload):
    export = Export().call("ncclCommInitRankConfig", init()).call("ncclAllReduce", payload, kernel=ALL_REDUCE)
    assert sizes_and_groups(export.read(at)) == [(100 * MIB, GROUP, 8)]


def test_a_blob_with_the_offset_of_its_payloads_end_is_read_too(at):
    payload = reduced(MIB)
    other = payload[:24] + struct.pack("<Q", len(payload)) + payload[32:]
    assert sizes_and_groups(Export().call("ncclAllReduce", other, kernel=ALL_REDUCE).read(at)) == [(MIB, GROUP, -1)]


def test_a_gather_has_the_bytes_of_all_its_parts(at):
    export = Export().call("ncclCommInitRank", init(4)).call("ncclAllGather", gathered(MIB), kernel=ALL_GATHER)
    assert sizes_and_groups(export.read(at)) == [(4 * MIB, GROUP, 4)]


def test_a_gather_among_an_unknown_number_of_ranks_has_unknown_bytes(at):
    assert sizes_and_groups(Export().call("ncclAllGather", gathered(MIB), kernel=ALL_GATHER).read(at)) == [
        (-1, GROUP, -1)
    ]


def test_sends_and_receives_of_a_group_are_one_kernel_with_the_larger_sum(at):
    export = Export().call("ncclGroupStart")
    for size in (MIB, 3 * MIB):
        export.call("ncclSend", peer(size)).call("ncclRecv", peer(MIB))
    export.call("ncclGroupEnd", kernel=SEND_RECV).call("ncclAllReduce", reduced(5), kernel=ALL_REDUCE)
    assert sizes_and_groups(export.read(at)) == [(4 * MIB, GROUP, -1), (5, GROUP, -1)]


def exchange(ranks: int, sent: tuple[int, ...], received: tuple[int, ...]) -> Export:
    """One kernel that sends to and receives from these ranks."""
    export = Export().call("ncclCommInitRankConfig", init(ranks)).call("ncclGroupStart")
    for rank in sent:
        export.call("ncclSend", peer(MIB, rank=rank))
    for rank in received:
        export.call("ncclRecv", peer(MIB, rank=rank))
    return export.call("ncclGroupEnd", kernel=SEND_RECV)


@pytest.mark.parametrize(
    ("ranks", "sent", "received", "kind"),
    [
        (8, range(8), range(8), "all_to_all"),
        (8, range(1, 8), range(1, 8), "all_to_all"),  # nothing for itself
        (3, range(3), range(3), "all_to_all"),
        (3, (0, 2), (0, 2), "send_recv"),  # both neighbours in a pipeline of three
        (8, range(8), (), "send_recv"),  # a scatter
        (4, (1, 1, 1, 1), (3, 3, 3, 3), "send_recv"),  # four tensors to the next stage
        (2, range(2), range(2), "send_recv"),
    ],
)
def test_what_goes_to_and_comes_from_all_ranks_is_an_all_to_all(at, ranks, sent, received, kind):
    frame = exchange(ranks, tuple(sent), tuple(received)).read(at).collectives
    assert list(frame.text("kind")) == [kind]
    assert frame["bytes"].tolist() == [max(len(sent), len(received)) * MIB]


def test_nested_groups_are_one(at):
    export = Export().call("ncclGroupStart").call("ncclGroupStart").call("ncclSend", peer(7)).call("ncclGroupEnd")
    export.call("ncclRecv", peer(6)).call("ncclGroupEnd", kernel=SEND_RECV)
    assert sizes_and_groups(export.read(at)) == [(7, GROUP, -1)]


def test_collectives_of_a_group_that_become_one_kernel_add_up(at):
    export = Export().call("ncclGroupStart").call("ncclAllReduce", reduced(10)).call("ncclAllReduce", reduced(20))
    assert sizes_and_groups(export.call("ncclGroupEnd", kernel=ALL_REDUCE).read(at)) == [(30, GROUP, -1)]


def test_several_kernels_of_a_group_have_unknown_bytes_unless_all_are_equal(at):
    unequal = Export().call("ncclGroupStart").call("ncclAllReduce", reduced(10)).call("ncclAllReduce", reduced(20))
    unequal.call("ncclGroupEnd", kernel=ALL_REDUCE, kernels=2)
    assert [row[0] for row in sizes_and_groups(unequal.read(at))] == [-1, -1]
    equal = Export().call("ncclGroupStart").call("ncclAllReduce", reduced(10)).call("ncclAllReduce", reduced(10))
    equal.call("ncclGroupEnd", kernel=ALL_REDUCE, kernels=2)
    assert [row[0] for row in sizes_and_groups(equal.read(at.with_name("equal.sqlite")))] == [10, 10]


def test_two_communicators_are_two_groups(at):
    export = Export().call("ncclCommInitRank", init(8)).call("ncclCommSplit", init(2, comm=9))
    export.call("ncclAllReduce", reduced(10), kernel=ALL_REDUCE)
    export.call("ncclAllReduce", reduced(20, comm=9), kernel=ALL_REDUCE)
    assert sizes_and_groups(export.read(at)) == [(10, GROUP, 8), (20, "0x9", 2)]


def test_a_group_that_only_some_rows_have_is_not_used(at):
    export = Export().call("ncclAllReduce", reduced(10), kernel=ALL_REDUCE).call("ncclAllReduce", kernel=ALL_REDUCE)
    assert sizes_and_groups(export.read(at)) == [(10, "", -1), (-1, "", -1)]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        b"",
        b"\x01" * 20,
        reduced(MIB)[:40],
        reduced(1 << 60),
        blob(99, "<QQ", COMM, MIB),
        reduced(MIB)[:24] + struct.pack("<Q", 1 << 40) + reduced(MIB)[32:],
        struct.pack("<Q", 8) + reduced(MIB)[8:],
        "{",
        "[1]",
        '{"Message size [bytes]": "many"}',
        '{"Message size [bytes]": 1' + "0" * 400 + "}",
        "[" * 100_000,
    ],
    ids=lambda payload: repr(payload)[:24],
)
def test_what_cannot_be_read_is_unknown_without_a_note(at, payload):
    timeline = Export().call("ncclAllReduce", payload, kernel=ALL_REDUCE).read(at)
    assert sizes_and_groups(timeline) == [(-1, "", -1)]
    assert not timeline.notes


@pytest.mark.parametrize("place", ["text", -8, 1 << 40])
def test_an_entry_that_lies_outside_of_the_payload_is_not_read(at, monkeypatch, place):
    entries = [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, place)]
    monkeypatch.setitem(SCHEMAS, REDUCE, entries)
    assert sizes_and_groups(Export().call("ncclAllReduce", reduced(MIB), kernel=ALL_REDUCE).read(at)) == [(-1, "", -1)]


def test_payloads_without_kernels_change_nothing(at):
    export = Export().call("ncclAllReduce", reduced(10)).call("mine", kernel="gemm")
    assert sizes_and_groups(export.read(at)) == []


def test_a_copy_without_names_keeps_payloads_whose_numbers_look_like_text(at, tmp_path):
    letters, text = int.from_bytes(b"letters!", "little"), blob(REDUCE, "<QQ8s", COMM, MIB, b"gpu-node")
    export = Export().call("ncclCommInitRank", init(4, letters)).call("a", text)
    export.call("ncclAllReduce", reduced(letters >> 24, letters), kernel=ALL_REDUCE)
    before = export.read(at)
    copy = scrubbed(at, tmp_path / "copy.sqlite", silent).written
    assert sizes_and_groups(nsys.read(copy)) == sizes_and_groups(before) == [(letters >> 24, f"{letters:#x}", 4)]
    with sqlite3.connect(copy) as database:
        assert database.execute("SELECT count(binaryData) FROM NVTX_EVENTS").fetchall() == [(2,)]
