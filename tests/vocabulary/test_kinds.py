"""Do all who distinguish kinds know the same kinds?"""

from __future__ import annotations

from folders import ROOT

from perfdoctor.metrics.communication import matching
from perfdoctor.readers.nccl import flight_recorder, nccl_tests
from perfdoctor.readers.nsys import frames as nsys
from perfdoctor.readers.torch_memory import profiler_timeline, stacks
from perfdoctor.replay.what_if import scaling
from perfdoctor.vocabulary import kinds
from perfdoctor.vocabulary.names import nccl as nccl_names
from perfdoctor.vocabulary.parts import PARTS


def test_readers_tell_copies_apart_by_these_directions_and_kinds_of_memory():
    assert set(nsys._DIRECTIONS.values()) <= set(kinds.COPY_DIRECTIONS)
    assert set(nsys._HOST_MEMORY.values()) <= set(kinds.HOST_MEMORY)


def test_names_and_readers_tell_these_collectives_apart():
    assert {*nccl_names._KINDS, "other"} == set(kinds.COLLECTIVE_KINDS)
    assert set(nccl_tests._KINDS.values()) <= set(kinds.COLLECTIVE_KINDS)
    assert {kind for _, kind in flight_recorder._KINDS} <= set(kinds.COLLECTIVE_KINDS)


def test_what_is_done_with_collectives_is_about_some_of_these():
    for some in (kinds.ON_RINGS, matching._TOGETHER, scaling.MODELLED, scaling._TWICE):
        assert set(some) <= set(kinds.COLLECTIVE_KINDS)


def test_every_purpose_of_memory_has_words_and_the_colour_of_a_part():
    assert set(kinds.MEMORY_KINDS) == {*stacks.CATEGORIES, *profiler_timeline.CATEGORIES}
    assert {kind.colour for kind in kinds.MEMORY_KINDS.values()} <= set(PARTS)


def test_the_page_of_the_json_names_every_family_and_path():
    page = (ROOT / "docs" / "json.md").read_text("utf-8")
    assert [name for name in (*kinds.KERNEL_FAMILIES, *kinds.MATH_PATHS) if f"`{name}`" not in page] == []
    assert set(kinds.MATMUL_FAMILIES) <= set(kinds.KERNEL_FAMILIES)
