"""`perfdoctor rules` with its commands: what is checked, a new rule of one's own, and the contract for rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from perfdoctor.cli import completion, examples, say, shared_options
from perfdoctor.cli import rules as listed
from perfdoctor.errors import UsageError

if TYPE_CHECKING:
    from perfdoctor.own_rules.contract import Checked

#: As `perfdoctor check`: the condition is met.
NOT_KEPT = 3
DEFAULT_FOLDER = Path("perfdoctor-rules")


class _Group(TyperGroup):
    """What is no command is a rule: `perfdoctor rules input-wait` explains it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["explain", *args])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        every = super().shell_complete(ctx, "")
        item = type(every[0])  # click's, or typer's own: later versions of typer do without click
        found = [item(name, help=title) for name, title in completion.rules(ctx, incomplete)]
        return [*found, *super().shell_complete(ctx, incomplete)]


app = typer.Typer(cls=_Group, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True, epilog=examples.of("rules"), subcommand_metavar="[RULE] | COMMAND [ARGS]...")
def _rules(
    context: typer.Context,
    *,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the ids, one a line.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also what each rule needs recorded.")] = False,
    format_: Annotated[
        listed.RulesFormat | None,
        typer.Option("--format", help="json: every rule with its texts, thresholds and fixes."),
    ] = None,
    own_rules: shared_options.OwnRules = None,
    config: shared_options.Config = None,
) -> None:
    """List what is checked; begin and check rules of your own."""
    if context.invoked_subcommand is None:
        listed.list_rules(shared_options.all_rules(own_rules, config), format_, quiet=quiet, verbose=verbose)
    elif context.invoked_subcommand == "explain" and format_ is not None:
        raise typer.BadParameter("--format is for the list of rules.")
    else:
        context.obj = (own_rules, config)


app.command("explain", epilog=examples.of("explain"), hidden=True)(listed.explain)


@app.command("new", epilog=examples.of("rules new"))
def _new(
    rule: Annotated[str, typer.Argument(metavar="ID", help="Its namespace and name: acme/slow-tokenizer.")],
    *,
    into: Annotated[Path, typer.Option(metavar="DIR", help="The folder that gets the files.")] = DEFAULT_FOLDER,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the files.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="As without it.")] = False,  # noqa: ARG001
) -> None:
    """Begin a rule of your own: its document, its detector and a test."""
    from perfdoctor.own_rules import skeleton

    files = skeleton.write(rule, into)
    for file in files:
        say.line(str(file))
    if not quiet:
        for line in (
            f"It works as it is: it finds {skeleton.FINDS}.",
            "Write the words marked TODO, and what it seeks; then:",
            f"  perfdoctor rules check {into}",
            f"  perfdoctor analyze RECORDING --rules {into}",
        ):
            say.line(line, err=True)


@app.command("check", epilog=examples.of("rules check"))
def _check(
    places: Annotated[list[str], typer.Argument(metavar="DIR", help="Folders with rules.")],
    *,
    on: Annotated[
        list[Path] | None,
        typer.Option("--on", metavar="PATH", help="Also try them in this recording; may be repeated."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what is wrong, one a line.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also print which rule is checked.")] = False,
) -> None:
    """Hold rules of your own to the contract that ours keep, and run their tests. Exits with 3 if one breaks it."""
    from perfdoctor.own_rules.contract import check
    from perfdoctor.readers.open import read
    from perfdoctor.vocabulary.own_rules import all_rules

    known = all_rules(places)
    real = []
    for path in on or []:
        if not path.exists():
            raise UsageError(f"--on {path}: there is no such recording", do="Name a run folder, a trace or a report.")
        real.append((str(path), read([path])))
    checked = []
    for rule in (rule for rule in known.values() if rule.origin):
        if verbose:
            say.note(f"checking {rule.id}")
        checked.append(check(rule, known, real))
        _print(checked[-1], quiet=quiet)
    kept = sum(not each.problems for each in checked)
    if not quiet:
        say.line(f"{kept} of {len(checked)} {'rule keeps' if len(checked) == 1 else 'rules keep'} the contract.")
    if kept < len(checked):
        raise typer.Exit(NOT_KEPT)


def _print(checked: Checked, *, quiet: bool) -> None:
    if not quiet:
        say.line(f"{'ok ' if not checked.problems else 'no '} {checked.rule.id}  {_summary(checked)}")
    for problem in checked.problems:
        of_one_line = problem.splitlines()[0]
        place = f"{checked.rule.origin.name}/" if checked.rule.origin else ""
        for line in [f"{place}{of_one_line}"] if quiet else f"    {problem}".splitlines():
            say.line(line)
    for line in () if quiet else (line for note in checked.notes for line in f"    {note}".splitlines()):
        say.line(line)


def _summary(checked: Checked) -> str:
    """`15 recordings; its test: found in 1, silent in 3; 0.8 ms for 200,000 kernels (all of ours: 210 ms)`."""
    parts = [f"{checked.tried} recordings"] if checked.tried else []
    if checked.fired or checked.silent:
        parts.append(f"its test: found in {checked.fired}, silent in {checked.silent}")
    if (speed := checked.speed) is not None:
        parts.append(
            f"{1e3 * speed.seconds:.1f} ms for {speed.kernels:,} kernels (all rules of perfdoctor: "
            f"{1e3 * speed.ours:.0f} ms)"
        )
    return "; ".join(parts)
