"""How wide are the ranges of savings? Writes calibration.toml from all measured pairs, and docs/savings.md: `make calibration`.

    python benchmarks/calibrate.py            from the pairs of pairs.toml that are on this machine; planted faults as before
    python benchmarks/calibrate.py --planted  plants faults anew, too (some minutes on two cores)
    python benchmarks/calibrate.py --check    writes nothing; exit 1 where the coverage is not what is aimed at

The rule, for each category of rules: sort the n ratios of measured to likely savings. The ⌊(n + 1) · 0.1⌋-th and the
⌈(n + 1) · 0.9⌉-th of them bound the next one in 80 of 100 cases, whatever their distribution (split conformal prediction;
Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; Lei et al., Distribution-Free Predictive
Inference for Regression, 2018). That takes nine pairs. A category with fewer has the widest bounds of any other and of all
pairs together, and those of its planted faults where they are wider: a planted fault is removed as a whole from a
simulated training, so that its ratios alone would be too near to one.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pairs
from pairs import Held

from perfdoctor.diagnosis import calibration
from perfdoctor.diagnosis.calibration import OTHERS, SavingSpread
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.rulebook import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ROOT = Path(__file__).parents[1]
TABLE = _ROOT / "src" / "perfdoctor" / "diagnosis" / "calibration.toml"
PAGE = _ROOT / "docs" / "savings.md"
BEGIN, END = "<!-- pairs: begin, `make calibration` writes this -->", "<!-- pairs: end -->"
#: Outside of the range may be so many on either side: an 80 % interval.
_TAIL = 0.1
#: Of fewer ratios no one bounds the next in nine of ten cases.
FEWEST = round(1 / _TAIL) - 1
#: Aimed at: the share of pairs inside of their range, and how far it may be from that.
AIM, TOLERANCE = 0.80, 0.08


def bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """Which the next ratio is inside of in 80 of 100 cases; -inf and inf for fewer than nine."""
    ordered, count = sorted(ratios), len(ratios)
    if count < FEWEST:
        return -math.inf, math.inf
    # Floating point may put 0.9 · 10 a hair above 9.
    return ordered[math.floor((count + 1) * _TAIL + 1e-9) - 1], ordered[math.ceil((count + 1) * (1 - _TAIL) - 1e-9) - 1]


def spreads(found: Sequence[Held], planted: Mapping[str, SavingSpread]) -> dict[str, SavingSpread]:
    """By category, and for others: how far measured savings lie from likely ones. Empty where all pairs are too few."""
    by_category: dict[str, list[float]] = {name: [] for name in CATEGORIES}
    for each in found:
        if each.ratio is not None:
            by_category[each.pair.kind].append(each.ratio)
    enough = {name: bounds(ratios) for name, ratios in by_category.items() if len(ratios) >= FEWEST}
    pooled = [ratio for ratios in by_category.values() for ratio in ratios]
    if len(pooled) < FEWEST:
        return {}
    widest = _around([*enough.values(), bounds(pooled)])
    table = {}
    for name, ratios in by_category.items():
        if name in enough:
            table[name] = SavingSpread(*enough[name], len(ratios))
            continue
        faults = planted.get(name, SavingSpread(math.inf, -math.inf))
        table[name] = SavingSpread(*_around([widest, (faults.low, faults.high)]), len(ratios), faults.planted)
    table[OTHERS] = SavingSpread(*widest, len(pooled))
    return table


def _around(ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Around all of them that are known."""
    known = [each for each in ranges if math.isfinite(each[0])]
    return min(low for low, _ in known), max(high for _, high in known)


def judged_by_others(found: Sequence[Held], planted: Mapping[str, SavingSpread]) -> list[Held]:
    """Each pair with the range that all other recordings give: pairs of one recording are no strangers to each other."""
    judged = []
    for each in found:
        if not each.pair.rule:
            judged.append(each)
            continue
        others = [other for other in found if other.pair.path != each.pair.path]
        judged.append(each.with_spread(spreads(others, planted).get(each.pair.kind)))
    return judged


