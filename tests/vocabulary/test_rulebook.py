"""Are rules read, found and overridden as promised?"""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.vocabulary import rulebook
from perfdoctor.vocabulary.derivations import unit_of
from perfdoctor.vocabulary.rulebook import known, load_rules, rules_folder, with_thresholds


def override(folder: Path, text: str):
    (folder / "pyproject.toml").write_text(text, "utf-8")
    return with_thresholds(load_rules(), folder / "pyproject.toml")


def test_rules_come_by_id_in_alphabetical_order():
    assert list(load_rules()) == sorted(path.stem for path in rules_folder().rglob("*.toml"))
    assert all(rule.id == rule_id for rule_id, rule in load_rules().items())


def test_a_detector_gets_the_thresholds_values():
    rule = load_rules()["input-wait"]
    assert rule.at == {name: threshold.value for name, threshold in rule.thresholds.items()}


def test_without_a_pyproject_the_rules_are_as_they_come(tmp_path):
    assert with_thresholds(load_rules(), tmp_path / "pyproject.toml") == load_rules()


def test_a_pyproject_of_another_tool_changes_nothing(tmp_path):
    assert override(tmp_path, "[tool.ruff]\nline-length = 120\n") == load_rules()


def test_a_threshold_can_be_set_and_only_that_one_changes(tmp_path):
    changed = override(tmp_path, "[tool.perfdoctor.thresholds.input-wait]\nmin_share_of_step = 0.2\n")
    assert changed["input-wait"].at["min_share_of_step"] == 0.2
    assert changed["input-wait"].thresholds["min_share_of_step"].why == "set in pyproject.toml"
    assert (
        changed["input-wait"].thresholds["min_share_of_step"].unit
        == "fraction of step time that a fix is likely to save"
    )
    assert changed["exposed-copies"] == load_rules()["exposed-copies"]
    assert changed["zero-grad-fills"] == load_rules()["zero-grad-fills"], "which shares the threshold's definition"
    assert load_rules()["input-wait"].at["min_share_of_step"] != 0.2, "the rules themselves stay"


def test_a_whole_number_is_a_number(tmp_path):
    changed = override(tmp_path, "[tool.perfdoctor.thresholds.unfused-optimizer]\nkernel_floor_ns = 7\n")
    assert changed["unfused-optimizer"].at["kernel_floor_ns"] == 7.0


@pytest.mark.parametrize(
    ("text", "what", "do"),
    [
        ("[tool.perfdoctor.thresholds.input-weight]\nx = 1\n", "no rule named 'input-weight'", "input-wait"),
        (
            "[tool.perfdoctor.thresholds.input-wait]\nmin_share = 1\n",
            "no threshold of input-wait named 'min_share'",
            "min_share_of_step",
        ),
        (
            "[tool.perfdoctor.thresholds.input-wait]\nmin_share_of_step = '3 %'\n",
            "the threshold input-wait.min_share_of_step in pyproject.toml is '3 %'",
            "Give it a number",
        ),
        ("[tool.perfdoctor.thresholds.input-wait]\nmin_share_of_step = 4\n", "is 4, and a fraction", "0.04 is 4 %"),
        ("[tool.perfdoctor.thresholds.acme/x]\ny = 4\n", "cannot be read", 'thresholds."acme/x"'),
        (
            "[tool.perfdoctor.thresholds.input-wait]\nmin_share_of_step = true\n",
            "is True",
            "Give it a number",
        ),
        ("[tool.perfdoctor", "pyproject.toml cannot be read", "Mend it"),
    ],
)
def test_what_cannot_be_overridden_is_said_with_what_to_do(tmp_path, text, what, do):
    with pytest.raises(PerfdoctorError) as raised:
        override(tmp_path, text)
    assert what in str(raised.value)
    assert do in raised.value.do


