"""Trials are made in turn until they are decided; what helps is kept, and nothing else."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from treatments.sessions import LOSSES, FakeRuns, arm, session, verdicts

from perfdoctor.recording.treated_run import TrialReport
from perfdoctor.treatments import catalogue, choice, evidence
from perfdoctor.treatments.session import Failed, Session


def test_what_makes_steps_shorter_is_kept_and_what_makes_them_longer_is_not():
    made, _ = session({"good": 0.6, "bad": 1.5, "idle": 1.0})
    assert verdicts(made) == {"good": "keep", "bad": "slower", "idle": "no effect"}
    row = next(row for row in made.result().rows if row.fix == "good")
    assert row.measured.low < 0.4 < row.measured.high
    assert made.best().fixes == ("good",)


def test_untreated_runs_are_made_in_each_round_and_not_all_at_first():
    _, runs = session({"good": 0.6, "bad": 1.5})
    assert runs.made[0] == "untreated"
    rounds = [runs.made[1 + 3 * n : 4 + 3 * n] for n in range(3)]
    assert all(sorted(each) == ["bad", "good", "untreated"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_two_that_help_are_tried_together():
    made, runs = session({"one": 0.7, "other": 0.8})
    assert made.best().fixes == ("one", "other")
    assert "one+other" in runs.made
    assert made.best().measured.low < 1 - 0.7 * 0.8 < made.best().measured.high


def test_of_a_group_the_best_is_kept_alone():
    arms = [arm("one", group="threads"), arm("other", group="threads")]
    made, runs = session({"one": 0.7, "other": 0.8}, arms)
    assert made.best().fixes == ("one",)
    assert "one+other" not in runs.made


@pytest.mark.parametrize("why", ["exit code 1: an error", "out of memory: 3 GB", "hangs: no step for 30 s"])
def test_a_treatment_that_fails_is_a_line_with_its_reason(why):
    made, runs = session({"broken": why, "good": 0.6})
    assert verdicts(made) == {"broken": "failed", "good": "keep"}
    assert next(row.why for row in made.result().rows if row.fix == "broken") == why
    assert runs.made.count("broken") == (1 if "hangs" in why else 2)


def test_a_treatment_that_touches_nothing_is_run_once():
    made, runs = session({"absent": None, "good": 0.6}, [arm("absent"), arm("good")])
    assert runs.made.count("absent") == 1
    assert verdicts(made)["absent"] == "nothing to change"


def test_what_the_first_run_shows_to_be_absent_is_not_run_at_all():
    arms = [arm("absent", by_arguments=True), arm("good", by_arguments=True)]
    made, runs = session({"absent": None, "good": 0.6}, arms)
    assert verdicts(made) == {"absent": "nothing to change", "good": "keep"}
    assert "absent" not in runs.made


@pytest.mark.parametrize(("ranks", "verdict"), [(1, None), (2, "keep")])
def test_the_first_run_shows_whether_there_are_ranks_to_treat(ranks, verdict):
    class Ranks(FakeRuns):
        def __call__(self, arms, **facts):
            return replace(super().__call__(arms, **facts), ranks=ranks)

    made = Session(
        Ranks({"buckets": 0.6, "good": 0.6}), [arm("buckets", needs=("ranks",)), arm("good")], budget_s=3600, cores=2
    )
    made.go()
    assert (verdicts(made).get("buckets"), verdicts(made)["good"]) == (verdict, "keep")
    assert made.left_out == ({} if verdict else {"buckets": "the program has one rank"})


def test_the_first_run_shows_by_how_many_ranks_the_cores_are_shared():
    class Ranks(FakeRuns):
        def __call__(self, arms, **facts):
            return replace(super().__call__(arms, **facts), ranks=4, here=4)

    known = catalogue.shipped()
    chosen, _ = choice.arms(known, (), choice.Machine(cores=8, ranks=0), fixes=["torch_threads", "loader_workers"])
    assert {each.values["threads"] for each in chosen} == {8}
    made = Session(Ranks({}), chosen, budget_s=100, cores=8)
    made.go()
    assert {arm.values["threads"] for case in made.cases for arm in case.arms} == {2}
    assert {arm.values["workers"] for case in made.cases for arm in case.arms} == {2}
    assert all("set_num_threads(2)" in row.patch for row in made.result().rows if row.fix == "torch_threads")


def test_other_losses_are_other_numbers_and_roundings_are_not():
    wrong = tuple(each * 0.9 for each in LOSSES)
    rounded = tuple(each * (1 + 1e-7) for each in LOSSES)
    moved = tuple(each * (1 + 1e-6 * n) for n, each in enumerate(LOSSES))
    made, runs = session({"wrong": 0.6, "right": 0.6}, losses={"wrong": wrong, "right": rounded, "control": moved})
    assert verdicts(made) == {"wrong": "changes the numbers", "right": "keep"}
    assert runs.made.count("control") == 1
    assert made.best().fixes == ("right",)


def test_another_precision_is_kept_only_where_that_is_accepted():
    arms = [arm("bf16", changes_numerics=True)]
    assert verdicts(session({"bf16": 0.5}, arms)[0]) == {"bf16": "changes the numbers"}
    assert verdicts(session({"bf16": 0.5}, arms, accepts_numerics=True)[0]) == {"bf16": "keep"}


def test_a_treatment_whose_losses_are_no_numbers_is_not_kept_whatever_is_accepted():
    arms = [arm("fp16", changes_numerics=True), arm("batch", changes_numerics=True, other_training=True)]
    lost = (*LOSSES[:3], *[float("nan")] * 27)
    made, _ = session({"fp16": 0.5, "batch": 0.6}, arms, losses={"fp16": lost, "batch": lost}, accepts_numerics=True)
    rows = made.result().rows
    assert {(row.verdict, row.why) for row in rows} == {
        ("changes the numbers", "losses are not numbers from loss 4 on")
    }
    assert made.best() is None


def test_a_batch_of_twice_the_items_is_measured_by_the_item():
    made, _ = session({"batch": 1.2}, [arm("batch", items=2, other_training=True, changes_numerics=True)])
    row = made.result().rows[0]
    assert row.measured.low < 0.4 < row.measured.high
    assert row.loss.verdict == "another training"


def test_a_spent_budget_leaves_what_is_open_undecided():
    made, runs = session({"small": 0.97}, budget_s=100)
    assert verdicts(made) == {"small": "not decided"}
    assert runs.clock_s <= 130


def test_what_the_budget_has_no_room_for_is_said():
    made, _ = session({f"fix{n}": 1.0 for n in range(9)}, budget_s=200)
    assert len(made.result().rows) + len(made.result().left_out) == 9
    assert made.result().left_out


def test_what_had_no_room_at_first_is_tried_where_others_end_early():
    made, _ = session({**{f"absent{n}": None for n in range(20)}, "good": 0.5}, budget_s=600)
    assert verdicts(made)["good"] == "keep"
    assert not made.left_out


def test_the_error_level_counts_what_waits():
    made, _ = session({f"fix{n}": 1.0 for n in range(30)}, budget_s=300)
    assert len(made.left_out) > 10
    assert made.alpha == evidence.level(30)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("budget_s", [10, 30, 45, 60, 90, 120, 150, 180, 240, 300])
def test_no_run_begins_behind_the_budget_but_a_first_pair(budget_s, at_once):
    rounded = tuple(each * (1 + 1e-7) for each in LOSSES)
    factors = {"one": 0.6, "other": 0.7, "third": 1.3, "fourth": 0.9}
    _, runs = session(factors, losses={"one": rounded}, budget_s=budget_s, at_once=at_once)
    at_least = 30 if at_once == 1 else 50  # the first run and a first pair, or a race of it, whose runs end together
    assert runs.clock_s <= max(budget_s + 10 * at_once, at_least)


def test_a_run_that_the_budget_ends_has_not_failed():
    class Hanging(FakeRuns):
        def __call__(self, arms, *, limit_s, **facts):
            if not arms:
                return super().__call__(arms, limit_s=limit_s, **facts)
            self.clock_s += limit_s
            return TrialReport(why="hangs: no step was reported", is_cut=True, wall_s=limit_s)

    runs = Hanging({})
    made = Session(runs, [arm("slow"), arm("other")], budget_s=50, cores=2, clock=lambda: runs.clock_s)
    made.go()
    assert {row.verdict for row in made.result().rows} == {"not decided"}
    assert {row.why.partition(";")[0] for row in made.result().rows} == {"the budget was spent after 0 pairs"}
    assert runs.clock_s <= 50 + 15


@pytest.mark.parametrize("names", [["good"], ["good", "idle"]])
@pytest.mark.parametrize(("noise", "commands"), [(0.02, 1), (0.08, 4)])  # of one or two pairs the spread is not known
def test_the_budget_that_an_undecided_treatment_asks_for_decides_it(noise, commands, names):
    decided = 0
    for seed in range(20):
        budget_s = 40
        for _ in range(commands + 1):
            factors = {"good": 0.6, "idle": 1.0}
            made, _ = session({name: factors[name] for name in names}, budget_s=budget_s, noise=noise, seed=seed)
            row = next(row for row in made.result().rows if row.fix == "good")
            if row.verdict == "keep":
                break
            found = re.fullmatch(
                r"the budget was spent after \d pairs?; (about|at least) (\d+) are needed: --budget (\d+)s", row.why
            )
            assert (row.verdict, found[1]) == ("not decided", "about" if row.pairs > 1 else "at least")
            assert int(found[2]) > row.pairs
            assert int(found[3]) > budget_s
            budget_s = int(found[3])
        decided += row.verdict == "keep"
        assert budget_s > 40
    assert decided >= 19


def test_pairs_that_differ_too_much_are_not_said_to_need_more_budget():
    made, _ = session({"wild": 0.9}, noise=0.6, budget_s=120)
    row = made.result().rows[0]
    assert (row.verdict, "--budget" in row.why) == ("not decided", False)
    assert "differ by more than the fix changes" in row.why


def test_where_no_control_was_made_rounding_is_not_called_other_numbers():
    class Interrupted(FakeRuns):
        def __call__(self, arms, *, nudge=False, **facts):
            if nudge:
                raise KeyboardInterrupt
            return super().__call__(arms, nudge=nudge, **facts)

    rounded = tuple(each * (1 + 1e-7) for each in LOSSES)
    made = Session(Interrupted({"good": 0.6}, losses={"good": rounded}), [arm("good")], budget_s=3600, cores=2)
    made.go()
    row = made.result().rows[0]
    assert (row.verdict, row.why) == ("not decided", "losses differ from loss 1 on; for a control it was interrupted")
    assert made.best() is None


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"nudged": 0}, "in the control no parameter could be moved"),
        ({"why": "exit code 1: no space", "code": 1}, "the control failed: exit code 1: no space"),
    ],
)
def test_a_control_that_moved_nothing_or_failed_is_none(facts, why):
    class Unmoved(FakeRuns):
        def __call__(self, arms, *, nudge=False, **given):
            report = super().__call__(arms, nudge=nudge, **given)
            return replace(report, **facts) if nudge else report

    rounded = tuple(each * (1 + 1e-7) for each in LOSSES)
    made = Session(Unmoved({"good": 0.6}, losses={"good": rounded}), [arm("good")], budget_s=3600, cores=2)
    made.go()
    row = made.result().rows[0]
    assert (row.verdict, row.why) == ("not decided", f"losses differ from loss 1 on; {why}")


def test_a_pair_that_others_disturbed_is_made_anew():
    made, _ = session({"good": 0.6}, others=lambda number: 1.9 if number == 3 else 0.0)
    assert made.result().rows[0].disturbed == 1
    assert verdicts(made) == {"good": "keep"}


def test_a_program_that_hangs_untreated_does_so_no_longer_than_the_budget():
    limits = []

    def hangs(_arms, *, limit_s, **_facts):
        limits.append(limit_s)
        clock[0] += limit_s
        return TrialReport(why="hangs", is_cut=True, wall_s=limit_s)

    clock = [100.0]
    made = Session(hangs, [arm("fix")], budget_s=600.0, cores=2, clock=lambda: clock[0])
    with pytest.raises(Failed, match="hangs"):
        made.go()
    assert limits[0] == 600
    assert sum(limits) < 660


def test_a_program_that_fails_untreated_is_no_trial():
    class Broken(FakeRuns):
        def __call__(self, arms, **facts):
            report = super().__call__(arms, **facts)
            return report if arms else type(report)(why="exit code 1: its own error", code=1)

    with pytest.raises(Failed, match="its own error"):
        Session(Broken({"good": 0.6}), [arm("good")], budget_s=100, cores=2).go()


def test_what_was_known_before_the_program_failed_untreated_can_be_read():
    class Breaking(FakeRuns):
        def __call__(self, arms, **facts):
            report = super().__call__(arms, **facts)
            return report if arms or len(self.made) < 12 else type(report)(why="exit code 1: no space", code=1)

    made = Session(
        Breaking({"good": 0.4, "open": 0.93}, noise=0.05), [arm("good"), arm("open")], budget_s=3600, cores=2
    )
    with pytest.raises(Failed, match="no space"):
        made.go()
    assert verdicts(made) == {"good": "keep", "open": "not decided"}
    assert next(row.why for row in made.result().rows if row.fix == "open").endswith("exit code 1: no space")
    assert made.result().notes == [
        "The program failed without any fix: exit code 1: no space. This is what was known by then."
    ]
    assert made.best().fixes == ("good",)


def test_after_ctrl_c_the_table_says_what_is_known():
    class Interrupted(FakeRuns):
        def __call__(self, arms, **facts):
            if len(self.made) == 5:
                raise KeyboardInterrupt
            return super().__call__(arms, **facts)

    made = Session(Interrupted({"good": 0.6}), [arm("good")], budget_s=3600, cores=2)
    made.go()
    result = made.result()
    assert result.is_interrupted
    assert result.rows[0].pairs >= 1


# --- several at once ---


def test_at_once_with_the_untreated_program_no_more_run_than_have_room():
    made, _ = session({"good": 0.6, "bad": 1.5, "idle": 1.0}, at_once=3)
    assert verdicts(made) == {"good": "keep", "bad": "slower", "idle": "no effect"}
    assert {group[0] for group in made.races.groups} == {"untreated"}
    assert {len(group) for group in made.races.groups[:2]} == {2, 3}
    assert made.result().steps_of_turn in (1, 2)  # of 50 ms
    assert made.result().why_alone == ""


@pytest.mark.parametrize("clashes", [("untreated",), ("good",)])
def test_programs_that_clash_run_alone_from_then_on(clashes):
    made, _ = session({"good": 0.6, "bad": 1.5}, at_once=3, clashes=clashes)
    assert verdicts(made) == {"good": "keep", "bad": "slower"}
    assert len(made.races.groups) == 1
    assert "address in use" in made.result().why_alone
    assert made.result().steps_of_turn == 0


def test_what_fails_beside_others_and_alone_has_failed():
    made, runs = session({"broken": "exit code 1: an error", "good": 0.6}, at_once=3)
    assert verdicts(made) == {"broken": "failed", "good": "keep"}
    assert runs.made.count("broken") == 2
    assert made.result().steps_of_turn
