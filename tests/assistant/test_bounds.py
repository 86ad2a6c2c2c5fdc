"""Is an answer short by default, does its first text say what is missing, and does that lead to all of it?"""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest
from folders import FIXTURES, ROOT
from tables import of_each

import perfdoctor
from assistant.client import Asked, Assistant, assistant
from perfdoctor.assistant.arguments import DEFAULT_TOKENS, LEAST_TOKENS
from perfdoctor.assistant.documents import PAGES
from perfdoctor.assistant.fitted import fitted, rest, tokens
from perfdoctor.history import runs, store
from perfdoctor.vocabulary.rulebook import rule_files

RANKS = "straggler/nsys/profile.sqlite"
TORCH = "input-bound-single-process/torch"
BEFORE, AFTER = "cpu-slow-input/torch", "cpu-slow-input-fixed/torch"

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "recordings": ("recordings", {}),
    "a diagnosis": ("analyze", {"path": RANKS}),
    "findings": ("findings", {"path": RANKS}),
    "as many findings as may be asked for": ("findings", {"path": RANKS, "limit": 20}),
    "one finding in full": ("findings", {"path": RANKS, "rule": "rank-skew"}),
    "a rule": ("explain", {"rule": "input-wait"}),
    "kernels": ("kernels", {"path": RANKS, "limit": 200}),
    "events": ("timeline_slice", {"path": RANKS, "limit": 200}),
    "rows": ("query", {"path": RANKS, "sql": "SELECT * FROM kernels", "limit": 200}),
    "a comparison": ("compare", {"before": BEFORE, "after": AFTER}),
    "a check": ("check", {"baseline": BEFORE, "after": AFTER}),
    "what to record": ("run_next", {"path": BEFORE}),
    "a prediction": ("what_if", {"path": RANKS, "changes": "rank-skew"}),
}


@pytest.fixture(scope="module")
def client():
    with assistant(FIXTURES) as connected:
        yield connected


def size(asked: Asked) -> int:
    return tokens(asked.text) + tokens(asked.data)


@of_each("named", CALLS)
def test_an_answer_is_short_by_default_and_its_text_names_each_part_that_is_cut(client, named):
    tool, arguments = named
    asked = client.call(tool, arguments)
    assert not asked.is_error, asked.text
    assert size(asked) <= DEFAULT_TOKENS
    assert size(client.call(tool, {**arguments, "max_tokens": LEAST_TOKENS})) <= LEAST_TOKENS
    for cut in asked.data.get("not_shown", [])[:4]:
        assert f'more="{cut["more"]}"' in asked.text
    if after := asked.data.get("next_cursor"):
        assert f'cursor="{after}"' in asked.text


def whole(client: Assistant, tool: str, arguments: dict[str, Any], handle: str) -> Any:
    """All of a part, by what each answer says to ask for."""
    at, _, start = handle.rpartition(":")
    assert start
    found: Any = None
    following: str | None = handle
    while following:
        data = client.call(tool, {**arguments, "more": following}).data
        found = data["rest"] if found is None else found + data["rest"]
        following = next(
            (each["more"] for each in data.get("not_shown", []) if each["more"].startswith(f"{at}:")), None
        )
    return found


def test_what_is_left_out_is_had_by_what_the_answer_says(client):
    arguments = {"path": RANKS, "max_tokens": 1_700}
    short, full = client.call("analyze", arguments), client.ask("analyze", path=RANKS)
    cuts = {each["more"]: each for each in short.data["not_shown"]}
    (handle,) = (each for each in cuts if each.startswith("devices:"))
    got = short.data["devices"] + whole(client, "analyze", arguments, handle)
    assert got == full["devices"]
    assert (cuts[handle]["shown"], cuts[handle]["of"]) == (len(short.data["devices"]), 4)


def test_a_handle_of_another_answer_is_refused(client):
    asked = client.call("analyze", {"path": RANKS, "more": "no.such:3"})
    assert (asked.is_error, "not_shown" in asked.text) == (True, True)


def test_the_first_text_says_how_many_findings_are_not_shown_and_pages_lead_to_all(client):
    first = client.call("findings", {"path": RANKS, "limit": 1})
    assert re.search(r'Shown up to 1 of 4; for the next, the same call with cursor="1"\.', first.text)
    rules = [each["rule"] for each in client.pages("findings", "findings", path=RANKS, limit=1)]
    assert len(set(rules)) == 4


def test_findings_have_the_numbers_that_the_report_gives_them(client):
    """A symptom has none there: it stands below the finding that it belongs to."""
    every = client.pages("findings", "findings", path=RANKS)
    analyzed = client.call("analyze", {"path": RANKS}).text
    text = "".join(client.call("findings", {"path": RANKS, "rule": each["rule"]}).text + "\n" for each in every)
    for each in every:
        if each["position"] is None:
            assert f"Symptom of {each['symptom_of']}: {each['rule']}:" in text
        else:
            assert f"{each['position']}. {each['rule']}:" in analyzed
            assert f"{each['position']}. {each['rule']}:" in text
    numbered = [each["position"] for each in every if each["position"]]
    assert numbered == list(range(1, len(numbered) + 1))


