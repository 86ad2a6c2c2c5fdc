"""Is the rank, the stage or the link named that makes the steps long, however the training is spread over its ranks?

A small part of what `python benchmarks/parallelism.py` runs.
"""

from __future__ import annotations

import parallelism
import pytest
from parallelism import Case


@pytest.mark.parametrize(
    "case",
    [
        Case("pipeline, 1F1B", "rank", 0.1, 8),
        Case("pipeline, 1F1B", "link", 0.1, 8),
        Case("pipeline, interleaved", "stage", 0.25, 8),
        Case("tensor and data parallel", "rank", 0.1, 8),
    ],
    ids=lambda case: case.label,
)
def test_the_culprit_is_named_and_costs_what_it_does(case: Case) -> None:
    result = parallelism.judge(case)
    assert result.is_named, result
    assert result.is_right, result


def test_a_healthy_pipeline_has_no_late_rank_and_no_slow_link() -> None:
    result = parallelism.judge(Case("pipeline, interleaved", "rank", 0.0, 8))
    assert not set(result.others) - {"pipeline-bubbles"}


def test_what_names_another_rank_is_a_mistake_and_what_saves_too_little_another() -> None:
    case = Case("sharded", "rank", 0.1, 8)
    wrong = parallelism.Result(case, 0.1, "rank 3 (clear)", 0.0, {"rank-skew": 0.1})
    little = parallelism.Result(case, 0.1, "right", 0.05, {"rank-skew": 0.05})
    healthy = parallelism.Result(Case("sharded", "rank", 0.0, 8), 0.0, "nothing", 0.0, {"rank-skew": 0.04})
    assert [text.partition(": ")[2] for text in parallelism.mistakes([wrong, little, healthy])] == [
        "rank 3 (clear) is named (rank-skew 10.0%)",
        "saves 5.0%",
        "rank-skew 4.0%",
    ]
    assert len(list(parallelism.short([wrong, little, healthy], 0.95))) == 2
