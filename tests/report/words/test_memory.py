"""Does each report describe the memory of a device?"""

from __future__ import annotations

import io
import json

import pytest
from msgspec.structs import replace
from report.samples import INPUT_BOUND, NOTHING, POISON
from rich.console import Console

from perfdoctor.records.diagnosis import SourceInfo
from perfdoctor.records.memory import Holder, MemoryUse
from perfdoctor.report import html, json_report, markdown, terminal
from perfdoctor.report.words import memory, skipped_rules, wording

GIB, MIB = 1 << 30, 1 << 20


def use(rank: int = 0, **more) -> MemoryUse:
    fields = {
        "rank": rank, "device": 0, "source": "snapshot", "events": 1200, "reserved_bytes": 12 * GIB,
        "allocated_bytes": 4 * GIB, "active_bytes": 4 * GIB, "requested_bytes": 4 * GIB - 7, "peak_bytes": 10 * GIB,
        "peak_reserved_bytes": 12 * GIB, "most_reserved_bytes": 12 * GIB, "free_bytes": 2 * GIB, "free_pieces": 3,
        "largest_free_bytes": GIB,
        "by_category": {"activations": 8 * GIB, "before_recording": 2 * GIB},
        "holders": (
            Holder("work/model.py:4 forward", "work/model.py:4 forward < work/train.py:9 main < a.py:1 b", "activations", 8 * GIB, 64),
            Holder("", "", "before_recording", 2 * GIB, 12),
        ),
    }  # fmt: skip
    return MemoryUse(**{**fields, **more})


def in_terminal(diagnosis):
    console = Console(file=io.StringIO(), width=100)
    terminal.render(diagnosis, console)
    return console.file.getvalue()


WITH = replace(INPUT_BOUND, memory=(use(),))
TEXTS = pytest.mark.parametrize(
    "render", [in_terminal, markdown.render, html.render], ids=["terminal", "markdown", "html"]
)


def plain(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").replace("&lt;", "<").replace("\\", "").split())


def test_what_was_reserved_at_the_start_is_said_where_it_was_more():
    assert "at the start" not in memory.now(use(first_reserved_bytes=12 * GIB))
    text = memory.now(use(first_reserved_bytes=48 * GIB)).replace("\u00a0", " ")
    assert text.startswith("48.0 GiB reserved at the start of the snapshot. At the end: ")


@TEXTS
def test_the_peak_its_purposes_and_its_holders_are_shown(render):
    text = plain(render(WITH))
    peak = "rank 0: peak 10.0 GiB in use, 12.0 GiB reserved; 2.00 GiB free in 3 blocks, the largest 1.00 GiB."
    assert peak in text
    assert "At the end: 4.00 GiB allocated, 12.0 GiB reserved; 1,200 allocator events recorded." in text
    assert "allocated before the recording" in text
    assert "80 %" in text
    assert "work/model.py:4 forward < work/train.py:9 main" in text
    assert "a.py:1 b" not in text.split("application/json")[0]


@TEXTS
def test_without_a_record_of_memory_there_is_no_section(render):
    assert "in use, " not in render(INPUT_BOUND)


@TEXTS
def test_names_from_a_stack_have_no_effect(render):
    line = f"{POISON}.py:1 {POISON}"
    text = render(
        replace(INPUT_BOUND, memory=(use(holders=(Holder(line, line, POISON, GIB, 1),), by_category={POISON: GIB}),))
    )
    assert "\x1b[31m" not in text
    assert "\x1b]0" not in text
    if render is not in_terminal:  # where tags mean nothing
        assert text.count("<img") == 0
    if render is html.render:
        assert text.lower().count("</script>") == 2  # the data's and our own


def test_totals_alone_give_no_free_blocks_and_no_holders():
    totals = use(source="profiler", free_bytes=-1, free_pieces=-1, largest_free_bytes=-1, by_category={}, holders=())
    assert memory.peak(totals) == "rank 0: peak 10.0 GiB in use, 12.0 GiB reserved."
    assert (memory.categories(totals), memory.holders(totals)) == ([], [])


def test_of_many_devices_the_fullest_are_shown():
    many = replace(INPUT_BOUND, memory=tuple(use(rank, peak_bytes=(rank + 1) * GIB) for rank in range(6)))
    assert [each.rank for each in memory.shown(many)] == [5, 4, 3, 2]
    assert memory.heading(many) == "Memory, the 4 fullest of 6 devices"


def test_json_has_every_number():
    (written,) = json.loads(json_report.render(WITH))["memory"]
    assert written["peak_bytes"] == 10 * GIB
    assert written["by_category"] == {"activations": 8 * GIB, "before_recording": 2 * GIB}
    assert written["holders"][0] == {
        "line": "work/model.py:4 forward", "stack": "work/model.py:4 forward < work/train.py:9 main < a.py:1 b",
        "category": "activations", "bytes": 8 * GIB, "count": 64,
    }  # fmt: skip


def test_of_memory_alone_the_verdict_is_about_memory():
    alone = replace(NOTHING, memory=(use(),), sources=(SourceInfo("memory", "rank0.pickle", "", (0,)),))
    assert wording.verdict(alone) == "Memory peaks at 10.0 GiB in use, 12.0 GiB reserved. No timeline was recorded."
    assert wording.recorded(alone)[:3] == ("1 GPU", "1 rank", "memory only")
    ((missing, rules, hint),) = skipped_rules.not_checked(alone)
    assert missing == "a timeline"
    assert len(rules) == sum(outcome.status == "skipped" for outcome in alone.outcomes)
    assert "perfdoctor run" in hint
