"""What is each rule? Its words, thresholds and fixes, read from `rules/*.toml`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import ShippedTables, parsed, shipped_folder, shipped_table
from perfdoctor.vocabulary import derivations
from perfdoctor.vocabulary.derivations import RuleDerivation
from perfdoctor.vocabulary.names.frameworks import FACTS, NOT, holds
from perfdoctor.vocabulary.nearest import near
from perfdoctor.vocabulary.needs import NEEDS, is_need, wanted
from perfdoctor.vocabulary.parts import SHRINKS

#: The work that a fix needs, the least first.
EFFORTS = ("minutes", "hours", "days")
#: Why a threshold is what it is, where the user says so.
SET_BY_USER, SET_BY_CALLER = "set in pyproject.toml", "set by the caller"
#: Pages that speak of PyTorch.
_OF_TORCH = regex(r"torch", re.IGNORECASE)
#: TOML takes a name with a slash in quotes alone.
_BARE_ID = regex(r"^\s*\[tool\.perfdoctor\.thresholds\.([\w-]+/[\w-]+)\]", re.MULTILINE)
#: Fields of a document as they are in the rule.
_TEXTS = ("id", "title", "category", "since", "status", "summary")
_OPTIONAL_LISTS = ("symptom_of", "hidden_by", "needs_without_gpu", "verdict", "when")
_FILLED = regex(r"\{(\w+)\|([^{}|]*)\}")


class Threshold(Struct, frozen=True):
    """A number a detector compares with, and why it is that number."""

    value: float
    unit: str
    why: str


class RuleFix(Struct, frozen=True):
    """One way to fix it. `situations`: the evidence it fits, () for all (see Rule.summaries).

    `when`: what must be so in the recorded program, each one of `frameworks.FACTS` or its opposite (`not compiled`).
    `needs`: what must be there for it to be of use, each one of `needs.NEEDS` or a version (`torch 2.4`); where that is
    known to be missing the fix is left out, and where it is not known the fix says so.
    `how` may hold numbers of the finding: see `filled`.
    """

    title: str
    how: str
    effort: str
    changes_numerics: bool
    situations: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def filled(self, values: Mapping[str, object]) -> str:
        """`how` with the finding's numbers: `{workers|8}` becomes the value of that name, or 8 where there is none."""

        def text(found: re.Match[str]) -> str:
            value = values.get(found[1]) or found[2]
            return f"{value:.3g}" if isinstance(value, float) else str(value)

        return _FILLED.sub(text, self.how)

    @property
    def caution(self) -> str:
        """All that it needs, in words, as nothing is known of a program yet."""
        return wanted(self.needs)

    def fits(self, situation: str, facts: frozenset[str]) -> bool:
        """Is it a fix of such a finding, in a program of which these facts are known?"""
        named = not self.situations or situation in self.situations
        return named and all(holds(condition, facts) for condition in self.when)


class RuleOrigin(Struct, frozen=True):
    """The place of a rule from elsewhere. `name`: as reports show it; `folder`: of both of its files."""

    name: str
    folder: str


