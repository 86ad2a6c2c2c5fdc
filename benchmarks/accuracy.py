"""How often is perfdoctor right, in numbers? Runs all planted faults and the labelled recordings, writes docs/accuracy.md.

    python benchmarks/accuracy.py            everything, some minutes on two cores
    python benchmarks/accuracy.py --check    exit 1 where precision or recall is below what is promised; writes nothing
    python benchmarks/accuracy.py --rule R   what has this fault, `healthy`, or a scene: prints what was found, and writes nothing
    python benchmarks/parallelism.py         late ranks, stages and links in each kind of parallelism, by themselves

What stands below the line `<!-- by hand -->` in the file is kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

import faults
import parallelism
import scene_faults
from faults import FORMS, LEVELS, Result, Score
from labels import cases, recordings
from scene_faults import SCENES, SHARES, Judged
from truth import _judge as judged

from perfdoctor.vocabulary.rulebook import load_rules

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
BY_HAND = "<!-- by hand -->"
#: Promised from 5 % of a step upward.
LEAST = 0.95
_LISTED = 40
_LACKS = {
    "nsys": "Exports of Nsight Systems seldom contain the bytes of collectives, and never Python functions:",
    "kineto": "Traces of torch.profiler contain neither migrations of managed memory nor the GPU's counters:",
}


def page(
    results: Sequence[Result], scenes: Sequence[Judged], spread: Sequence[parallelism.Result], took_s: float
) -> Iterator[str]:
    scores = faults.scores(results)
    played = {result.case.label for result in results}
    yield "# How often is perfdoctor right?\n"
    yield "Made by `python benchmarks/accuracy.py`; only the cross-checks at the end are written by hand.\n"
    yield "## Planted faults\n"
    yield (
        f"`fixtures/training.py` simulates data-parallel trainings with jitter of kernels, host and network, preemption of "
        f"the host, and activity that costs nothing because the device is busy meanwhile: batches, allocations, a file "
        f"write, a garbage collection, overlapped all-reduces. `fixtures/plant.py` plants {len(faults.known())} faults, "
        f"alone at 1, 3, 5, 10 and 40 % of the step, and in pairs of 10 and 40 %, on 1, 4, 8 and 64 ranks; healthy "
        f"trainings are simulated as well, and {len(faults.plant.TWINS)} healthy ones that resemble a fault. Each is "
        f"written as an export of Nsight Systems and as traces of torch.profiler, with the files of other tools "
        f"(Nsight Compute, nvidia-smi, NCCL, the allocator), and diagnosed like any recording. The true cost of a fault is "
        f"the difference between the step with and without it, simulated with the same random seed. A finding is *false* "
        f"if it predicts a saving of 3 % of the step or more, and was neither planted nor follows from what was. "
        f"{len(played)} trainings, {len(results)} diagnoses, {took_s:.0f} s with the scenes further down.\n"
    )
    yield (
        "The authors of the rules also chose these faults: they show that a rule detects what it is made for, in noise and "
        "next to other faults, and say little about faults that nobody thought of. The recordings further down are of "
        "real programs.\n"
    )
    yield from _by_rule(scores)
    yield from _totals(results)
    yield from _mistakes(results)
    yield from _twice(results)
    yield "## Starts, single steps, decode loops, streams that wait\n"
    yield (
        "Recordings that are no steady training (`fixtures/scenes/`), or of which only the GPU's own counters show the fault "
        "(`fixtures/scenes/counted.py`, in the spellings of three versions of Nsight Systems); else in both formats, with its fault and without it, "
        "and once with nothing of the host but its calls. One of the rules that are right has to find it, and to come "
        f"first from {2 * faults.FALSE_FROM:.0%} of the recording on. *False* is what else predicts {faults.FALSE_FROM:.0%} or more, what the "
        "scene excludes, and, where the fault comes once in a program, any predicted saving.\n"
    )
    yield from _by_scene(scenes)
    yield "## Late ranks, stages and links, in each kind of parallelism\n"
    yield (
        "`fixtures/planted/parallelism.py` spreads the same training in six ways over 8 and 64 ranks. One rank's device is "
        "slow, one stage has more to compute, one link is slow or one rank's experts get more tokens: at 5, 10, 25 and "
        "50 % of the step on 8 ranks, 10 and 50 % on 64. What it costs is measured as above; for a stage, against as much "
        "work evenly spread. Its finding has to name the rank, the stage or the two ends of the link.\n"
    )
    yield from parallelism.section(spread)
    yield ""
    yield from _truth()


def _by_scene(scenes: Sequence[Judged]) -> Iterator[str]:
    yield (
        "| scene | lasts | right | "
        + " | ".join(f"found at {share:.0%}" for share in SHARES[1:])
        + " | from calls alone | precision | false | without its fault |"
    )
    yield "| --- | --- | --- |" + " ---: |" * (len(SHARES) + 3)
    for name, results in scene_faults.by_name(scenes).items():
        whole = [each for each in results if not each.take.calls_only]
        found = [scene_faults.recall(whole, share) for share in SHARES[1:]]
        found.append(scene_faults.recall([each for each in results if each.take.calls_only]))
        twins = [each for each in results if not each.take.share]
        yield (
            f"| {name} | {_lasts(name)} | {_named(sorted(SCENES[name].right)) or 'nothing'} | {' | '.join(map(_share, found))} | "
            f"{_share(scene_faults.precision(results))} | {sum(len(each.false) for each in results)} | "
            f"{sum(not each.false for each in twins)} of {len(twins)} clean |"
        )
    yield ""
    found_wrong = list(scene_faults.mistakes(scenes))
    yield f"Mistakes: {len(found_wrong)}.\n"
    yield from (f"* {text}" for text in found_wrong[:_LISTED])
    if found_wrong:
        yield ""


def _lasts(name: str) -> str:
    pieces = [f"{ns / 1e6:,g}" for ns in SCENES[name].lasts_ns]
    return f"{', '.join(pieces)} ms in all" if pieces else "in each step" if SCENES[name].right else "–"


def _by_rule(scores: dict[str, Score]) -> Iterator[str]:
    yield (
        "| rule | "
        + " | ".join(f"found at {level:.0%}" for level in LEVELS)
        + " | from 5 % | precision | false | predicted ÷ saved |"
    )
    yield "| --- |" + " ---: |" * (len(LEVELS) + 4)
    for rule, score in sorted(scores.items()):
        if not score.planted and not score.false:
            continue
        found = (_share(score.recall(level)) for level in LEVELS)
        promise = sorted(score.promises)
        mark = "\\*" if load_rules()[rule].planted and promise else ""
        middle = f"{promise[len(promise) // 2]:.2f}{mark}" if promise else "–"
        yield f"| `{rule}` | {' | '.join(found)} | {_share(score.recall_from_5)} | {_share(score.precision)} | {score.false} | {middle} |"
    yield ""
    for form, lacks in _LACKS.items():
        absent = sorted(rule for rule in faults.known() if form not in faults.plant.FAULTS[rule].forms)
        if absent:
            yield f"{lacks} {_named(absent)} cannot be found there.\n"
    in_scenes = {rule for scene in SCENES.values() for rule in scene.right}
    absent = sorted({rule for rule, score in scores.items() if not score.planted} - {*faults.known()} - in_scenes)
    if absent:
        yield f"No fault is planted for: {_named(absent)}.\n"
    yield (
        "Below a rule's own threshold (3 or 5 % of the step, see `perfdoctor rules`) it should not fire. *Predicted ÷ saved* "
        "is the likely saving divided by what removing the fault really saves, the median of all cases of 5 % and more: "
        "rules predict less than everything if a fix seldom saves everything.\n"
    )
    yield from _notes(scores)


def _notes(scores: dict[str, Score]) -> Iterator[str]:
    """Why a saving is predicted that is less or more than what the planted fault costs, as the rule's document says."""
    for rule, score in sorted(scores.items()):
        if score.promises and load_rules()[rule].planted:
            yield f"\\* `{rule}`: {load_rules()[rule].planted}\n"


