"""Files of steps are read on, whatever a process writes into them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched_steps import lines, noise, rank_steps

from perfdoctor.watching.rows import RankSteps, ranks_of


def test_a_file_is_read_on_in_any_pieces(tmp_path: Path) -> None:
    content = "".join(f"\n{line}" for line in lines(noise(500, 5), rank=3)).encode()
    file = tmp_path / "a.jsonl"
    read = RankSteps(file)
    assert not read.read()
    with file.open("ab") as stream:
        for at in range(0, len(content), 97):
            stream.write(content[at : at + 97])
            stream.flush()
            read.read()
    assert (read.rank, read.steps, len(read.stretches)) == (3, 500, 20)
    assert not read.read()


@pytest.mark.parametrize("bad", [
    "", "{", "null", '{"first": -1, "steps": 3, "end": 1}', '{"first": 26, "steps": 0, "end": 1}', '{"at": "x"}',
    '{"first": 1e400, "steps": 2, "end": 3}', '{"format": 9, "pid": 1, "begun": 1}', "\x00" * 50, '{"first"' * 1000,
])  # fmt: skip
def test_a_line_that_no_agent_writes_is_left_out(tmp_path: Path, bad: str) -> None:
    made = lines(noise(100, 5))
    rank = rank_steps(tmp_path, [*made[:3], bad, *made[3:]])
    assert (rank.steps, len(rank.stretches)) == (100, 4)


@given(st.binary(max_size=300))
def test_no_content_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "a.jsonl"
    file.write_bytes(content)
    RankSteps(file).read()


def test_of_a_rank_the_process_counts_that_runs_and_made_a_step_last(tmp_path: Path) -> None:
    later = [line.replace('"begun": 17', '"begun": 18') for line in lines(noise(50, 5), pid=5)]
    first, child = rank_steps(tmp_path, lines(noise(100, 5)), "first"), rank_steps(tmp_path, later, "child")
    assert ranks_of([child, first])[0] is first, "whichever began last"
    ended = rank_steps(tmp_path, [*lines(noise(100, 5)), '{"ended": 5, "why": ""}'], "ended")
    assert ranks_of([child, ended])[0] is child, "the rank was started again"
    silent = RankSteps(tmp_path / "none.jsonl")
    assert list(ranks_of([silent, child])) == [0]
    first.is_gone()
    assert (ranks_of([first, child])[0], first.ended_ns) == (child, first.stretches[-1].end)


def test_another_program_in_the_same_process_begins_anew(tmp_path: Path) -> None:
    rank = rank_steps(tmp_path, [*lines(noise(100, 5)), *lines(noise(50, 5), rank=1)])
    assert (rank.rank, rank.steps) == (1, 50)
