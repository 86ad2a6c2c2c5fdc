"""`perfdoctor rules` and `perfdoctor explain`: what is looked for, and how is it fixed?"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.text import Text

    from perfdoctor.rulebook import Rule, RuleFix

WIDEST = 100
RULES_EXAMPLES = """\b
Examples:
  perfdoctor rules
  perfdoctor rules --quiet | grep copies
"""
EXPLAIN_EXAMPLES = """\b
Example:
  perfdoctor explain input-wait
"""


def rules(
    *,
    rule: Annotated[str | None, typer.Argument(help="Explain this one instead.", metavar="[RULE]")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the ids, one a line.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also what each rule needs recorded.")] = False,
) -> None:
    """What is looked for: every rule, and what it finds."""
    from perfdoctor.rulebook import load_rules

    known = load_rules()
    if rule is not None:
        _print(_page(chosen([rule], known)[0], quiet=quiet, verbose=verbose))
    elif quiet:
        for name in known:
            typer.echo(name)
    else:
        _print_table(list(known.values()), verbose=verbose)


def explain(
    *,
    rule: Annotated[str, typer.Argument(help="A rule's id, as reports and `perfdoctor rules` name it.")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the fixes.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also what the rule needs recorded.")] = False,
) -> None:
    """One rule: why it matters, when it does not, and every fix with its code."""
    from perfdoctor.rulebook import load_rules

    _print(_page(chosen([rule], load_rules())[0], quiet=quiet, verbose=verbose))


def chosen(names: Sequence[str], known: Mapping[str, Rule]) -> list[Rule]:
    """The rules with these ids; a usage error that lists the nearest for one that is not known."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"Did you mean {', '.join(near)}?" if near else "`perfdoctor rules` lists them."
            raise typer.BadParameter(f"there is no rule {name!r}. {hint}")
    return [known[name] for name in names]


def _print_table(rules: Sequence[Rule], *, verbose: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("rule", "category", "what it finds", "status", *(["needs"] if verbose else [])):
        # Piped output is for grep: one line a rule, however long.
        table.add_column(heading, no_wrap=heading in ("rule", "category", "status") or not console.is_terminal)
    for rule in rules:
        needs = [Text(", ".join(rule.needs))] if verbose else []
        table.add_row(Text(rule.id), Text(rule.category), Text(rule.title), Text(rule.status), *needs)
    if not console.is_terminal:
        console.width = 400
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip(), color=True)


def _print(lines: Iterable[Text]) -> None:
    from rich.console import Console

    console = Console()
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)


def _page(rule: Rule, *, quiet: bool, verbose: bool) -> Iterator[Text]:
    from rich.text import Text

    if not quiet:
        yield from _what_it_is(rule, verbose=verbose)
    for number, fix in enumerate(rule.fixes):
        if number or not quiet:
            yield Text()
        yield from _fix(fix)
    if rule.references and not quiet:
        yield from (Text(), Text("Read on", "bold"), *(Text(f"  {reference}") for reference in rule.references))


def _what_it_is(rule: Rule, *, verbose: bool) -> Iterator[Text]:
    from rich.text import Text

    yield Text(rule.title, "bold")
    yield Text(f"{rule.id} · {rule.category} · {rule.status}, since {rule.since}", "bright_black")
    paragraphs = [Text(rule.why)]
    if rule.not_a_problem_when:
        paragraphs.append(Text.assemble(("No problem when: ", "bold"), rule.not_a_problem_when))
    if verbose:
        paragraphs.append(Text.assemble(("Needs: ", "bold"), ", ".join(rule.needs) or "nothing"))
    for paragraph in paragraphs:
        yield from (Text(), *_wrapped(paragraph))
    if rule.thresholds:
        yield from (Text(), Text("Thresholds", "bold"))
    for name, threshold in rule.thresholds.items():
        yield Text.assemble("  ", (name, "cyan"), f" = {threshold.value:g} ({threshold.unit})")
        yield from _wrapped(Text(threshold.why), indent="    ")


def _fix(fix: RuleFix) -> Iterator[Text]:
    from rich.text import Text

    from perfdoctor.report.fix_text import blocks
    from perfdoctor.report.wording import fix_terms

    terms = fix_terms(fix.effort, changes_numerics=fix.changes_numerics)
    yield from _wrapped(Text.assemble(("Fix: ", "bold"), (fix.title, "bold"), (f" ({terms})", "bright_black")))
    for block in blocks(fix.how):
        yield Text()
        if block.code:  # in lines of its own length, so that it can be pasted
            yield from (Text(f"    {line}".rstrip(), "cyan") for line in block.text.splitlines())
        else:
            yield from _wrapped(Text(block.text))


def _wrapped(text: Text, indent: str = "") -> Iterator[Text]:
    from rich.console import Console

    from perfdoctor.report.terminal import wrapped

    console = Console()
    return wrapped(text, console, min(console.width, WIDEST), indent)
