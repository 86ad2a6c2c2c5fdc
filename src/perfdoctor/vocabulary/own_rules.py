"""Which rules are not ours? Two files each in a folder that was named.

They are code, and only what the user names is read: no folder of a recording, and none that happens to lie here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import parsed
from perfdoctor.vocabulary import derivations
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.parts import SHRINKS
from perfdoctor.vocabulary.rulebook import Rule, RuleOrigin, known, load_rules, rule_of, settings_of
from perfdoctor.vocabulary.signals import NEEDS

#: `acme/slow-tokenizer`: never the id of a rule of ours, which has no namespace.
ID = regex(r"([a-z][a-z0-9]*(?:-[a-z0-9]+)*)/([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
RESERVED = ("perfdoctor",)
_LONGEST_ID = 80
#: Documents of other programs that may lie beside.
_OTHERS = frozenset({"pyproject.toml", "ruff.toml", "mypy.toml", "uv.toml", "pixi.toml", "poetry.toml"})
#: Without one of these a document is no rule.
REQUIRED = (
    "id", "title", "category", "since", "status", "needs", "summary", "why", "not_a_problem_when", "references",
    "thresholds", "fix",
)  # fmt: skip
_TEXTS = ("id", "title", "category", "since", "status", "summary", "why", "not_a_problem_when", "action", "doubt")
_LISTS = ("needs", "references", "symptom_of", "hidden_by", "needs_without_gpu", "verdict", "when")


def with_own(rules: Mapping[str, Rule], places: Iterable[str], base: Path | None = None) -> dict[str, Rule]:
    """Return `rules`, followed by those in each folder of `places`, which are relative to `base`.

    One whose document cannot be used is among them, and says why in `broken`. Raises UsageError for a place that is
    none, or holds no rule.
    """
    found = dict(rules)
    for place in dict.fromkeys(places):
        for path, origin in _documents(place, base):
            rule = _read(path, origin)
            if rule.id in found:
                other = found[rule.id].origin
                why = f"{path.name}: the id {rule.id} is also that of a rule of {other.name if other else 'perfdoctor'}"
                rule = _broken(path, origin, rule.broken or why, _free_id(path, found))
            found[rule.id] = rule
    return found


def all_rules(places: Sequence[str] = (), config: Path | None = None) -> dict[str, Rule]:
    """All rules: ours, those that `config` names (relative to its folder), and those of these places."""
    rules = load_rules()
    if config is not None:
        rules = with_own(rules, named_in(config), config.parent)
    return with_own(rules, places)


def named_in(config: Path) -> list[str]:
    """The places in `[tool.perfdoctor] rules` of a pyproject.toml. Raises UsageError where they are no list."""
    places = settings_of(config).get("rules", [])
    if not isinstance(places, list) or not all(isinstance(place, str) and place.strip() for place in places):
        raise UsageError(
            f"rules in {config.name} is no list of folders", do='Write rules = ["perf/rules"] below [tool.perfdoctor].'
        )
    return places


def read(document: Path) -> Rule:
    """The rule of one document, which may say in `broken` why it cannot be used."""
    path = document.resolve()
    return _read(path, RuleOrigin(_shown(path.parent), str(path.parent)))


def _documents(place: str, base: Path | None) -> Iterator[tuple[Path, RuleOrigin]]:
    """Return the documents of rules in the folder `place` (relative to `base`), each with where it lies."""
    folder = ((base or Path()) / Path(place).expanduser()).resolve()
    if not folder.is_dir():
        what = "is a file" if folder.is_file() else "does not exist"
        raise UsageError(f"the folder of rules {place} {what}", do="Name the folder that holds the rules' files.")
    origin = RuleOrigin(_shown(folder), str(folder))
    paths = sorted(path for path in folder.glob("*.toml") if path.name not in _OTHERS and not path.name.startswith("."))
    if not paths:
        raise UsageError(
            f"{origin.name} holds no rule: there is no .toml file in it",
            do="Begin one: perfdoctor rules new acme/slow-tokenizer --into FOLDER",
        )
    return ((path, origin) for path in paths)


def _shown(folder: Path) -> str:
    """Return the path relative to here, or only the name of a folder elsewhere: reports reveal no paths."""
    here = Path.cwd().resolve()
    return folder.relative_to(here).as_posix() if folder.is_relative_to(here) and folder != here else folder.name


def unusable(document: Path) -> list[str]:
    """Why the rule of this document cannot be used, all reasons that are known at once; [] where it can."""
    return _rule_or_why(document, RuleOrigin("", ""))[1]


def _read(path: Path, origin: RuleOrigin) -> Rule:
    """Read the rule at `path`; a rule that is `broken`, with the reason, if its document is wrong."""
    rule, wrong, named = _rule_or_why(path, origin)
    if rule and not wrong:
        return rule
    rule_id = named if isinstance(named, str) and is_id(named) else _free_id(path, {})
    return _broken(path, origin, f"{path.name}: {'; '.join(wrong)}", rule_id)


def _rule_or_why(path: Path, origin: RuleOrigin) -> tuple[Rule | None, list[str], object]:
    """Return the rule at `path` (None if it is wrong), what is wrong with its document, and the id that it states."""
    document: Mapping[str, Any] = {}
    wrong: list[str] = []  # also what was seen before something raised
    try:
        document = parsed(path.read_text("utf-8"))
        wrong.extend(_of_types(document))
        if not wrong:
            wrong.extend(_of_names(document, path))
        if not wrong:
            return replace(rule_of(document), origin=origin), [], document["id"]
    except PerfdoctorError as error:
        wrong.append(f"{error.what}. {error.do}")
    except KeyError as error:
        wrong.append(f"there is no field {error.args[0]!r}")
    except Exception as error:  # noqa: BLE001 whatever it says instead of a rule
        wrong.append(str(error) or type(error).__name__)
    return None, wrong, document.get("id")


def is_id(text: str) -> bool:
    """Has it a namespace of its own, and a name?"""
    found = ID.fullmatch(text)
    return found is not None and found[1] not in RESERVED and len(text) <= _LONGEST_ID


def _of_types(document: Mapping[str, Any]) -> Iterator[str]:
    """Describe the fields that are missing, or are no text, list or number where they must be one."""
    for name in (*_TEXTS, *_LISTS, "thresholds", "fix"):
        if name in REQUIRED and name not in document:
            yield f"there is no field {name!r}"
    for name in _TEXTS:
        if not isinstance(document.get(name, ""), str):
            yield f"{name} is no text"
    for name in _LISTS:
        given = document.get(name, [])
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            yield f"{name} is no list of texts"
    for name in ("summaries", "clauses", "doubts", "inference", "without_gpu"):
        given = document.get(name, {})
        if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
            yield f"{name} is no table of texts"
    for name, entry in document.get("thresholds", {}).items():
        value = entry.get("value", 0) if isinstance(entry, dict) else 0
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            yield f"the value of the threshold {name} is no number"


def _of_names(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Describe names in the document at `path` that no diagnosis could use; `rules check` checks the rest."""
    yield from _of_id(document["id"], path)
    needs = (*document["needs"], *document.get("needs_without_gpu", ()))
    choices = [choice for need in needs for choice in need.split("|")]
    yield from _unknown([document["category"]], CATEGORIES, "category")
    yield from _unknown(choices, NEEDS, "signal, nor steps, places or ranks,")
    yield from _unknown([document["action"]] if document.get("action") else [], SHRINKS, "action")
    if document.get("verdict"):
        yield "verdict is for rules of perfdoctor: what saves no time is no report's first sentence"
    for fix in document["fix"]:
        if fix.get("effort") not in ("minutes", "hours", "days"):
            yield "the effort of a fix is minutes, hours or days"
    if "derivation" in document:
        how = derivations.read(document["derivation"])
        known_names = {*how.every_input, *document["thresholds"]}
        for name in sorted({name for each in (how, *how.situations.values()) for name in each.names} - known_names):
            yield f"the derivation names {name}, which is neither an input nor a threshold"