class Rule(Struct, frozen=True):
    """One rule's document. `needs` are signals of the Timeline, and "steps", "places", "ranks" (see `diagnose`).

    `summaries` has other words for a situation that the detector names; `summary` is for all others. `clauses` are
    parts of these sentences that stand where a value is known (`vocabulary/sentences.py`). `symptom_of` names the
    rules whose fix makes this one vanish. `hidden_by` says what may hide its saving: "loader", since the fix makes
    work on the device faster, which saves nothing while a loader beside the training is the limit; "host", since it
    takes next to no work off the host, and saves no more than the host has to spare. `needs_without_gpu` takes the
    place of `needs` on a run without a GPU, for a rule that sees the same fault there in other signals. `action` is
    what its fix makes shorter when the step is replayed (see `replay/edits/actions.py`), "" where that cannot be
    replayed. `verdict`: the situations in which its summary is what a report says first, although it saves no time;
    in others a finding of such a rule is a note, and comes last.
    `doubt` says, as half a sentence, why the detector is not sure where it is not; `doubts` in situations, or those
    that a finding names. `when`: what must be so in the program for the rule to say anything, as in a fix.
    `inference`: other words for fields (`title`, `why`, …) in a recording of a program that answers requests;
    `without_torch`: of one that is proven to be another framework's, or of none; `without_gpu`: of a run without a
    GPU, which speaks of none.
    `derivation`: how its saving is computed, None where it saves no time; `planted`: why that is less or more than what
    its planted fault really costs, as one sentence. `origin`: where it lies, None if it comes with
    perfdoctor; `broken`: why its document cannot be used, which only that of a rule from elsewhere may be.
    """

    id: str
    title: str
    category: str
    since: str
    status: str
    needs: tuple[str, ...]
    summary: str
    why: str
    not_a_problem_when: str
    references: tuple[str, ...]
    thresholds: Mapping[str, Threshold]
    fixes: tuple[RuleFix, ...]
    summaries: Mapping[str, str]
    clauses: Mapping[str, str] = field(default_factory=dict)
    symptom_of: tuple[str, ...] = ()
    hidden_by: tuple[str, ...] = ()
    action: str = ""
    needs_without_gpu: tuple[str, ...] = ()
    doubt: str = ""
    doubts: Mapping[str, str] = field(default_factory=dict)
    verdict: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    inference: Mapping[str, str] = field(default_factory=dict)
    without_torch: Mapping[str, str] = field(default_factory=dict)
    without_gpu: Mapping[str, str] = field(default_factory=dict)
    derivation: RuleDerivation | None = None
    planted: str = ""
    origin: RuleOrigin | None = None
    broken: str = ""

    @property
    def module(self) -> str:
        """The name of its detector's file, without `.py`."""
        return self.id.rpartition("/")[2].replace("-", "_")

    @property
    def saves_time(self) -> bool:
        """Can what it finds save time by itself, in one of its situations at least?"""
        known = self.derivation
        return known is not None and any(each.high != "0" for each in (known, *known.situations.values()))

    def applies(self, facts: frozenset[str]) -> bool:
        """May it find anything in a program of which these facts are known?"""
        return all(holds(condition, facts) for condition in self.when)

    def fixes_for(self, situation: str, facts: frozenset[str]) -> tuple[RuleFix, ...]:
        """The fixes of such a finding, what needs minutes first; of one effort in the order of the document.

        The document names first what its saving is predicted of.
        """
        fitting = (fix for fix in self.fixes if fix.fits(situation, facts))
        return tuple(sorted(fitting, key=lambda fix: EFFORTS.index(fix.effort)))

    def in_words_of(self, facts: frozenset[str], *, without_gpu: bool = False) -> Rule:
        """The rule in words that fit a program with these `facts`, and a run with or `without_gpu`."""
        is_torch = "torch" in facts
        words: dict[str, Any] = {
            **(self.inference if "inference" in facts else {}),
            **({} if is_torch else self.without_torch),
            **(self.without_gpu if without_gpu else {}),
        }
        if not is_torch:
            words["references"] = tuple(each for each in self.references if not _OF_TORCH.search(each))
        return replace(self, **words) if words else self

    @property
    def at(self) -> Mapping[str, float]:
        """The thresholds' values, as a detector gets them."""
        return {name: threshold.value for name, threshold in self.thresholds.items()}


def rules_folder() -> Path:
    """Return the folder of the rules: inside an installed wheel, else beside `src/` in a checkout."""
    return shipped_folder("rules")


def rule_files() -> list[Path]:
    """One file a rule, in alphabetical order of their ids; the folder is the category."""
    return sorted(rules_folder().rglob("*.toml"), key=lambda path: path.stem)


@lru_cache(maxsize=1)
def load_rules() -> dict[str, Rule]:
    """Every rule by id, in alphabetical order. Raises PerfdoctorError, which names the file, for one that is wrong."""
    tables = ShippedTables("rules")
    rules = {path.stem: _read(path, tables) for path in rule_files()}
    tables.keep()
    return rules


def _read(path: Path, tables: ShippedTables) -> Rule:
    where = f"rules/{path.parent.name}/{path.name}"
    try:
        rule = rule_of(tables.read(path))
    except PerfdoctorError as error:
        raise PerfdoctorError(f"{where}: {error.what}", do=error.do) from error
    except KeyError as error:
        do = "Write it as a neighbour does: no rule leaves it out."
        raise PerfdoctorError(f"{where}: there is no field {error.args[0]!r}", do=do) from error
    except (TypeError, ValueError) as error:
        raise PerfdoctorError(f"{where} cannot be read: {error}", do="Compare it with a neighbour.") from error
    return rule


def rule_of(document: Mapping[str, Any]) -> Rule:
    """Parse a rule's document. Raises PerfdoctorError, KeyError, TypeError or ValueError if it is wrong."""
    fields: dict[str, Any] = {name: document[name] for name in _TEXTS}
    fields |= {name: document[name].strip() for name in ("why", "not_a_problem_when")}
    fields |= {name: tuple(document[name]) for name in ("needs", "references")}
    fields |= {name: tuple(document.get(name, ())) for name in _OPTIONAL_LISTS}
    fields |= {name: document.get(name, "") for name in ("action", "doubt", "planted")}
    fields |= {name: dict(document.get(name, {})) for name in ("summaries", "clauses", "doubts")}
    for name in ("inference", "without_torch", "without_gpu"):
        fields[name] = {field: text.strip() for field, text in document.get(name, {}).items()}
    rule = Rule(
        thresholds={name: _threshold(entry) for name, entry in document["thresholds"].items()},
        fixes=tuple(_fix(entry) for entry in document["fix"]),
        derivation=derivations.read(document["derivation"]) if "derivation" in document else None,
        **fields,
    )
    if rule.action:
        known(rule.action, SHRINKS, "action")
    return rule


