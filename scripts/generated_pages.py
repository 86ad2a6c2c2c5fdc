"""Which pages of the documentation follow from the code? One a rule, their list, one of all commands, and the API's.

A hook of MkDocs: the pages exist only while the site is built, so none of them can be out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import typer

from perfdoctor import api, rule_api, rule_testing
from perfdoctor.cli.main import app
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.derivations import SOURCES, plain, unit_of
from perfdoctor.vocabulary.names.frameworks import in_words
from perfdoctor.vocabulary.rulebook import Rule, load_rules
from perfdoctor.vocabulary.signals import NEEDS, SIGNALS, need_label

sys.path.insert(0, str(Path(__file__).parent))
from docstring_sections import marked
from public_api import ALIASES, MEMBERS, Member, is_class, members, names, signature

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to those of docs/, and links the list of rules with them."""
    from mkdocs.structure.files import File  # noqa: PLC0415 the generator is tested without MkDocs

    for path, text in pages().items():
        if (written := files.get_file_from_path(path)) is not None:
            files.remove(written)
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> Mapping[str, str]:
    """Every generated page by its path in the site's folder."""
    rules = sorted(load_rules().values(), key=lambda rule: rule.id)
    return {
        "rules.md": rules_page(rules, links=True),
        **{f"rules/{rule.id}.md": _rule(rule) for rule in rules},
        "commands.md": _commands(),
        "api.md": _api(),
        "rule-api.md": _rule_api(),
    }