def _named(rules: Sequence[str]) -> str:
    return ", ".join(f"`{rule}`" for rule in rules)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}" if value in (0.0, 1.0) else f"{value:.1%}"


def _recall(results: Sequence[Result]) -> float | None:
    asked = [(result, rule) for result in results for rule, level in result.asked.items() if level >= LEVELS[2]]
    return sum(rule in result.found for result, rule in asked) / len(asked) if asked else None


def _precision(results: Sequence[Result]) -> float:
    true = sum(rule in result.found for result in results for rule in result.case.shares)
    false = sum(len(result.false) for result in results)
    return true / (true + false) if true + false else 1.0


def _first(results: Sequence[Result]) -> float | None:
    given = [result for result in results if result.tells_first]
    return sum(not result.wrong_first for result in given) / len(given) if given else None


def _totals(results: Sequence[Result]) -> Iterator[str]:
    yield "| | diagnoses | found from 5 % | precision | the costliest is first |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    groups: list[tuple[str, Callable[[Result], bool]]] = [("all", lambda _: True)]
    groups += [(form, lambda result, form=form: result.form == form) for form in FORMS]
    groups += [
        (f"{ranks} rank{'s' * (ranks > 1)}", lambda result, ranks=ranks: result.case.ranks == ranks)
        for ranks in sorted({result.case.ranks for result in results})
    ]
    groups += [
        ("one fault", lambda result: len(result.cost) == 1),
        ("two faults", lambda result: len(result.cost) == 2),
    ]
    groups += [("healthy", lambda result: not result.cost)]
    for name, belongs in groups:
        mine = [result for result in results if belongs(result)]
        clean = (
            f"{sum(not result.false for result in mine)} of {len(mine)} clean"
            if name == "healthy"
            else _share(_precision(mine))
        )
        yield f"| {name} | {len(mine)} | {_share(_recall(mine))} | {clean} | {_share(_first(mine))} |"
    yield ""