def _threshold(entry: str | Mapping[str, Any]) -> Threshold:
    """One of its own, or the one of that name that rules have in common."""
    if isinstance(entry, str):
        return shared_thresholds()[known(entry, shared_thresholds(), "threshold in vocabulary/thresholds.toml")]
    return Threshold(**entry)


@lru_cache(maxsize=1)
def shared_thresholds() -> dict[str, Threshold]:
    """The thresholds that several rules have in common, by the name under which documents refer to them."""
    table = shipped_table(Path(__file__).with_name("thresholds.toml"))
    return {name: Threshold(**entry) for name, entry in table.items()}


def _fix(entry: Mapping[str, Any]) -> RuleFix:
    situations, when = tuple(entry.get("situations", ())), tuple(entry.get("when", ()))
    for condition in when:
        known(condition.removeprefix(NOT), FACTS, "fact in vocabulary/names/frameworks.py")
    needs = tuple(entry.get("needs", ()))
    for need in needs:
        if not is_need(need):
            known(need, NEEDS, "need in vocabulary/needs.toml")
    how = entry["how"].strip("\n")
    return RuleFix(entry["title"], how, entry["effort"], entry["changes_numerics"], situations, when, needs)


def with_thresholds(rules: Mapping[str, Rule], config: Path) -> dict[str, Rule]:
    """The rules with the thresholds that `[tool.perfdoctor.thresholds.<rule>]` of the pyproject.toml `config` sets.

    It may name rules from elsewhere that were not loaded. Raises PerfdoctorError for an unknown rule or threshold,
    naming the known ones.
    """
    loaded = {rule_id.partition("/")[0] for rule_id in rules if "/" in rule_id}
    table = settings_of(config).get("thresholds", {})
    if not isinstance(table, dict) or not all(isinstance(entries, dict) for entries in table.values()):
        raise PerfdoctorError(
            f"the thresholds in {config.name} are no table of tables",
            do="Write [tool.perfdoctor.thresholds.<rule>] and under it threshold = number.",
        )
    wanted = {each: table[each] for each in table if "/" not in each or each.partition("/")[0] in loaded}
    return with_values(rules, wanted, config.name, SET_BY_USER)


def with_values(
    rules: Mapping[str, Rule], values: Mapping[str, Mapping[str, object]], where: str, why: str
) -> dict[str, Rule]:
    """The rules with thresholds from `values`, by rule and name. `where`: for errors; `why`: in reports."""
    changed = dict(rules)
    for rule_id, entries in values.items():
        rule = changed[known(rule_id, changed, "rule")]
        thresholds = dict(rule.thresholds)
        for name, value in entries.items():
            known(name, thresholds, f"threshold of {rule_id}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise PerfdoctorError(f"the threshold {rule_id}.{name} in {where} is {value!r}", do="Give it a number.")
            if is_share(name, thresholds[name].unit) and not 0 <= value <= 1:
                raise PerfdoctorError(
                    f"the threshold {rule_id}.{name} in {where} is {value}, and a {thresholds[name].unit}",
                    do="Give it a number from 0 to 1: 0.04 is 4 %.",
                )
            thresholds[name] = replace(thresholds[name], value=float(value), why=why)
        changed[rule_id] = replace(rule, thresholds=thresholds)
    return changed


def is_share(threshold: str, unit: str) -> bool:
    """Is such a threshold a part of a whole, from 0 to 1?"""
    return "share" in threshold or unit.startswith(("share of", "fraction of step time"))


def settings_of(config: Path) -> Mapping[str, Any]:
    """Return `[tool.perfdoctor]` of the pyproject.toml at `config`; empty if there is no such file or table."""
    if not config.is_file():
        return {}
    try:
        table: object = parsed(config.read_text("utf-8"))
    except (OSError, ValueError) as error:
        is_here = config.resolve().parent == Path.cwd()
        where, do = (f"{config.name} here", "Mend it, or run elsewhere.") if is_here else (str(config), "Mend it.")
        if isinstance(error, ValueError) and (bare := _BARE_ID.search(config.read_text("utf-8", "replace"))):
            do = f'An id with / needs quotes: [tool.perfdoctor.thresholds."{bare[1]}"].'
        raise PerfdoctorError(f"{where} cannot be read: {error}", do=do) from error
    for key in ("tool", "perfdoctor"):
        table = table.get(key, {}) if isinstance(table, dict) else table
    if not isinstance(table, dict):
        raise PerfdoctorError(f"[tool.perfdoctor] in {config.name} is no table", do="Write names and values below it.")
    return table


def known(name: str, names: Mapping[str, object], what: str) -> str:
    """The name, if it is one of `names`; else a PerfdoctorError that lists the nearest."""
    if name in names:
        return name
    raise PerfdoctorError(f"there is no {what} named {name!r}", do=near(name, sorted(names)))