def rules_page(rules: Sequence[Rule], *, links: bool = False) -> str:
    """All rules by category. `links` leads to the page of each, which only the site has."""
    parts = [
        "# Rules\n",
        "What perfdoctor checks. `perfdoctor explain RULE` says when a finding is not a problem, and how to fix it.\n",
    ]
    for category, (title, _) in CATEGORIES.items():
        rows = [
            f"| {f'[`{rule.id}`](rules/{rule.id}.md)' if links else f'`{rule.id}`'} | {rule.title} |"
            for rule in rules
            if rule.category == category
        ]
        parts.append("\n".join([f"## {title}\n", "| rule | finds |", "| --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def _rule(rule: Rule) -> str:
    return "\n".join([f"# {rule.title}\n", f"`{rule.id}` · {rule.category} · since {rule.since}\n", *_body(rule)])


def _body(rule: Rule) -> Iterator[str]:
    yield f"## Why it matters\n\n{rule.why}\n"
    yield f"## Not a problem when\n\n{rule.not_a_problem_when}\n"
    for number, fix in enumerate(rule.fixes):
        if number == 0:
            yield "## What to do\n"
        numerics = "changes numerics" if fix.changes_numerics else "numerics unchanged"
        terms = f"{fix.effort} of work, {numerics}{f'; {fix.caution}' if fix.caution else ''}"
        where = f"\n\n{in_words(fix.when)}" if fix.when else ""
        how = fix.filled({}).strip()
        yield f"### {fix.title}\n\n*{terms}*{where}\n\n```python\n{how}\n```\n"
    yield from _derived(rule)
    yield f"## What it needs\n\n{_needs(rule)}\n"
    if rule.thresholds:
        yield "## Thresholds\n\nSet them in `pyproject.toml`, under "
        yield f"`[tool.perfdoctor.thresholds.{rule.id}]`.\n\n| name | value | why |\n| --- | --- | --- |"
        for name, threshold in rule.thresholds.items():
            yield f"| `{name}` | {threshold.value:g} {threshold.unit} | {_cell(threshold.why)} |"
        yield ""
    yield "## More\n"
    yield from (f"* {_link(reference)}" for reference in rule.references)


def _derived(rule: Rule) -> Iterator[str]:
    """How its saving is computed, and why a planted fault costs more or less."""
    if rule.derivation:
        yield "## How the saving is computed\n"
        for situations, cases in rule.derivation.by_situations.items():
            where = f" ({', '.join(situations).replace('-', ' ')})" if situations else ""
            yield from (f"* {case}{where} = `{plain(formula)}`" for case, formula in cases.items())
        yield "\n| name | unit | source | what |\n| --- | --- | --- | --- |"
        for name, given in rule.derivation.every_input.items():
            yield f"| `{name}` | {unit_of(name)} | {SOURCES[given.source]} | {_cell(given.what)} |"
        yield f"\nFormula from: {rule.derivation.source}\n" if rule.derivation.source else ""
    if rule.planted:
        yield f"Planted faults: {rule.planted}\n"


def _needs(rule: Rule) -> str:
    """Without which signals the rule is skipped, and how each is recorded."""
    lines = [f"* {need_label(need)} (`{need}`): {NEEDS[need.split('|')[0]].hint}" for need in rule.needs]
    return "\n".join([*lines, "", "Without them the rule is *skipped*, which is not *clear*."])


def _link(reference: str) -> str:
    return f"<{reference}>" if reference.startswith(("https://", "http://")) else reference


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _commands() -> str:
    """What `--help` of every command says."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    parts = ["# Commands\n\nThe output of `--help`.\n"]
    context = click.Context(group, info_name="perfdoctor", max_content_width=100, terminal_width=100)  # type: ignore[arg-type]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = click.Context(command, info_name=name, parent=context, max_content_width=100, terminal_width=100)
        parts.append(f"## perfdoctor {name}\n\n```text\n{command.get_help(inner)}\n```\n")
        for below, its in getattr(command, "commands", {}).items():
            deeper = click.Context(its, info_name=below, parent=inner, max_content_width=100, terminal_width=100)
            parts.append(f"### perfdoctor {name} {below}\n\n```text\n{its.get_help(deeper)}\n```\n")
    return "\n".join(parts)


# --- the API ---------------------------------------------------------------------------------------------------------

#: Where JSON has the fields of a class, which docs/json.md describes.
_IN_JSON = {
    "Advice": "findings[].",
    "Bound": "findings[].derivation.bounds[].",
    "CodeLine": "findings[].lines[].",
    "Derivation": "findings[].derivation.",
    "DerivedInput": "findings[].derivation.inputs[].",
    "Fix": "findings[].fixes[].",
    "GpuInfo": "run.gpus[].",
    "KernelRow": "kernels[].",
    "Measure": "findings[].evidence[].",
    "Outcome": "outcomes[].",
    "PredictedStep": "prediction.steps[].",
    "Prediction": "prediction.",
    "Rows": "findings[].evidence[].",
    "Saving": "findings[].saving_ns_per_step.",
    "Scaling": "prediction.scaling.",
    "SourceInfo": "run.sources[].",
    "Span": "findings[].evidence[].",
    "StepStats": "run.steps.",
    "TimeSplit": "time[].",
    "Contribution": "comparison:causes[].",
    "FindingChange": "comparison:findings[].",
}
_JSON_PAGE = Path(__file__).parents[1] / "docs" / "json.md"
_BESIDE_THE_API = (
    "[From Python](python.md) shows how it is used. Public as well are `perfdoctor.rule_api` and "
    "`perfdoctor.rule_testing` for [rules of your own](own-rules.md), and `perfdoctor.integrations` for "
    "[trainers](in-your-code.md).\n"
)
_TYPES = {int: "int64", float: "float64", bool: "bool", str: "text"}


def _api() -> str:
    """Every public name, from its docstring."""
    parts = [
        "# API\n",
        marked(inspect.getdoc(api) or ""),
        _BESIDE_THE_API,
    ]
    for name in names():
        found = getattr(api, name)
        parts.append(f"## {name}\n")
        parts += _api_class(found) if is_class(found) else _api_function(name, found)
    return "\n".join([*parts, "## Types\n", *_types(), "## Signals\n", *_signals()])


def _rule_api() -> str:
    """What a rule of one's own, and its test, may import."""
    parts = [
        "# What rules may import\n",
        marked(inspect.getdoc(rule_api) or ""),
        "[Rules of your own](own-rules.md) shows how it is used; columns and names of types: [API](api.md#types).\n",
    ]
    known = [name for name in rule_api.__all__ if name in api.__all__]
    links = ", ".join(f"[`{name}`](api.md#{name.lower()})" for name in known)
    parts.append(f"As in `perfdoctor` itself: {links}.\n")
    for name in sorted(set(rule_api.__all__) - set(api.__all__)):
        found = getattr(rule_api, name)
        if (is_class(found) and hasattr(found, "__struct_fields__")) or name in MEMBERS["rule_api"]:
            parts += [f"## {name}\n", *_api_class(found)]
        elif inspect.isfunction(found):
            parts += [f"## {name}\n", *_api_function(name, found)]
    parts.append("# For tests\n\n`from perfdoctor.rule_testing import …`\n")
    for name in rule_testing.__all__:
        parts += [f"## {name}\n", *_api_function(name, getattr(rule_testing, name))]
    return "\n".join(parts)


def _api_function(name: str, function: object) -> Iterator[str]:
    yield f"```python\n{name}{_wrapped(signature(function))}\n```\n"
    yield marked(inspect.getdoc(function) or "")


def _api_class(cls: type) -> Iterator[str]:
    """What it is, then its fields in a table, then its properties and methods, each with what it says."""
    yield marked(inspect.getdoc(cls) or "")
    every = list(members(cls))
    fields = [each for each in every if not each.about]
    if fields:
        known = [field_meaning(cls.__name__, each.name) for each in fields]
        third = ("| meaning ", "| --- ") if any(known) else ("", "")
        yield f"| field | type {third[0]}|\n| --- | --- {third[1]}|"
        for each, meaning in zip(fields, known, strict=True):
            yield f"| `{each.name}` | {_code(each.declared.removeprefix(': '))} |{f' {meaning} |' if third[0] else ''}"
        yield ""
    for each in every:
        if each.about:
            yield f"### `{cls.__name__}.{each.name}`\n"
            yield f"```python\n{_called(each)}\n```\n"
            yield marked(each.about)


def field_meaning(cls: str, field: str) -> str:
    """What docs/json.md says of it, with links that lead there; "" where JSON has no such field."""
    found = _json_meanings().get(_IN_JSON.get(cls, " ") + field, "")
    return found.replace("](#", "](json.md#").replace("null", "None")


@cache
def _json_meanings() -> dict[str, str]:
    """By the field's path, that of a comparison with `comparison:` in front."""
    found: dict[str, str] = {}
    for section in re.split(r"^## ", _JSON_PAGE.read_text("utf-8"), flags=re.MULTILINE):
        front = "comparison:" if section.startswith("comparison\n") else ""
        for path, meaning in re.findall(r"^\| `([\w.\[\]]+)` \| (.*) \|$", section, re.MULTILINE):
            found.setdefault(front + path, meaning)
    return found


def _called(member: Member) -> str:
    return f"{member.name}{_wrapped(member.declared)}"


def _code(text: str) -> str:
    """In a table, too: there a `|` inside code divides no cells."""
    return f"`{text}`"


def _wrapped(declared: str) -> str:
    """An argument a line, where they do not fit into one."""
    if len(declared) <= _LONGEST_LINE or "(" not in declared:
        return declared
    inside, _, returned = declared[1:].rpartition(") ->")
    arguments, depth, start = [], 0, 0
    for place, character in enumerate(inside):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            arguments.append(inside[start:place].strip())
            start = place + 1
    lines = [*arguments, inside[start:].strip()]
    return "(\n" + "".join(f"    {line},\n" for line in lines) + f") ->{returned}"


_LONGEST_LINE = 100


def _types() -> Iterator[str]:
    yield "Names in the signatures above, for type checkers and readers: those above are in `perfdoctor.aliases`.\n"
    yield "| name | means |\n| --- | --- |"
    yield from (f"| `{name}` | {_code(meaning.replace('typing.', ''))} |" for name, meaning in ALIASES.items())
    yield ""


def _signals() -> Iterator[str]:
    """The columns of every frame of a timeline."""
    yield "The frames of a Timeline, each with its columns. `_ns` is nanoseconds, `_bytes` bytes, `_share` 0 to 1."
    yield "\n[What each column means](tables.md): the tables of an export have the same names, and the row as `id`."
    yield "\n| signal | what | columns |\n| --- | --- | --- |"
    for name, signal in SIGNALS.items():
        columns = ", ".join(f"`{column}` {_TYPES[kind]}" for column, kind in signal.columns.items())
        yield f"| `{name}` | {_cell(signal.label)} | {columns} |"
    yield ""