def _mistakes(results: Sequence[Result]) -> Iterator[str]:
    found = list(faults.mistakes(results))
    yield f"### Mistakes from 5 % upward: {len(found)}\n"
    kinds = [
        (kind, list(rows)) for kind, rows in groupby(sorted(found), key=lambda text: text.split(":")[0].split(" (")[0])
    ]
    for kind, rows in sorted(kinds, key=lambda pair: -len(pair[1]))[:_LISTED]:
        yield f"* {kind}: {len(rows)}×, as in {rows[0].split(': ', 1)[1]}"
    yield "\nTo write one of them again: `python fixtures/plant.py RULE=SHARE … --ranks N --seed N -o DIR`.\n"


def _twice(results: Sequence[Result]) -> Iterator[str]:
    found = list(faults.differences(results))
    pairs = len({result.case.label for result in results if faults.in_both(result.case)})
    yield "## The same run in both formats\n"
    yield (
        f"{pairs} trainings that both formats can represent were written in both. Parts of the time agree within {faults.SAME_WITHIN:.1%} of the "
        f"window, and findings are the same, but for {len(found)}:\n" if found else
        f"{pairs} trainings that both formats can represent were written in both: the parts of the time agree within {faults.SAME_WITHIN:.1%} of the "
        f"window, and the findings are the same, in all of them.\n"
    )  # fmt: skip
    yield from (f"* {text}" for text in found[:_LISTED])
    yield ""


def _truth() -> Iterator[str]:
    yield "## Public recordings with known causes\n"
    folder = recordings()
    if folder is None:
        yield "Not on the machine that made this page: `make truth` needs them.\n"
        return
    verdicts = [(case, *judged(folder, case)) for case in cases()]
    wrong = [(case["path"], what) for case, _, what in verdicts if what]
    yield f"{len(verdicts) - len(wrong)} of {len(verdicts)} labels of `benchmarks/labels.toml` hold (`make truth`).\n"
    yield from (f"* `{path}`: {'; '.join(what)}" for path, what in wrong)
    if wrong:
        yield ""


def short(results: Sequence[Result], scenes: Sequence[Judged] = ()) -> Iterator[str]:
    """Rules and scenes that are below what is promised."""
    for rule, score in sorted(faults.scores(results).items()):
        recall = score.recall_from_5
        if recall is not None and recall < LEAST:
            yield f"{rule}: {recall:.1%} found from 5 %"
        if score.precision < LEAST:
            yield f"{rule}: precision {score.precision:.1%}, {score.false} false findings"
    for name, mine in scene_faults.by_name(scenes).items():
        found, precision = scene_faults.recall(mine), scene_faults.precision(mine)
        if found is not None and found < LEAST:
            yield f"{name}: {found:.1%} found"
        if precision < LEAST:
            yield f"{name}: precision {precision:.1%}, {sum(len(each.false) for each in mine)} false findings"


def _unknown(rules: Sequence[str]) -> str:
    names = ["healthy", *sorted((*faults.known(), *SCENES))]
    near = sorted({name for rule in rules for name in get_close_matches(rule, names)}) or names
    return (
        f"no fault is planted for {', '.join(rules)}: write one of {', '.join(near)}, "
        f'or plant it in fixtures/planted/<subject>.py (@fault("{rules[0]}"))'
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="How often is perfdoctor right?")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where it is less often than promised"
    )
    parser.add_argument(
        "--rule", action="append", default=[], metavar="RULE", help="what has this fault; may be repeated"
    )
    asked = parser.parse_args()
    if unknown := sorted(set(asked.rule) - {"healthy", *faults.known(), *SCENES}):
        parser.error(_unknown(unknown))
    begun = time.perf_counter()
    of_scenes = [name for name in asked.rule if name in SCENES]
    only_scenes = bool(asked.rule) and len(of_scenes) == len(asked.rule)
    results = [] if only_scenes else faults.judge_all(faults.all_cases(asked.rule))
    scenes = scene_faults.judge_all(scene_faults.takes(of_scenes)) if of_scenes or not asked.rule else []
    spread = [] if asked.rule else parallelism.judge_all(parallelism.cases())
    took_s = time.perf_counter() - begun
    below = [*short(results, scenes), *parallelism.short(spread, LEAST)]
    print("\n".join(below) or f"Every rule: {LEAST:.0%} or more, found and true.")
    if asked.rule:
        lines = (
            [*_by_rule(faults.scores(results)), *_totals(results), *_mistakes(results), *_twice(results)]
            if results
            else []
        )
        print("\n".join([*lines, *(_by_scene(scenes) if scenes else ())]))
    if asked.check or asked.rule:
        return bool(below)
    kept = PAGE.read_text("utf-8").partition(BY_HAND)[2] if PAGE.exists() else "\n"
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(page(results, scenes, spread, took_s)) + f"\n{BY_HAND}{kept}", "utf-8")
    print(f"{len(results) + len(scenes) + len(spread)} diagnoses in {took_s:.0f} s: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
