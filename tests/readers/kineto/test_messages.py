"""To whom does a kernel send, and what, where torch describes its messages beside it?"""

from __future__ import annotations

import json

import pytest
from kineto_traces import read_text

from perfdoctor.model.timeline import UNKNOWN

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def event(name: str, category: str, ts: int, dur: int, pid: int, tid: int, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: int, **args):
    return event(name, "kernel", ts, 5, 0, 20, device=0, stream=20, grid=[1, 1, 1], block=[64, 1, 1], **args)


def described(name: str, ts: int, peer: int, elements: int = 1024, thread: int = 6):
    """The op around a send or receive, as torch 2.5 and later describe it."""
    return event(
        "record_param_comms", "cpu_op", ts, 2, 5, thread,
        **{"Collective name": name, "Dst Rank" if name == "send" else "Src Rank": peer, "In msg nelems": elements,
           "Out msg nelems": elements, "dtype": "BFloat16", "Group size": 4, "Process Group Name": "9",
           "Process Group Description": "PIPELINE_MODEL_PARALLEL_GROUP", "Process Group Ranks": "[0, 2, 4, 6]"},
    )  # fmt: skip


def launched(ts: int, correlation: int, thread: int = 6):
    return event("cudaLaunchKernelExC", "cuda_runtime", ts, 3, 5, thread, correlation=correlation)


def read_messages(*events):
    frame = read_text(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()).collectives
    names = ("peers", "kind", "bytes", "sent_bytes", "group_name", "group_size", "data_type")
    return list(zip(*(list(frame.columns[name]) for name in names), strict=True))


GROUP = ("9 PIPELINE_MODEL_PARALLEL_GROUP [0, 2, 4, 6]", 4, "BFloat16")


def test_the_kernel_of_a_group_of_messages_is_described_by_the_ops_before_it():
    found = read_messages(
        described("send", 10, 4), described("recv", 14, 0, 512), event("nccl:coalesced", "user_annotation", 20, 9, 5, 6),
        launched(22, 1), kernel(SEND_RECV, ts=40, correlation=1),
        described("recv", 50, 4), launched(60, 2), kernel(SEND_RECV, ts=70, correlation=2),
    )  # fmt: skip
    assert found == [
        (">4 <0", "send_recv", 2048, 2048, *GROUP),
        ("<4", "send_recv", 2048, 0, *GROUP),
    ]


def test_what_another_thread_sends_is_not_in_it():
    found = read_messages(described("send", 10, 4, thread=7), launched(22, 1), kernel(SEND_RECV, ts=40, correlation=1))
    assert found == [("", "send_recv", UNKNOWN, UNKNOWN, "", UNKNOWN, "")]


def test_a_kernel_that_says_its_peer_keeps_it():
    own = {"Collective name": "send", "Dst Rank": 2, "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float"}
    found = read_messages(described("send", 20, 4), launched(22, 1), kernel(SEND_RECV, ts=40, correlation=1, **own))
    assert found == [(">2", "send_recv", 32, 32, "", UNKNOWN, "Float")]


@pytest.mark.parametrize("odd", [None, -1, "all", 1.5, [3]])
def test_a_peer_that_is_no_rank_is_unknown(odd):
    own = {"Collective name": "send", "Dst Rank": odd}
    (found,) = read_messages(launched(22, 1), kernel(SEND_RECV, ts=40, correlation=1, **own))
    assert found[0] == ""


def test_messages_of_a_collective_are_none():
    """An op of messages in front of an all-reduce belongs to a kernel that was not recorded."""
    found = read_messages(
        described("send", 10, 4), launched(22, 1), kernel("ncclDevKernel_AllReduce_Sum_f32", ts=40, correlation=1)
    )
    assert found == [("", "all_reduce", UNKNOWN, UNKNOWN, "", UNKNOWN, "")]