def test_a_slower_training_fails_its_check_and_a_faster_one_passes(client):
    slower = client.call("check", {"baseline": AFTER, "after": BEFORE})
    assert (slower.data["failed"], slower.data["decision"]) == (True, "regression")
    assert slower.text.startswith("The check fails.")
    faster = client.call("check", {"baseline": BEFORE, "after": AFTER})
    assert (faster.data["failed"], faster.data["decision"]) == (False, "improvement")
    assert client.call("check", {"baseline": AFTER, "after": BEFORE, "fail_above": 10}).data["failed"] is False


def test_a_check_refuses_a_run_that_is_its_own_baseline_and_one_of_another_machine(client):
    same = client.call("check", {"baseline": BEFORE, "after": BEFORE})
    assert (same.is_error, "given twice" in same.text) == (True, True)
    other = client.call("check", {"baseline": TORCH, "after": RANKS})
    assert (other.is_error, "ran on" in other.text) == (True, True)


def test_a_baseline_may_be_what_the_history_has_pinned(tmp_path):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    shutil.copytree(FIXTURES / "cpu-slow-input", root / "slow")
    shutil.copytree(FIXTURES / "cpu-slow-input-fixed", elsewhere)
    db = root / ".perfdoctor" / "history.db"
    fast = perfdoctor.analyze(elsewhere).save(db=db)
    with store.written(db) as history:
        runs.pin(history, "main", [fast])
    with assistant(root) as connected:
        failed = connected.call("check", {"baseline": "main", "after": "slow"})
        unknown = connected.call("check", {"baseline": "mian", "after": "slow"})
    assert failed.text.startswith("The check fails.")
    assert fast in json.dumps(failed.data["baseline"])
    shutil.rmtree(elsewhere)  # else the command reads the recording itself
    assert failed.text.splitlines()[1] == perfdoctor.check(root / "slow", baseline="main", db=db).summary
    assert "nothing is pinned as 'mian'" in unknown.text
    assert "Pinned are: main." in unknown.text
    assert str(tmp_path) not in failed.text + unknown.text


def test_a_check_refuses_the_pinned_run_itself(tmp_path):
    for name in ("slow", "copied"):
        shutil.copytree(FIXTURES / "cpu-slow-input", tmp_path / name)
    db = tmp_path / ".perfdoctor" / "history.db"
    pinned = perfdoctor.analyze(tmp_path / "slow").save(db=db)
    with store.written(db) as history:
        runs.pin(history, "main", [pinned])
    with assistant(tmp_path) as connected:
        same = connected.call("check", {"baseline": "main", "after": "slow"})
        copied = connected.call("check", {"baseline": "slow", "after": "copied"})
    assert (same.is_error, "slow is a run of the baseline main itself" in same.text) == (True, True)
    assert (copied.is_error, "copied is a run of the baseline slow itself" in copied.text) == (True, True)


def test_a_folder_without_recordings_says_what_to_do(tmp_path):
    with assistant(tmp_path) as connected:
        answer = connected.call("recordings", {})
    assert answer.data["recordings"] == []
    assert "perfdoctor run -- python train.py" in answer.text


def test_what_to_record_names_each_rule_once_that_could_not_be_checked(client):
    found = client.ask("run_next", path=TORCH)
    named = [rule for row in found["record"] for rule in row["rules"]]
    assert len(named) == len(set(named))
    assert len(named) + found["no_way_known"] == client.ask("analyze", path=TORCH)["not_checked"]["count"]
    assert len({row["record"] for row in found["record"]}) == len(found["record"])


def test_every_rule_and_page_is_a_resource_to_the_byte(client):
    found = {str(each.uri): each for each in client.resources()}
    assert len(found) == len(rule_files()) + len(PAGES)
    rule = next(path for path in rule_files() if path.stem == "input-wait")
    assert client.read("perfdoctor://rules/input-wait") == rule.read_text("utf-8")
    assert client.read("perfdoctor://docs/tables") == (ROOT / "docs" / "tables.md").read_text("utf-8")
    with pytest.raises(Exception, match="no such document"):
        client.read("perfdoctor://docs/../../README")


def test_prompts_name_tools_that_are_there_and_quote_what_they_are_given(client):
    tools = {tool.name for tool in client.tools()}
    for each in client.prompts():
        given = {argument.name: f"runs/{argument.name} {{path}}\nignore this" for argument in each.arguments}
        text = client.prompt(each.name, **given)
        assert set(re.findall(r"`(\w+)`", text)) <= tools
        assert all(json.dumps(f"runs/{name} {{path}} ignore this") in text for name in given)


def test_a_part_of_any_shape_is_cut_and_found_again():
    long = "word, and word; " * 400
    data = {"text": long, "rows": [{"name": f"row {number}", "at": number} for number in range(300)], "one": [long] * 2,
            "fields": {f"key{number}": [number] * 30 for number in range(40)}, "number": 7}  # fmt: skip
    kept, cuts = fitted(data, 900)
    assert tokens(kept) < 1_100
    assert kept["number"] == 7
    assert {each.more.partition(":")[0].partition(".")[0] for each in cuts} == {"text", "rows", "one", "fields"}
    for cut in cuts:
        at, _, start = cut.more.rpartition(":")
        found, _, _ = rest(data, cut.more, 1_000_000)
        value: Any = data
        for step in at.split("."):
            value = value[int(step) if isinstance(value, list) else step]
        left = dict([*value.items()][int(start) :]) if isinstance(value, dict) else value[int(start) :]
        assert found["rest"] == left
