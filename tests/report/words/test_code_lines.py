"""What is said of a sampled line: is it as sure as it sounds?"""

from __future__ import annotations

import pytest

from perfdoctor.records.findings import CodeLine
from perfdoctor.report.words import code_lines


@pytest.mark.parametrize(
    ("samples", "share", "is_worker", "words"),
    [
        (41, 0.57, False, "41 samples, 57 % of those in that time"),
        (9, 0.9, True, "9 samples, 90 % of those of the loader's workers in that time"),
        (1, 1.0, False, "1 of 1 sample in that time"),
        (2, 2 / 3, False, "2 of 3 samples in that time"),
        (5, 5 / 9, True, "5 of 9 samples of the loader's workers in that time"),
    ],
)
def test_few_samples_are_counted_and_not_a_share(samples, share, is_worker, words):
    line = CodeLine("train.py", 12, "step", samples, share, is_worker=is_worker)
    assert code_lines.weight(line) == words
