"""What held, of what was said of programs, against the programs themselves; and the table of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from program_runs import Round, Said, rules_of

#: A length that differs by more from the program's own is wrong, unless the program differs as much from itself.
_CLOSE = 0.05
#: A share of the training is named right if it is as near as this.
_SHARE = 0.03
#: What is said of less is not held against the truth: a kind with a smaller share is not worth a finding.
_LEAST_SHARE = 0.05
#: A fix that leaves less of the step saves much: its saving must be stated.
_MUCH_LEFT = 1 / 1.5
#: Rules about what comes every k steps; each must be silent where nothing does.
BETWEEN = {
    "evaluation": "long-evaluations",
    "checkpoint": "long-checkpoints",
    "logging": "long-logging",
    "plotting": "long-plotting",
    "rollout": "long-rollouts",
    "epoch_change": "slow-epoch-starts",
    "learning_rate_search": "long-learning-rate-searches",
    "unknown": "long-pauses",
}
#: What is held, in the order of the table.
ASPECTS = {
    "steps": "steps equal",
    "length": "unrecorded step right",
    "first": "first finding true",
    "line": "line right, where one is named",
    "promise": "promise inside",
    "known": "saving above 1.5× stated",
    "slower": "not slower by advice of medium or high confidence",
    "between": "what comes every k steps: kind and share",
    "period": "its period",
    "place": "its line",
    "silent": "silent where nothing comes every k steps",
}


@dataclass
class Score:
    """By aspect what held and what did not, as `program` or `program, fix`."""

    right: dict[str, list[str]] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def hold(self, aspect: str, what: str, good: bool) -> str:
        (self.right if good else self.wrong).setdefault(aspect, []).append(what)
        return "holds" if good else "WRONG"

    def counts(self, aspect: str) -> tuple[int, int]:
        right = len(self.right.get(aspect, ()))
        return right, right + len(self.wrong.get(aspect, ()))


def _spread(values: Sequence[float]) -> float:
    """How far a program is from itself: half the way between its quickest and slowest round, as a share."""
    return (max(values) - min(values)) / 2 / max(statistics.median(values), 1e-9)


def most(flags: Sequence[bool]) -> bool:
    return 2 * sum(flags) > len(flags)


def _each(values: Sequence[str]) -> str:
    return ", ".join(f"{value} x {values.count(value)}" for value in dict.fromkeys(values))


# --- one program ---


def state(name: str, known: Mapping[str, Any], rounds: Sequence[Round], score: Score) -> Iterator[str]:
    """Lines about one program; what held goes to `score`."""
    steps = [each.alone.step_ms for each in rounds]
    walls = [each.under.wall_s - each.alone.wall_s for each in rounds]
    yield (
        f"{name}: {statistics.median(steps):.2f} ms a step alone (± {100 * _spread(steps):.0f} % against itself), "
        f"{statistics.median(each.alone.wall_s for each in rounds):.1f} s in all, {statistics.median(walls):+.1f} s recorded"
    )
    yield from _state_steps(name, rounds, score)
    yield _state_first(name, known["first"], rounds, score)
    yield from _state_line(name, rounds, score)
    yield from _state_between(name, known["first"], rounds, score)
    for fix in known.get("fix", ()):
        yield from _state_fix(name, fix, rounds, score)


def _state_steps(name: str, rounds: Sequence[Round], score: Score) -> Iterator[str]:
    counts = [count for each in rounds for count in each.steps_in_each]
    # A border may lie a moment before or behind the program's own: the sum over a window says whether one is one.
    good = all(abs(sum(each.steps_in_each) - len(each.steps_in_each)) <= 1 for each in rounds)
    yield f"  own steps in a recorded one: {statistics.mean(counts):.2f}: {score.hold('steps', name, good)}"
    for what, ratio in (("recorded", recorded_ratio(rounds)), ("behind the window", behind_ratio(rounds))):
        yield f"  a step {what} / alone: {'not known' if ratio is None else f'{ratio:.3f}'}"
    ratios = [each.unrecorded_ms / each.alone.step_ms for each in rounds if each.unrecorded_ms]
    if not ratios:
        yield f"  unrecorded step: not reported: {score.hold('length', name, False)}"
        return
    off = statistics.median(ratios) - 1
    close = abs(off) <= max(_CLOSE, _spread([each.alone.step_ms for each in rounds]))
    yield f"  unrecorded step as reported: {100 * off:+.1f} % against the program: {score.hold('length', name, close)}"


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def recorded_ratio(rounds: Sequence[Round]) -> float | None:
    return _median([each.recorded for each in rounds])


def behind_ratio(rounds: Sequence[Round]) -> float | None:
    return _median([each.behind for each in rounds])


def _state_first(name: str, true: Sequence[str], rounds: Sequence[Round], score: Score) -> str:
    """Where two may be first, both must be true."""
    good = most([set(each.firsts) <= set(true) for each in rounds])
    said = _each([" or ".join(each.firsts) for each in rounds])
    truth = "" if good else f" (true: {', '.join(true)})"
    return f"  first: {said}: {score.hold('first', name, good)}{truth}"


def _state_line(name: str, rounds: Sequence[Round], score: Score) -> Iterator[str]:
    named = [each for each in rounds if each.line]
    if named:
        good = most([each.line == "right" for each in named])
        yield f"  line: {_each([each.named for each in named])}: {score.hold('line', name, good)}"


def _state_between(name: str, true: Sequence[str], rounds: Sequence[Round], score: Score) -> Iterator[str]:
    """Held against what the program measured in the same run, without the time that recording took."""
    for kind in dict.fromkeys(kind for each in rounds for kind in each.under.kinds):
        both = [(each.under.kinds[kind], each.said.get(kind)) for each in rounds if kind in each.under.kinds]
        share = statistics.median(own.share for own, _ in both)
        if share < _LEAST_SHARE:
            continue
        near = [said is not None and abs(said.share - own.share) <= _SHARE for own, said in both]
        said_share = _median([said.share for _, said in both if said])
        text = "nothing" if said_share is None else f"{said_share:.3f}"
        yield f"  {kind}: {share:.3f} of the training, said {text}: {score.hold('between', f'{name}, {kind}', most(near))}"
        apart = [own.every > 0 and said is not None and said.every == own.every for own, said in both]
        if any(own.every for own, _ in both):
            every = _each([str(said.every if said else 0) for _, said in both])
            yield f"    every {both[0][0].every} steps, said {every}: {score.hold('period', f'{name}, {kind}', most(apart))}"
        lines = [said.line for _, said in both if said and said.line]
        if lines:
            good = most([line == "right" for line in lines])
            yield f"    line: {_each(lines)}: {score.hold('place', f'{name}, {kind}', good)}"
    wrong = [rule for each in rounds for rule in each.found if rule in _untrue(each) - set(true)]
    yield f"  rules about what does not come: {_each(wrong) or 'none'}: {score.hold('silent', name, not wrong)}"


def _untrue(found: Round) -> set[str]:
    """Rules about what comes every k steps that this program has nothing of."""
    return {rule for kind, rule in BETWEEN.items() if kind not in found.under.kinds}


def _left(found: Round, fix: str, of_run: bool) -> float:
    after, before = found.fixed[fix], found.alone
    return after.training_s / before.training_s if of_run else after.step_ms / before.step_ms


def _state_fix(name: str, fix: Mapping[str, str], rounds: Sequence[Round], score: Score) -> Iterator[str]:
    what = f"{name}, {fix['name']}"
    rounds = [each for each in rounds if fix["name"] in each.fixed]
    if not rounds:
        yield f"  --fix {fix['name']}: not advised"
        return
    # Where several rules advise it, the one that promises most stands first.
    of_rounds = [[promise for promise in each.promises if promise.is_of(fix)] for each in rounds]
    advised = [min(each, key=lambda one: one.left[1] if one.left else 1.0) for each in of_rounds if each]
    of_run = any(each.of_run for each in advised)
    left = [_left(each, fix["name"], of_run) for each in rounds]
    measured, noise = statistics.median(left), _spread(left)
    whole = "training" if of_run else "step"
    said = f"  --fix {fix['name']}: {measured:.3f} of the {whole} is left (± {100 * noise:.0f} %)"
    stated = [each.left for each in advised if each.left is not None]
    if measured <= _MUCH_LEFT:
        known = [all(each.left for each in one.promises if each.rule in rules_of(fix)) for one in rounds]
        said += f", stated: {score.hold('known', what, most(known))}"
    if not stated:
        yield f"{said}; saving unknown"
        return
    least, likely, at_most = (statistics.median(each[case] for each in stated) for case in range(3))
    margin = max(noise, _CLOSE)
    inside = least - margin <= measured <= at_most + margin
    yield (
        f"{said}; promised in {len(stated)} of {len(rounds)}: {likely:.3f} ({least:.3f} to {at_most:.3f}), "
        f"{advised[0].confidence}: {score.hold('promise', what, inside)}"
    )
    if any(each.confidence != "low" for each in advised):
        yield f"    no slower: {score.hold('slower', what, measured <= 1 + margin)}"


# --- what is planted ---


def planted_name(case: Mapping[str, Any]) -> str:
    return f"{case['kind']}, {case['share']:.0%}, every {case['period']}, way {case['way']}"


def state_planted(case: Mapping[str, Any], rounds: Sequence[Round], score: Score) -> Iterator[str]:
    """A case is right if kind, share and line are; a healthy one if no rule about such things finds anything."""
    name, kind = planted_name(case), case["kind"]
    if case.get("healthy"):
        found = [rule for each in rounds for rule in each.found if rule in BETWEEN.values()]
        yield f"{name}, healthy: {_each(found) or 'silent'}: {score.hold('silent', name, not found)}"
        return
    good = [_planted_right(kind, each) for each in rounds]
    said = [_words(each.said.get(kind)) for each in rounds]
    yield (
        f"{name}: {statistics.median(each.under.kinds[kind].share for each in rounds):.3f} of the training; "
        f"said {'; '.join(said)}; "
        f"first {_each([' or '.join(each.firsts) for each in rounds])}: {score.hold('planted', name, most(good))}"
    )


def _words(said: Said | None) -> str:
    return "nothing" if said is None else f"{said.share:.3f} every {said.every}, line {said.line or 'none'}"


def _planted_right(kind: str, found: Round) -> bool:
    said, own = found.said.get(kind), found.under.kinds[kind]
    named = BETWEEN[kind] in found.found
    return named and said is not None and abs(said.share - own.share) <= _SHARE and said.line == "right"


# --- the table ---


def _cell(flag: bool | None) -> str:
    return "–" if flag is None else "yes" if flag else "**no**"


def table(
    programs: Mapping[str, Sequence[Round]],
    known: Mapping[str, Any],
    planted: Sequence[tuple[Mapping[str, Any], Sequence[Round]]],
) -> Iterator[str]:
    """The section of the page, line by line."""
    score, rows = Score(), []
    for name, rounds in programs.items():
        own = Score()
        list(state(name, known[name], rounds, own))
        for aspect in ASPECTS:
            score.right.setdefault(aspect, []).extend(own.right.get(aspect, ()))
            score.wrong.setdefault(aspect, []).extend(own.wrong.get(aspect, ()))
        rows.append(_row(name, rounds, own))
    for case, rounds in planted:
        list(state_planted(case, rounds, score))
    count = max((len(rounds) for rounds in programs.values()), default=0)
    yield "## Programs with real packages\n"
    yield (
        "Made by `make programs`: each program is run alone, under `perfdoctor run`, and alone with each fault mended by hand, "
        f"{count} times. The program itself measures its steps, the whole training, and what comes every k steps. What is true "
        "of each stands in `benchmarks/programs/programs.toml`, and slow lines are marked in its source.\n"
    )
    yield from _totals(programs, score)
    yield "\n| program | step | first | true | line | promises inside | recorded step | behind the window | added |"
    yield "| --- | ---: | --- | --- | --- | ---: | ---: | ---: | ---: |"
    yield from rows
    yield from _wrong(score)
    yield from _planted_table(planted, score)


def _totals(programs: Mapping[str, Sequence[Round]], score: Score) -> Iterator[str]:
    yield "| | holds | of |"
    yield "| --- | ---: | ---: |"
    for aspect, title in ASPECTS.items():
        right, whole = score.counts(aspect)
        if whole:
            yield f"| {title} | {right} | {whole} |"
    ratios: tuple[tuple[str, Callable[[Sequence[Round]], float | None]], ...] = (
        ("recorded step, times the plain one, median", recorded_ratio),
        ("step behind the window, times the plain one, median", behind_ratio),
    )
    for title, ratio in ratios:
        middle = _median([ratio(rounds) for rounds in programs.values()])
        if middle is not None:
            yield f"| {title} | {middle:.3f} | {len(programs)} |"


def _row(name: str, rounds: Sequence[Round], own: Score) -> str:
    def held(aspect: str) -> str:
        right, whole = own.counts(aspect)
        return _cell(right == whole if whole else None)

    def times(ratio: float | None) -> str:
        return "–" if ratio is None else f"{ratio:.2f}"

    firsts = dict.fromkeys(f"`{rule}`" for each in rounds for rule in each.firsts)
    right, whole = own.counts("promise")
    return (
        f"| `{name}` | {statistics.median(each.alone.step_ms for each in rounds):.1f} ms | {', '.join(firsts)} | {held('first')} "
        f"| {held('line')} | {f'{right} of {whole}' if whole else '–'} | {times(recorded_ratio(rounds))} "
        f"| {times(behind_ratio(rounds))} | {statistics.median(each.under.wall_s - each.alone.wall_s for each in rounds):.1f} s |"
    )


def _wrong(score: Score) -> Iterator[str]:
    mistakes = [(ASPECTS[aspect], what) for aspect in ASPECTS for what in score.wrong.get(aspect, ())]
    if mistakes:
        yield "\nEvery mistake:\n"
        yield from (f"* {title}: {what}" for title, what in mistakes)


def _planted_table(planted: Sequence[tuple[Mapping[str, Any], Sequence[Round]]], score: Score) -> Iterator[str]:
    cases = [(case, rounds) for case, rounds in planted if not case.get("healthy")]
    if not cases:
        return
    right, whole = score.counts("planted")
    yield "\n### What comes every k steps, planted\n"
    yield (
        "`benchmarks/programs/every_k_steps.py`: a case is right if the kind is named, its share lies within 3 points of the "
        f"program's own measure, and its line is right. {right} of {whole} are.\n"
    )
    yield "| kind | every | way | share | said | right |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for case, rounds in cases:
        own = statistics.median(each.under.kinds[case["kind"]].share for each in rounds)
        said = _median([each.said[case["kind"]].share for each in rounds if case["kind"] in each.said])
        good = planted_name(case) in score.right.get("planted", ())
        yield f"| {case['kind'].replace('_', ' ')} | {case['period']} | {case['way']} | {own:.1%} | {'–' if said is None else f'{said:.1%}'} | {_cell(good)} |"
