"""Does a thinned line keep every peak, with nothing outside of what its points span?"""

from __future__ import annotations

import numpy as np
import pytest

from perfdoctor.views.lines import MOST_LINES, lines, thinned
from perfdoctor.views.tables import in_words
from perfdoctor.vocabulary import places
from perfdoctor.vocabulary.parts import PARTS


@pytest.mark.parametrize("size", [1, 2, 399, 400, 401, 5_000, 50_000])
def test_every_run_keeps_its_lowest_and_its_highest_number(size):
    rng = np.random.default_rng(size)
    x, y = np.arange(size) * 3.0, rng.normal(0, 1, size)
    kept_x, kept_y = thinned(x, y, 400)
    assert kept_x.size <= 400
    assert (np.diff(kept_x) > 0).all()
    assert np.array_equal(kept_y, y[(kept_x / 3).astype(int)])
    assert (kept_x[0], kept_x[-1]) == (0, x[-1])
    # Plain Python: between two neighbours that were kept nothing is outside of what their runs' neighbours span.
    run = -(-size // 199) if size > 400 else 1
    kept = dict(zip((kept_x / 3).astype(int).tolist(), kept_y.tolist(), strict=True))
    for row in range(0, size, max(size // 500, 1)):
        near = [value for at, value in kept.items() if abs(at - row) <= 2 * run]
        assert min(near) <= y[row] <= max(near)
    assert (min(kept.values()), max(kept.values())) == (y.min(), y.max())


def test_what_is_not_known_stays_unknown():
    y = np.ones(10_000)
    y[2_000:4_000] = np.nan
    x, kept = thinned(np.arange(10_000), y, 200)
    assert np.isnan(kept[(x > 2_100) & (x < 3_900)]).all()
    assert not np.isnan(kept[(x < 1_900) | (x > 4_100)]).any()


def test_few_lines_are_shown_each():
    named = [(f"GPU {n}", np.arange(3_000), np.full(3_000, n)) for n in range(MOST_LINES)]
    drawn = lines(named)
    assert [each.name for each in drawn] == [name for name, _, _ in named]
    assert sum(each.x.size for each in drawn) <= 2_500


def test_of_many_lines_the_span_and_the_extreme_ones_are_shown():
    rng = np.random.default_rng(1)
    every = rng.uniform(0, 1, (64, 200)) + np.arange(64)[:, None] * 0.01
    every[17] += 5
    drawn = {each.name: each for each in lines([(f"GPU {n}", np.arange(200), row) for n, row in enumerate(every)])}
    assert list(drawn)[:3] == ["highest of all 64", "median of all 64", "lowest of all 64"]
    assert set(drawn) >= {"GPU 17", "GPU 0"}
    assert len(drawn) <= 7
    assert np.allclose(drawn["highest of all 64"].y, every.max(axis=0))
    assert np.allclose(drawn["lowest of all 64"].y, every.min(axis=0))
    assert np.allclose(drawn["median of all 64"].y, np.median(every, axis=0))


def test_many_lines_of_which_nothing_is_known_are_none():
    assert lines([(f"GPU {n}", np.arange(3), np.full(3, np.nan)) for n in range(20)]) == []


def test_parts_are_called_as_in_the_whole_report():
    assert [in_words(name) for name in PARTS] == [part.label for part in PARTS.values()]
    assert in_words("what_is_new") == "what is new"


def test_a_rank_names_its_device_where_it_has_several():
    assert places.place_names([(0, 0), (1, 1)]) == ["rank 0", "rank 1"]
    assert places.place_names([(0, 0), (0, 1)]) == ["rank 0, device 0", "rank 0, device 1"]
    assert places.place_names([(0, -1), (0, -1)]) == ["rank 0", "rank 0"]
