"""What fixes saved here before moves the range of what they are predicted to save, and what hurt is advised no more."""

from __future__ import annotations

import pytest
from history.test_promises import ROW
from msgspec import Struct
from msgspec.structs import replace
from report.samples import SAMPLES

from perfdoctor.cli import history
from perfdoctor.history.measured_fixes import as_measured
from perfdoctor.recording.treated_run import machine_facts
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Fix
from perfdoctor.records.savings import Saving
from perfdoctor.treatments.choice import Machine
from perfdoctor.vocabulary.rulebook import load_rules

ADVISED = {"loader_workers": r"num_workers="}


def diagnosis(low=10, likely=30, high=40):
    whole = next(each for each in SAMPLES.values() if each.findings)
    fixes = (
        Fix("Load batches in workers", "loader = DataLoader(d, num_workers=4)", "minutes", False),
        Fix("Make batches cheaper", "# index whole batches", "hours", False),
    )  # fmt: skip
    one = replace(
        whole.findings[0], rule="input-wait", saving_ns_per_step=Saving(low, likely, high), fixes=fixes, symptoms=(),
        basis="step", title="Training waits for data",
    )  # fmt: skip
    return replace(whole, findings=(one,), base_ns=100, notes=())


def saving(rows, **facts):
    return as_measured(diagnosis(**facts), rows, ADVISED).findings[0].saving_ns_per_step


def test_without_rows_about_it_a_diagnosis_stays_as_it_is():
    assert as_measured(diagnosis(), [{**ROW, "rule": "other"}], ADVISED) == diagnosis()


@pytest.mark.parametrize(
    ("measured", "wanted"), [(0.3, (10, 30, 40)), (0.05, (5, 30, 40)), (0.6, (10, 30, 60)), (-0.1, (0, 30, 40))]
)
def test_few_trials_widen_a_range_to_hold_what_they_saved(measured, wanted):
    found = saving([{**ROW, "measured_likely": measured}])
    assert (found.low, found.likely, found.high) == wanted


def test_nine_trials_are_the_range():
    rows = [{**ROW, "measured_likely": 0.26 + 0.01 * n} for n in range(9)]
    assert saving(rows) == Saving(26, 30, 34)
    assert saving(rows[:8]) == Saving(10, 30, 40)


def test_what_another_fix_saved_says_nothing_of_the_advice():
    others = [{**ROW, "fix": name, "measured_likely": -1.2} for name in ("no_workers", "prefetch_more")]
    found = as_measured(diagnosis(), others, {**ADVISED, "prefetch_more": "prefetch_factor="})
    assert found == diagnosis()
    assert saving([*others * 8, {**ROW, "fix": "edit", "source": "compare", "measured_likely": 0.05}]).low == 5


def test_no_range_goes_beyond_the_step():
    assert saving([{**ROW, "measured_likely": 2.0}]).high == 99


def test_it_says_what_it_rests_on():
    assert as_measured(diagnosis(), [ROW], ADVISED).notes == (
        "Training waits for data: measured here before, once: it saved 31 %",
    )


def test_a_fix_that_hurt_this_project_is_no_longer_advised():
    hurt = {**ROW, "verdict": "slower", "measured_likely": -0.12}
    advice = as_measured(diagnosis(), [hurt], ADVISED).findings[0]
    assert [fix.title for fix in advice.fixes] == ["Make batches cheaper"]
    assert advice.left_out[-1] == "Load batches in workers: measured in this project to make a step 12 % longer"


@pytest.mark.parametrize(
    "rows", [[ROW, {**ROW, "verdict": "slower"}], [{**ROW, "verdict": "slower", "source": "merged"}]]
)
def test_the_last_trial_of_this_project_counts_alone(rows):
    assert len(as_measured(diagnosis(), rows, ADVISED).findings[0].fixes) == 2


def test_a_fix_that_is_named_for_other_cases_alone_is_not_to_blame():
    fixes = (Fix("Use the fused optimizer", "AdamW(w, fused=True)  # or foreach=True", "minutes", False),)
    whole = diagnosis()
    found = replace(whole, findings=(replace(whole.findings[0], rule="unfused-optimizer", fixes=fixes),))
    known = {"fused_optimizer": "fused=True", "foreach_optimizer": "foreach=True"}
    row = {**ROW, "rule": "unfused-optimizer", "verdict": "slower", "measured_likely": -0.12}
    of_foreach, of_fused = (
        as_measured(found, [{**row, "fix": name}], known).findings[0]
        for name in ("foreach_optimizer", "fused_optimizer")
    )
    assert of_foreach.fixes == fixes
    assert "make steps longer" in of_fused.fixes[0].caution


def test_a_fix_of_a_symptom_that_hurt_is_no_longer_advised_either():
    whole = diagnosis()
    cause = replace(whole.findings[0], rule="launch-bound", symptoms=whole.findings)
    hurt = {**ROW, "verdict": "slower", "measured_likely": -0.12}
    found = as_measured(replace(whole, findings=(cause,)), [hurt], ADVISED).findings[0]
    assert len(found.fixes) == 2
    assert [fix.title for fix in found.symptoms[0].fixes] == ["Make batches cheaper"]


class Examined(Struct, frozen=True):
    """As much of an examination as is needed here."""

    diagnosis: Diagnosis


def test_what_treat_stored_reaches_the_next_run_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(tmp_path / "history.db"))
    rule = load_rules()["unfused-optimizer"]
    fixes = tuple(Fix(each.title, each.how, each.effort, each.changes_numerics) for each in rule.fixes)
    whole = diagnosis()
    found = replace(whole, gpus=(), findings=(replace(whole.findings[0], rule=rule.id, fixes=fixes),))
    machine = Machine(**machine_facts()).kind
    row = {
        **ROW, "rule": rule.id, "fix": "fused_optimizer", "machine": machine, "verdict": "slower",
        "measured_likely": -0.2, "source": "treat",
    }  # fmt: skip
    before = history.with_measured(Examined(found)).diagnosis
    history.save_promises([{name: value for name, value in row.items() if name not in ("id", "made_at")}], quiet=True)
    after = history.with_measured(Examined(found)).diagnosis
    assert before == found
    cautions = [fix.caution for fix in after.findings[0].fixes]
    left = [each.partition(":")[0] for each in after.findings[0].left_out]
    assert left == [fixes[0].title] or "make steps longer" in cautions[0]
    assert "fused=True" in fixes[0].how