@pytest.mark.parametrize(
    "text",
    [
        "[tool.perfdoctor.thresholds]\ninput-wait = 0.1\n",
        "[tool.perfdoctor]\nthresholds = 0.1\n",
        "tool = 3\n",
    ],
)
def test_a_table_of_the_wrong_shape_is_the_users_error_and_not_a_crash(tmp_path, text):
    with pytest.raises(PerfdoctorError):
        override(tmp_path, text)


def test_a_name_like_no_other_lists_all_that_are_known():
    with pytest.raises(PerfdoctorError) as raised:
        known("zzz", {"b": 1, "a": 2}, "rule")
    assert "a, b" in raised.value.do


def a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Loads rules of which one differs from host-syncs by this."""
    text = (rules_folder() / "host" / "host-syncs.toml").read_text("utf-8")
    assert old in text
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "my-rule.toml").write_text(text.replace(old, new, 1), "utf-8")
    monkeypatch.setattr(rulebook, "rules_folder", lambda: tmp_path)
    load_rules.__wrapped__()


@pytest.mark.parametrize(
    ("old", "new", "what", "do"),
    [
        ('since    = "', 'sinc = "', "there is no field 'since'", "a neighbour"),
        ('effort = "', 'work = "', "there is no field 'effort'", "a neighbour"),
        ('"waits"', '"wait"', "there is no action named 'wait'", "waits"),
        ('"affected-time"', '"affected-tim"', "named 'affected-tim'", "affected-time"),
        ("value = ", "valeu = ", "'valeu'", "a neighbour"),
        ('title    = "', 'title = ""', "cannot be read", "a neighbour"),
    ],
)
def test_a_wrong_document_is_named_with_what_is_valid(tmp_path, monkeypatch, old, new, what, do):
    with pytest.raises(PerfdoctorError) as raised:
        a_rule(tmp_path, monkeypatch, old, new)
    assert raised.value.what.startswith("rules/host/my-rule.toml")
    assert what in raised.value.what
    assert do in raised.value.do


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('high    = "{lost_ms}"\n', "", "no field 'high'"),
        ('high    = "{lost_ms}"\n', 'high    = "{lost_ms}"\nother   = "1"\n', "other"),
        ('{ source = "recording"', '{ source = "thin air"', "'thin air'"),
    ],
)
def test_a_wrong_derivation_is_named(tmp_path, monkeypatch, old, new, what):
    with pytest.raises(PerfdoctorError) as raised:
        a_rule(tmp_path, monkeypatch, old, new)
    assert what in raised.value.what


def test_units_follow_from_names():
    assert [unit_of(name) for name in ("wait_ms", "link_gb_per_second", "lost_percent", "tensors", "late_per_step")] == [
        "ms", "GB/s", "%", "count", "count",
    ]  # fmt: skip


#: Rules about the batch itself, or in whose passes nobody learns.
OF_THE_BATCH = {"small-batch", "memory-headroom", "long-evaluations"}


def test_a_larger_batch_makes_no_step_shorter_so_it_comes_after_what_does_and_says_so():
    for rule in load_rules().values():
        larger = [fix for fix in rule.fixes if "* batch_size" in fix.how and rule.id not in OF_THE_BATCH]
        for fix in larger:
            facts, situation = frozenset({"torch"}), (*fix.situations, "")[0]
            assert fix in rule.fixes_for(situation, facts)[1:], (rule.id, fix.title)
            assert "samples a second rise" in fix.how, (rule.id, fix.title)


def test_of_the_fixes_that_fit_those_that_need_minutes_come_first():
    rank = {"minutes": 0, "hours": 1, "days": 2}
    for rule in load_rules().values():
        for situation in ("", *rule.summaries):
            efforts = [rank[fix.effort] for fix in rule.fixes_for(situation, frozenset({"torch", "gpu"}))]
            assert efforts == sorted(efforts), rule.id
    names = [fix.title for fix in load_rules()["host-work"].fixes_for("named", frozenset({"torch", "gpu"}))]
    assert names.index("Do it rarely, or after launching the next step") < names.index(
        "Move it to another thread or process"
    )
