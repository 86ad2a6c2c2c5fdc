"""Does `make programs` hold what is said of programs against what they say themselves?"""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys

import msgspec
import pytest
from marked_lines import marks
from program_runs import FOLDER, Alone, Kind, Promise, Round, Said, Windows, firsts, printed, rules_of
from program_scores import ASPECTS, BETWEEN, Score, state, state_planted, table

from perfdoctor.vocabulary.rulebook import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KNOWN = tomllib.loads((FOLDER / "programs.toml").read_text("utf-8"))
PLANTED = KNOWN.pop("planted")
EVALUATION = {"first": ["long-evaluations"], "fix": [{"name": "rarely", "rule": "long-evaluations"}]}


def beats():
    spec = importlib.util.spec_from_file_location("beats", FOLDER / "beats.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Beats()


def alone(step_ms: float = 10.0, training_s: float = 4.0, **kinds: Kind) -> Alone:
    return Alone(step_ms, training_s, 8.0, kinds)


def a_round(share: float = 0.5, line: str = "right", left: float = 0.6, after_s: float = 2.4) -> Round:
    """Evaluations are half of the training; `share` is said, and `left` promised. `after_s`: the training when mended."""
    plain = alone(evaluation=Kind(0.5, 5))
    promise = Promise("long-evaluations", "Evaluate less often", "medium", True, (left - 0.05, left, left + 0.05))
    return Round(
        plain, plain, ["long-evaluations"], ["long-evaluations"], line, "train.py:3 evaluate", [1, 1, 1], 10.1, [promise],
        1.2, 1.0, {"evaluation": Said(share, 5, line)}, {"rarely": alone(training_s=after_s)},
    )  # fmt: skip


def held(*rounds: Round) -> Score:
    score = Score()
    list(state("gru", EVALUATION, rounds, score))
    return score


def test_a_program_of_the_list_is_there_with_its_fixes_and_its_rules_exist():
    rules = {*load_rules(), *BETWEEN.values(), "none"}
    for name, known in KNOWN.items():
        source = (FOLDER / f"{name}.py").read_text("utf-8")
        assert set(known["first"]) <= rules, name
        for fix in known.get("fix", ()):
            assert f'"{fix["name"]}"' in source, (name, fix)
            assert set(rules_of(fix)) <= rules, (name, fix)


def test_at_least_thirty_programs_and_sixteen_plantings_of_eight_kinds():
    assert len(KNOWN) >= 30
    ill = [case for case in PLANTED if not case.get("healthy")]
    assert len(ill) == 16
    assert {case["kind"] for case in ill} == set(BETWEEN)
    assert {case["period"] for case in ill} >= {2, 200}
    assert all(0.1 <= case["share"] <= 0.6 for case in ill)


def test_a_mark_behind_def_is_the_whole_function_and_behind_a_loop_its_head(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(
        "def evaluate():  # slow: evaluation\n    a = 1\n    return a\n\n"
        "for _ in range(3):  # slow\n    evaluate(  \n        )  # slow: any\n    b = 2\n"
    )

    def of(number: int, name: str = "train.py", text: tuple[str, ...] = ()) -> set[str]:
        return set(marks(file, {"file": name, "line": number, "text": text}))

    assert [of(number) for number in (1, 2, 3)] == [{"evaluation"}] * 3
    assert [of(number) for number in (5, 6, 7, 8)] == [{"step"}, {"any"}, {"any"}, set()]
    assert of(2, "other.py") == set()
    assert of(1, "Cell In[3]", ("x = slow()  # slow",)) == {"step"}


def test_a_program_tells_its_step_without_what_comes_between_and_the_share_of_that(capsys, monkeypatch):
    one, now = beats(), [0]
    monkeypatch.setattr("time.perf_counter_ns", lambda: now[0])
    for number in range(60):
        now[0] += 10_000_000
        one.step()
        if number % 5 == 4:
            with one.doing("evaluation"):
                now[0] += 50_000_000
    one.finish()
    said = printed(capsys.readouterr().out, 1.0)
    assert (said.step_ms, said.training_s, said.kinds) == (10.0, 1.2, {"evaluation": Kind(0.5, 5)})


def test_all_holds_where_what_is_said_is_what_the_program_measured():
    score = held(*[a_round()] * 3)
    assert not any(score.wrong.values())
    assert set(score.right) == {*ASPECTS}


@pytest.mark.parametrize(
    ("found", "aspects"),
    [
        (a_round(share=0.54), {"between"}),
        (a_round(line="wrong"), {"line", "place"}),
        (a_round(left=0.2), {"promise"}),
        (a_round(left=1.0, after_s=4.6), {"promise", "slower"}),
        (a_round(share=0.46), {"between"}),
    ],
)
def test_what_does_not_hold_is_counted_as_that(found, aspects):
    score = held(*[found] * 3)
    assert {aspect for aspect, wrong in score.wrong.items() if wrong} == aspects


def test_a_rule_about_what_the_program_does_not_do_is_wrong():
    found = a_round()
    found.found.append("long-checkpoints")
    assert held(found).wrong["silent"] == ["gru"]


def test_recorded_steps_and_those_behind_each_window_are_held_against_the_same_ones_alone(tmp_path):
    alone_ns, recorded_ns, count = 10_000_000, 25_000_000, 120
    windows = (range(5, 15), range(60, 70))
    lengths = [recorded_ns if any(number in window for window in windows) else alone_ns for number in range(count)]
    ends = [1_000_000_000 + sum(lengths[: number + 1]) for number in range(count)]
    events = [
        {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 7}
        | {"ts": ends[number - 1] / 1000, "dur": lengths[number] / 1000}
        for window in windows
        for number in window
    ]
    for name, each in (("beats", lengths), ("alone", [alone_ns] * count)):
        (tmp_path / name).mkdir()
        noted = {"ends_ns": ends, "steps_ns": each[1:], "between": []}
        (tmp_path / name / "7.json").write_text(json.dumps(noted))
    (tmp_path / "torch").mkdir()
    trace = gzip.compress(json.dumps({"traceEvents": events}).encode())
    (tmp_path / "torch" / "rank0.pt.trace.json.gz").write_bytes(trace)
    found = Windows(tmp_path, tmp_path / "beats")
    assert len(found.windows) == 2
    assert found.steps_in_each() == [1] * 20
    assert found.recorded(tmp_path / "alone") == 2.5
    assert found.behind(tmp_path / "alone") == 1.0


def test_a_planted_case_needs_the_rule_the_share_and_the_line():
    case = {"kind": "evaluation", "share": 0.5, "period": 5, "way": 0}
    silent = a_round()
    silent.found.clear()
    for found, right in ((a_round(), True), (a_round(share=0.6), False), (a_round(line=""), False), (silent, False)):
        score = Score()
        list(state_planted(case, [found], score))
        assert score.counts("planted") == (int(right), 1)
    score = Score()
    list(state_planted({**case, "healthy": True}, [silent], score))
    assert score.counts("silent") == (1, 1)


def test_the_first_finding_is_the_one_that_saves_or_both_where_it_is_not_clear():
    def finding(rule: str, high: int, **more: object) -> dict:
        return {"rule": rule, "is_verdict": False, "saving_ns_per_step": {"high": high}, **more}

    note, step = finding("note", 0), finding("step", 5)
    run = finding("run", 0, basis="run", saving_ns_per_run={"high": 9})
    assert firsts({"contenders": [], "findings": [note, step]}) == ["step"]
    assert firsts({"contenders": [], "findings": [note, run, step]}) == ["run"]
    assert firsts({"contenders": ["a", "b"], "findings": [step]}) == ["a", "b"]
    assert firsts({"contenders": [], "findings": [note]}) == ["none"]


def test_the_table_is_made_again_from_what_was_kept(tmp_path):
    kept = tmp_path / "programs.json"
    kept.write_bytes(msgspec.json.encode({"gru": [a_round()] * 3}))
    results = msgspec.json.decode(kept.read_bytes(), type=dict[str, list[Round]])
    case = {"kind": "evaluation", "share": 0.5, "period": 5, "way": 0}
    page = "\n".join(table(results, {"gru": EVALUATION}, [(case, [a_round()])]))
    assert "| `gru` | 10.0 ms | `long-evaluations` | yes | yes | 1 of 1 | 1.20 | 1.00 | 0.0 s |" in page
    assert "| evaluation | 5 | 0 | 50.0% | 50.0% | yes |" in page
    assert "Every mistake" not in page


def test_programs_need_only_packages_that_are_listed():
    listed = {line.strip() for line in (FOLDER / "requirements.txt").read_text("utf-8").splitlines()[1:]}
    named = {"PIL": "pillow", "ignite": "pytorch-ignite", "hydra": "hydra-core", "omegaconf": "hydra-core"}
    needed = {named.get(package, package) for known in KNOWN.values() for package in known.get("packages", ())}
    assert needed <= listed