def _of_id(rule_id: str, path: Path) -> Iterator[str]:
    namespace, _, name = rule_id.partition("/")
    module = f"{name.replace('-', '_')}.py"
    if namespace in RESERVED:
        yield f"the namespace {namespace!r} is not yours: take the name of your team"
    elif not is_id(rule_id):
        yield f"the id {rule_id!r} is none: it is NAMESPACE/NAME in lower case, as acme/slow-tokenizer"
    elif path.stem != name:
        yield f"the id {rule_id!r} is that of a file {name}.toml"
    elif not path.with_name(module).is_file():
        yield f"there is no {module} beside it"


def _unknown(named: Iterable[str], names: Mapping[str, object], what: str) -> Iterator[str]:
    for name in named:
        try:
            known(name, names, what)
        except PerfdoctorError as error:  # noqa: PERF203 a handful
            yield f"{error.what}. {error.do}"


def _broken(path: Path, origin: RuleOrigin, why: str, rule_id: str) -> Rule:
    """Make a rule in place of the document at `path`: it has an outcome like any other, and finds nothing."""
    return Rule(
        id=rule_id, title=f"Not read: {path.name}", category=next(iter(CATEGORIES)), since="", status="preview",
        needs=(), summary="", why="", not_a_problem_when="", references=(), thresholds={}, fixes=(), summaries={},
        origin=origin, broken=" ".join(why.split()),
    )  # fmt: skip


def _free_id(path: Path, taken: Mapping[str, Rule]) -> str:
    """Make an id that is not in `taken` from the folder and file at `path`, for a rule whose own id cannot be used."""
    name = f"{path.parent.name}/{path.stem}"
    return next(each for each in chain([name], (f"{name}-{number}" for number in count(2))) if each not in taken)