# --- planted faults ----------------------------------------------------------------------------------------------------


def of_planted() -> dict[str, SavingSpread]:
    """By category how far the true costs of planted faults, alone at 10 and 40 % of a step, lie from likely savings."""
    import faults  # noqa: PLC0415 it simulates trainings, for this alone

    alone = [case for case in faults.all_cases() if len(case.shares) == 1 and max(case.shares.values()) in (0.1, 0.4)]
    ratios: dict[str, list[float]] = {}
    for rule, score in faults.scores(faults.judge_all([case for case in alone if case.ranks <= 8])).items():
        ratios.setdefault(load_rules()[rule].category, []).extend(1 / promise for promise in score.promises if promise)
    return {name: SavingSpread(*bounds(found), 0, len(found)) for name, found in ratios.items() if len(found) >= FEWEST}


def known_planted() -> dict[str, SavingSpread]:
    """The same as it was written last."""
    document = tomllib.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    return {name: SavingSpread(**row) for name, row in document.get("planted", {}).items()}


# --- to write ----------------------------------------------------------------------------------------------------------


def table_text(table: Mapping[str, SavingSpread], planted: Mapping[str, SavingSpread]) -> str:
    lines = [
        "# Written by `python benchmarks/calibrate.py`, which says how: measured ÷ likely saving by category of rule."
    ]
    for part, rows in (("spread", table), ("planted", planted)):
        for name, row in rows.items():
            lines += ["", f"[{part}.{name}]", f"low = {row.low:.3f}", f"high = {row.high:.3f}", f"pairs = {row.pairs}"]
            lines += [f"planted = {row.planted}"] if row.planted else []
    return "\n".join(lines) + "\n"


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})"


def page_part(found: Sequence[Held], by_others: Sequence[Held]) -> Iterator[str]:
    yield "| pairs about | pairs | rules | median error of the step | inside the range | inside, calibrated without them |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for own, others in zip(pairs.coverage(found), pairs.coverage(by_others), strict=True):
        rules = {rule for each in found if own.kind in (each.pair.kind, "all") for rule in each.pair.fixed}
        name = CATEGORIES[own.kind].title.lower() if own.kind in CATEGORIES else own.kind
        yield (
            f"| {name} | {own.pairs} | {len(rules & set(load_rules()))} | {own.median_error:.1%} | "
            f"{share(own.inside, own.pairs)} | {share(others.inside, others.pairs)} |"
        )
    yield ""
    yield "| pair | fixed | step | predicted | measured | off |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for each in found:
        least, likely, most = each.predicted_ms
        yield (
            f"| {each.pair.label} | {', '.join(f'`{rule}`' for rule in each.pair.fixed)} | {each.base_ms:.1f} ms | "
            f"{likely:.1f} ({least:.1f} to {most:.1f}) | {each.measured_ms:.1f} | "
            f"{pairs.off(each)} |"
        )


def with_part(text: str, part: str) -> str:
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{part}\n{END}{rest.split(END)[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--planted", action="store_true", help="plant faults anew")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where coverage is not as aimed at")
    given = parser.parse_args()
    given_pairs = pairs.pairs()
    planted = of_planted() if given.planted else known_planted()
    if not given.check:
        table = spreads(pairs.held([pair for pair in given_pairs if pair.rule]), planted)
        TABLE.write_text(table_text(table, planted), "utf-8")
        calibration.known.cache_clear()
    found = pairs.held(given_pairs)
    part = "\n".join(page_part(found, judged_by_others(found, planted)))
    print(part)
    if not given.check:
        PAGE.write_text(with_part(PAGE.read_text("utf-8"), part), "utf-8")
    inside = sum(each.holds for each in found) / len(found)
    return int(given.check and abs(inside - AIM) > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
