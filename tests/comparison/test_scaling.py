"""What does not scale is found by its cause and size, and what more GPUs would bring is held against those left out."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from comparison import scaled
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.comparison.records import StepSample
from perfdoctor.comparison.scaling.laws import error_at, karp_flatt, line, through_origin
from perfdoctor.comparison.scaling.recorded import of_document, stated
from perfdoctor.comparison.scaling.series import scaling
from perfdoctor.comparison.snapshot import of_document as snapshot_of_document
from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.report import json_report
from perfdoctor.report.scaling import html, markdown, words
from perfdoctor.views.series import throughput_chart
from perfdoctor.vocabulary.rulebook import load_rules

RANKS = (4, 1, 8, 2)
#: A standard error of few points is itself uncertain: so many of them contain the truth.
ERRORS = 3


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    made = {}

    def of(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = [getattr(scaled, kind)(ranks, folder / f"{ranks}gpu") for ranks in RANKS]
        return made[kind]

    return of


def test_planted_growth_is_found_within_the_error_of_the_fit(series):
    found = scaling(series("weak"))
    assert (found.kind, found.ranks, found.counted) == ("weak", (1, 2, 4, 8), "rank steps")
    first = found.growth[0]
    assert first.key == "exposed_communication"
    assert abs(first.per_doubling_ns - scaled.PER_DOUBLING_NS) <= ERRORS * first.error_ns
    assert first.error_ns < 0.02 * first.per_doubling_ns


def test_planted_serial_work_is_found_within_the_error_of_the_fit_and_named(series):
    found = scaling(series("strong"))
    assert (found.kind, found.counted, found.serial.law) == ("strong", "steps", "amdahl")
    assert abs(found.serial.share - scaled.SERIAL_SHARE) <= ERRORS * found.serial.error
    assert found.serial.causes[0].key == "compute:optimizer"
    assert found.serial.limit == pytest.approx(1 / scaled.SERIAL_SHARE, rel=0.1)
    assert [each.serial_share for each in found.rungs[1:]] == pytest.approx([scaled.SERIAL_SHARE] * 3, abs=0.02)


@pytest.mark.parametrize("kind", ["weak", "strong", "ring"])
def test_causes_sum_to_the_step(series, kind):
    found = scaling(series(kind))
    assert sum(each.per_doubling_ns for each in found.growth) == pytest.approx(found.whole.per_doubling_ns)
    for at, rung in enumerate(found.rungs):
        assert sum(each.times_ns[at] for each in found.growth) == pytest.approx(rung.step_ns)
    assert sum(each.share for each in found.serial.causes) == pytest.approx(found.serial.share)


def test_a_replay_predicts_the_largest_recording_from_the_next(series):
    found = scaling(series("ring"))
    replayed, fitted = found.checked
    assert (replayed.by, replayed.ranks, fitted.by) == ("replay", 8, "fit")
    assert abs(replayed.error) < 0.03
    assert replayed.measured_ns == found.rungs[-1].step_ns
    ahead = found.ahead[0]
    assert (ahead.ranks, ahead.known) == (16, (1, 2, 4, 8))
    assert (
        ahead.low_ns
        <= ahead.step_ns * (1 - abs(replayed.error))
        < ahead.step_ns * (1 + abs(replayed.error))
        <= ahead.high_ns
    )
    slower = scaling(series("ring"), network=20e9).ahead[0]
    assert slower.step_ns > ahead.step_ns


def test_where_ranks_share_the_work_the_replay_divides_the_batch_as_well(series):
    replayed = scaling(series("strong_ring")).checked[0]
    assert (replayed.by, replayed.ranks) == ("replay", 8)
    assert abs(replayed.error) < 0.1


def test_the_chart_says_what_the_number_of_ranks_alone_would_bring_to_the_end_of_what_is_predicted(series):
    found = scaling(series("ring"))
    found = replace(found, rungs=found.rungs[1:])
    chart = throughput_chart(found)
    by_name = {each.name: each for each in chart.series}
    first = found.rungs[0]
    assert (first.ranks, by_name["ideal"].x.tolist()) == (2, [2, 16])
    assert by_name["ideal"].y.tolist() == pytest.approx([first.throughput, 8 * first.throughput])
    assert by_name["measured"].y.tolist() == [each.throughput for each in found.rungs]
    assert chart.numbers["ideal"][0] == pytest.approx(4 * first.throughput)


@pytest.mark.parametrize(
    ("rungs", "said"),
    [(2, "the difference over the doublings between."), (3, "a least squares fit over log2 of the 3 numbers of GPUs;")],
)
def test_it_is_said_how_the_numbers_of_a_doubling_were_computed(series, rungs, said):
    found = scaling(series("weak"))
    assert said in words.fitted(replace(found, rungs=found.rungs[:rungs]))


def test_efficiency_is_throughput_over_what_the_number_of_ranks_would_bring(series):
    weak, strong = (scaling(series(kind)).rungs for kind in ("weak", "strong"))
    assert weak[3].efficiency == pytest.approx(weak[0].step_ns / weak[3].step_ns)
    assert strong[3].efficiency == pytest.approx(strong[0].step_ns / strong[3].step_ns / 8)
    assert all(each.efficiency_low <= each.efficiency <= each.efficiency_high for each in (*weak[1:], *strong[1:]))


def test_two_numbers_of_ranks_are_a_difference_without_an_error(series):
    found = scaling(series("weak")[:2])
    assert found.ranks == (1, 4)
    assert (found.whole.error_ns, found.serial.error) == (None, None)
    over_ns = found.rungs[1].step_ns - found.rungs[0].step_ns
    assert found.whole.per_doubling_ns == pytest.approx(over_ns / 2)
    assert "no communication" in found.unpredicted
    assert found.ahead == ()


def test_several_runs_among_as_many_ranks_are_one_rung(series):
    found = scaling([*series("weak"), series("weak")[0]])
    assert [len(each.names) for each in found.rungs] == [1, 1, 2, 1]


def test_where_neither_batch_nor_work_is_known_nothing_is_claimed(series):
    unknown = [replace(each, work={}) for each in series("weak")]
    found = scaling(unknown)
    assert (found.kind, found.serial, found.ahead) == ("", None, ())
    assert math.isnan(found.rungs[-1].efficiency)
    assert "--weak" in found.notes[-1]
    assert "if each has as much work as before" in words.verdict(found)
    assert {words.efficiency(each) for each in found.rungs} == {"–"}
    assert scaling(unknown, "weak").rungs[-1].efficiency == scaling(series("weak")).rungs[-1].efficiency


def test_a_diagnosis_says_the_same_of_growth_but_is_not_replayed(series):
    rules = load_rules()
    found = scaling(series("weak"))
    stored = []
    for each in series("weak"):
        document = stored_diagnosis(each)
        stored.append(of_document(snapshot_of_document(each.snapshot.name, document, rules), document))
    again = scaling(stored, "weak")
    assert again.ranks == found.ranks
    assert again.growth[0].per_doubling_ns == pytest.approx(found.growth[0].per_doubling_ns, rel=1e-3)
    assert "diagnosis.json" in again.unpredicted
    assert [each.by for each in again.ahead] == ["fit"]


def test_diagnoses_without_names_of_work_are_a_series_as_their_recordings_are(series):
    """Of a run without a GPU a diagnosis lists no kernels."""
    unnamed = [
        replace(each, snapshot=replace(each.snapshot, work=tuple(
            replace(work, group="", kernel="", op="") for work in each.snapshot.work
        )))
        for each in series("weak")
    ]  # fmt: skip
    found = scaling(unnamed, "weak")
    assert found.ranks == scaling(series("weak")).ranks
    assert not any("same names" in note for note in found.notes)


def stored_diagnosis(recorded):
    diagnosis = examine(recorded.run, list(load_rules().values())).diagnosis
    return msgspec.json.decode(json_report.render(diagnosis))


def named(one, name, value):
    return replace(one, snapshot=replace(one.snapshot, settings={**one.snapshot.settings, name: value}))


def other_work(one):
    work = tuple(
        replace(each, op=f"my::{at}", group="", kernel=f"of_another_model_{'x' * at}")
        for at, each in enumerate(one.snapshot.work)
    )
    return replace(one, snapshot=replace(one.snapshot, work=work))


def longer(one, factor, noise=0.0):
    """The same with other steps: so many times as long, and as noisy."""
    steps = one.snapshot.step_ns * factor * np.exp(np.random.default_rng(1).normal(0, noise, 8))
    return replace(one, snapshot=replace(one.snapshot, steps=StepSample(steps)))


def test_an_interval_that_holds_good_and_bad_is_too_noisy_to_say(series):
    four, one, eight, two = series("ring")
    found = scaling([longer(four, 1), longer(one, 1), longer(eight, 1, 0.5), longer(two, 1)])
    assert words.verdict(found).startswith("Too noisy to say: 8 GPUs bring")
    assert found.rungs[-1].efficiency_low < 0.7
    assert found.rungs[-1].efficiency_high > 0.9


def test_a_law_that_was_far_off_predicts_nothing(series):
    four, one, eight, two = series("weak")
    found = scaling([replace(longer(four, 0.1), run=None), one, replace(eight, run=None), longer(two, 2)])
    assert found.ahead == ()
    assert "diagnosis.json" in found.unpredicted


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: replace(one, ranks=0), "4gpu"),
        (lambda one: named(one, "GPU", "another GPU"), "the one ran on"),
        (other_work, "no series: less than half"),
        (lambda one: replace(one, snapshot=replace(one.snapshot, basis="")), "without steps"),
    ],
)
def test_what_is_no_series_is_refused_in_one_line(series, change, said):
    one, *others = series("weak")
    with pytest.raises(PerfdoctorError, match=said):
        scaling([*others, change(one)])


def test_one_number_of_ranks_is_no_series(series):
    with pytest.raises(PerfdoctorError, match="all of these were recorded among 4 ranks"):
        scaling([series("weak")[0]] * 2)


def test_ranks_that_are_stated_count_unless_the_recording_knows_better(series):
    assert stated(replace(series("weak")[1], ranks=0), 2).ranks == 2
    with pytest.raises(UsageError, match="among 4 ranks, not 3"):
        stated(series("weak")[0], 3)


def test_names_of_files_are_no_markup(series):
    hostile = "</script><img src=x>[/red]|`\x1b[31m"
    one, *others = series("weak")
    found = scaling([*others, replace(one, snapshot=replace(one.snapshot, name=hostile))])
    assert "<img" not in html.render(found)
    assert "<img" not in markdown.render(found)


# --- formulas --------------------------------------------------------------------------------------------------------


def residual(x, y):
    """The variance that is left, by numpy."""
    return np.polyfit(x, y, 1, full=True)[1].sum() / (len(x) - 2)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(-1e6, 1e6)), min_size=4, max_size=12))
def test_lines_and_their_errors_are_those_of_numpy(points):
    x, y = np.array(points).T
    if np.ptp(x) < 0.1:
        return
    (slope, intercept), covariance = np.polyfit(x, y, 1, cov=True)
    found = line(x, y)
    size = np.abs(y).max() + 1
    assert found.slope == pytest.approx(slope, abs=1e-5 * size)
    assert found.intercept == pytest.approx(intercept, abs=1e-4 * size)
    assert found.slope_error == pytest.approx(math.sqrt(covariance[0, 0]), rel=1e-3, abs=1e-4 * size)
    expected = np.sqrt(covariance[0, 0] * 49 + 14 * covariance[0, 1] + covariance[1, 1] + residual(x, y))
    assert error_at(x, y, 7) == pytest.approx(expected, rel=1e-3, abs=1e-3 * size)
    assert found.intercept_error == pytest.approx(math.sqrt(covariance[1, 1]), rel=1e-3, abs=1e-3 * size)


def test_a_line_through_the_origin():
    assert through_origin([1, 3], [2, 6]).slope == pytest.approx(2)
    assert through_origin([1, 3], [2, 6]).slope_error == pytest.approx(0)
    assert through_origin([2], [1]).slope_error is None


def test_karp_and_flatt_is_the_share_that_amdahl_asks_for():
    """Amdahl: a tenth serial gives 1 / (0.1 + 0.9 / 8) = 4.7 on eight."""
    assert karp_flatt(1 / (0.1 + 0.9 / 8), 8) == pytest.approx(0.1)
    assert karp_flatt(1.0, 1) is None


def test_a_single_step_has_an_efficiency_without_an_interval(series):
    one, *others = series("weak")
    short = replace(one.snapshot, steps=StepSample(np.array([one.snapshot.step_ns])))
    found = scaling([*others, replace(one, snapshot=short)])
    assert found.rungs[2].efficiency_low is None
    assert "(" not in words.efficiency(found.rungs[2])
