"""`perfdoctor rules` and `perfdoctor explain`: what is checked, and how is it fixed?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdoctor.cli import completion, say, shared_options
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.report.json_document import NAME
from perfdoctor.vocabulary.rule_patterns import fitting, near

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from perfdoctor.vocabulary.rulebook import Rule

#: With fewer columns titles are printed below the ids, not beside them.
_LEAST_BESIDE = 32


class RulesFormat(str, Enum):
    """How the list of rules is written."""

    TEXT = "text"
    JSON = "json"


def list_rules(known: Mapping[str, Rule], format_: RulesFormat | None, *, quiet: bool, verbose: bool) -> None:
    """Print every rule and what it finds: as JSON, as ids alone if `quiet`, else as a table."""
    if format_ is RulesFormat.JSON:
        import json

        say.document(f"{json.dumps([_as_json(rule) for rule in known.values()], ensure_ascii=False, indent=2)}\n")
    elif quiet:
        for name in known:
            say.line(name)
    else:
        from perfdoctor.report.terminal_text import Terminal

        console, rules = Terminal(), list(known.values())
        lines = _grouped(rules, console, verbose=verbose) if console.is_terminal else _rows(rules, verbose=verbose)
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)


def explain(
    *,
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE|RUN",
            help="A rule's id, as reports name it; or a run folder or diagnosis.json, for all that was found there.",
            autocompletion=completion.rules,
        ),
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the fixes.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also what the rule needs recorded.")] = False,
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
) -> None:
    """Explain a rule with every fix, or what was found in a run."""
    if _is_run(rule):
        explain_run(Path(rule), quiet=quiet)
        return
    from perfdoctor.report.rule_page import print_page
    from perfdoctor.report.terminal_text import Terminal

    known = shared_options.all_rules(own_rules, config)
    found, *others = chosen([rule], known)
    if others:
        raise UsageError(f"{rule} are {len(others) + 1} rules", do=f"Name one, as {found.id}.")
    if found.broken:
        raise PerfdoctorError(f"the rule {rule} cannot be used: {found.broken}", do="Mend the file.")
    print_page(found, known, Terminal(), quiet=quiet, verbose=verbose)


def _is_run(text: str) -> bool:
    """Is it no rule but a place? The id of a rule may be a folder's name as well, and means the rule."""
    path = Path(text)
    return path.suffix == ".json" or (path.is_dir() and ((path / NAME).is_file() or text in (".", "..") or "/" in text))


def explain_run(path: Path, *, quiet: bool) -> None:
    """Print what was found in the run, with the fixes that fit. Raises UsageError where no diagnosis is there."""
    from perfdoctor.cli.scale_options import run_below
    from perfdoctor.report import run_page
    from perfdoctor.report.stored_diagnosis import stored
    from perfdoctor.report.terminal_text import Terminal

    folder = run_below(path)
    file = folder / NAME if folder.is_dir() else folder
    diagnosis = stored(str(path), file) if file.is_file() else None
    if diagnosis is None:
        raise UsageError(
            f"{path} holds no diagnosis", do=f"Write it: perfdoctor analyze {path} --json {NAME}, and explain that."
        )
    run_page.print_page(diagnosis, Terminal(), quiet=quiet)


def chosen(names: Sequence[str], known: Mapping[str, Rule]) -> list[Rule]:
    """The rules that fit these ids or patterns. Raises typer.BadParameter, with the nearest ids, where none does."""
    found: dict[str, Rule] = {}
    for name in names:
        here = fitting(name, known)
        if not here and "/" in name and not any(rule.origin for rule in known.values()):
            raise typer.BadParameter(
                f"there is no rule and no run {name!r}. A rule of your own is used with --rules DIR."
            )
        if not here:
            raise typer.BadParameter(f"there is no rule {name!r}. {near(name, known)}")
        found.update({each: known[each] for each in here})
    return list(found.values())


def _rows(rules: Sequence[Rule], *, verbose: bool) -> Iterator[Text]:
    """One line a rule, however long, below a heading: piped output is for grep."""
    from rich.text import Text

    from perfdoctor.report.terminal_text import columns
    from perfdoctor.report.words.foreign_text import clean

    table = [["rule", "category", "what it finds", "status", *(["needs"] if verbose else [])]]
    table += [
        [rule.id, rule.category, _what(rule), rule.status, *([", ".join(rule.needs)] if verbose else [])]
        for rule in rules
    ]
    if any(rule.origin for rule in rules):
        origins = ["from", *(rule.origin.name if rule.origin else "perfdoctor" for rule in rules)]
        table = [[*row, clean(origin)] for row, origin in zip(table, origins, strict=True)]
    return columns([[Text(cell) for cell in row] for row in table], words=range(len(table[0])))


def _what(rule: Rule) -> str:
    """What the rule finds; of one that cannot be used, why."""
    from perfdoctor.report.words.foreign_text import clean

    return clean(rule.broken or rule.title) if rule.origin else rule.title


def _grouped(rules: Sequence[Rule], console: Console, *, verbose: bool) -> Iterator[Text]:
    """The rules by category, for a terminal: titles beside the ids, or under them where it is narrow."""
    from rich.text import Text

    from perfdoctor.report.terminal_text import WIDEST, wrapped
    from perfdoctor.report.words.foreign_text import clean
    from perfdoctor.vocabulary.categories import CATEGORIES

    width = min(console.width, WIDEST)
    beside = max(len(rule.id) for rule in rules) + 4
    indent = " " * (beside if width - beside >= _LEAST_BESIDE else 4)
    for place, category in enumerate(category for category in CATEGORIES if any(r.category == category for r in rules)):
        yield from (Text() for _ in range(place > 0))
        yield Text(category, "bold")
        for rule in (rule for rule in rules if rule.category == category):
            words = Text(_what(rule))
            if rule.status != "stable":
                words.append(f"  {'not usable' if rule.broken else rule.status}", "yellow")
            if rule.origin:
                words.append(f"  from {clean(rule.origin.name)}", "dim")
            if verbose:
                words.append(f"  needs {', '.join(rule.needs)}", "dim")
            lines = wrapped(words, console, width, indent)
            name = Text("  ").append(rule.id, "cyan")
            if len(indent) == beside:
                first = next(lines)
                yield name + first[name.cell_len :]
            else:
                yield name
            yield from lines
    yield Text()
    yield from wrapped(Text(f"{len(rules)} rules. One with its fixes: perfdoctor explain RULE", "dim"), console, width)


def _as_json(rule: Rule) -> dict[str, Any]:
    """All fields of the rule; of one that is not ours also its folder, and why it cannot be used, if so."""
    from msgspec import to_builtins

    document = to_builtins(rule)
    del document["origin"], document["broken"]
    if rule.origin:
        document["origin"] = rule.origin.name
    return {**document, "broken": rule.broken} if rule.broken else document
