"""Write what follows from the program: docs/rules.md, idle causes in docs/json.md, pages in docs/report.md, metrics
and prices in docs/outside.md, stages in docs/what-if.md, tools in docs/assistants.md, docs/architecture.md with its
picture, docs/diagnosis.schema.json, licences in docs/licences.md, README.md.

`--check` only compares. Licences are left as they are on other Pythons than CI's: they get other versions, which say
the same in other words.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import architecture
import licences
from generated_pages import rules_page
from msgspec.structs import fields

from perfdoctor.assistant.tools import IS_DATA, TOOLS
from perfdoctor.export.numbers import METRICS, PREFIX
from perfdoctor.hardware.prices import listed_prices
from perfdoctor.records.document import schema
from perfdoctor.vocabulary.categories import CATEGORIES, PAGES
from perfdoctor.vocabulary.hurts import HURTS
from perfdoctor.vocabulary.parts import IDLE_PARTS
from perfdoctor.vocabulary.rulebook import load_rules
from perfdoctor.vocabulary.spellings import spellings
from perfdoctor.vocabulary.tables import tables, views

#: Whose versions of what is required the page of licences speaks of.
_PYTHON_OF_LICENCES = (3, 11)
#: What stands for a column without a unit.
_TYPES = {int: "", float: "", bool: "0 or 1", str: "text"}
_ROOT = Path(__file__).parents[1]


def categories_table() -> str:
    """One line a category: how many rules it has, and what they are about."""
    rules = list(load_rules().values())
    rows = []
    for category, (title, about) in CATEGORIES.items():
        count = sum(rule.category == category for rule in rules)
        rows.append(f"| [{title}](docs/rules.md#{category}) | {count} | {about} |")
    heading = f"{len(rules)} rules, [each in one line](docs/rules.md):"
    return "\n".join([heading, "", "| category | rules | examples |", "| --- | ---: | --- |", *rows])


def causes_table() -> str:
    """One line a cause of idle: what it means, and the rules that explain it."""
    rows = [
        f"| `{cause}` | {part.label.removeprefix('idle: ')} | {', '.join(f'`{rule}`' for rule in part.rules)} |"
        for cause, part in IDLE_PARTS.items()
    ]
    return "\n".join(["| key | meaning | rules |", "| --- | --- | --- |", *rows])


def pages_list() -> str:
    """The pages of a report, as its menu names them."""
    first, *others = PAGES.values()
    return f"Pages: *{first}*, {', '.join(f'*{title}*' for title in others)}. Each is there only if it was recorded."


def metrics_table() -> str:
    """One line a metric of `--metrics`: its name with labels, and its help text."""
    rows = []
    for metric in METRICS.values():
        labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
        rows.append(f"| `{PREFIX}{metric.name}{labels}` | {metric.help} |")
    return "\n".join(["| metric | meaning |", "| --- | --- |", *rows])


def tables_list() -> str:
    """A section of each table and view of an export: what it holds, and its columns with units."""
    parts = []
    for table in (*tables().values(), *views().values()):
        parts += ["", f"### {table.name}", "", f"{table.meaning}" + (" *(a view)*" if table.is_view else ""), ""]
        if elsewhere := spellings("tables").get(table.name):
            parts += [f"Called elsewhere: {', '.join(elsewhere)}.", ""]
        parts += ["| column | unit | meaning |", "| --- | --- | --- |"]
        for name, column in table.columns.items():
            refers = f" Row of `{column.refers}`." if column.refers else ""
            parts.append(f"| `{name}` | {column.unit or _TYPES[column.kind]} | {column.meaning}{refers} |")
    return "\n".join(parts[1:])


def prices_table() -> str:
    """One line a list price, with whose it is."""
    rows = [
        f"| {price.gpu} | {price.per_gpu_hour:.2f} {price.currency} | {price.source} | {price.date} |"
        for price in listed_prices().values()
    ]
    return "\n".join(["| GPU | an hour | source | read on |", "| --- | --: | --- | --- |", *rows])


def _source(where: str) -> str:
    """A page elsewhere, or one of our own, with a link."""
    return f"<{where}>" if where.startswith("https://") else f"[our own]({where.removeprefix('docs/')})"


def _where(conditions: tuple[str, ...]) -> str:
    """The conditions as code; `|` would end the cell."""
    return ", ".join(f"`{each.replace('|', ' or ')}`" for each in conditions)


def hurts_table() -> str:
    """One line a row of advice that was measured to hurt."""
    rows = [
        f"| {each.advice} | {_where(each.where)} | {each.measured} | "
        f"{'left out' if each.is_left_out else 'said with the fix'} | {_source(each.source)} |"
        for each in HURTS
    ]
    return "\n".join(["| advice | where | measured | there it is | source |", "| --- | --- | --- | --- | --- |", *rows])


def tools_table() -> str:
    """One line a tool of `perfdoctor mcp`: what it takes, and what it is for."""
    rows = []
    for name, tool in TOOLS.items():
        takes = ", ".join(f"`{each.name}`" for each in fields(tool.arguments))
        rows.append(f"| `{name}` | {takes} | {tool.description.removesuffix(IS_DATA)} |")
    return "\n".join(["| tool | takes | answers |", "| --- | --- | --- |", *rows])


def printed(*words: str, folder: Path = _ROOT) -> str:
    """What a command prints on a terminal of 80 columns."""
    command = [sys.executable, "-m", "perfdoctor.cli.main", *words]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(_ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment)
    return done.stdout


#: What the first page shows a diagnosis of, as everybody has it: a recording whose change was measured, too.
_SHOWN = "fixtures/pairs/h100-fp32-matmuls"


def terminal_sample() -> str:
    """The first sentence, the bar and the first finding."""
    head, step, finding, *_ = printed("analyze", _SHOWN, "--no-html").split("\n\n")
    heading, *lines = step.splitlines()
    bar = takewhile(lambda line: not line[0].isalpha(), lines)
    verdict = head.rpartition("\n")[0]  # without the last line, the version of the recording
    return "\n".join(["```", f"$ perfdoctor analyze {_SHOWN}", verdict, "", heading, *bar, "", finding, "```"])


#: What the page shows of an answer: the question, of a recording that everybody has.
_ASKED, _OF = "launch-bound=50%, host-work", "fixtures/h100-gpt/eager.json.gz"


def what_if_sample() -> str:
    """The stages of a prediction, as the program prints them."""
    answer = printed("analyze", _OF, "--what-if", _ASKED, "--no-html")
    (part,) = (each for each in answer.split("\n\n") if each.startswith("What if:"))
    stages = [line for line in part.splitlines() if line.rstrip().endswith(("█", "░")) or line.startswith("What if:")]
    return "\n".join(["```", f'perfdoctor analyze {_OF} --what-if "{_ASKED}"', "", *stages, "```"])


def with_part(text: str, name: str, part: str) -> str:
    """The text with what stands between the marks of this name replaced."""
    begin, end = f"<!-- {name}: begin, `make docs` writes this -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{part}\n{end}{after}"


def generated() -> Iterator[tuple[Path, str]]:
    """Each file, and what it should say."""
    readme = _ROOT / "README.md"
    text = with_part(readme.read_text("utf-8"), "rules", categories_table())
    yield readme, with_part(text, "sample", terminal_sample())
    what_if = _ROOT / "docs" / "what-if.md"
    yield what_if, with_part(what_if.read_text("utf-8"), "stages", what_if_sample())
    json_page = _ROOT / "docs" / "json.md"
    yield json_page, with_part(json_page.read_text("utf-8"), "idle causes", causes_table())
    yield _ROOT / "docs" / "diagnosis.schema.json", json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    report_page = _ROOT / "docs" / "report.md"
    yield report_page, with_part(report_page.read_text("utf-8"), "pages", pages_list())
    outside = _ROOT / "docs" / "outside.md"
    text = with_part(outside.read_text("utf-8"), "metrics", metrics_table())
    yield outside, with_part(text, "prices", prices_table())
    of_tables = _ROOT / "docs" / "tables.md"
    yield of_tables, with_part(of_tables.read_text("utf-8"), "tables", tables_list())
    savings = _ROOT / "docs" / "savings.md"
    yield savings, with_part(savings.read_text("utf-8"), "hurts", hurts_table())
    assistants = _ROOT / "docs" / "assistants.md"
    yield assistants, with_part(assistants.read_text("utf-8"), "tools", tools_table())
    if sys.version_info[:2] == _PYTHON_OF_LICENCES:
        of_licences = _ROOT / "docs" / "licences.md"
        yield of_licences, with_part(of_licences.read_text("utf-8"), "licences", licences.table())
    yield _ROOT / "docs" / "architecture.md", architecture.page()
    yield _ROOT / "docs" / "pictures" / "architecture.svg", architecture.picture()
    yield _ROOT / "docs" / "rules.md", rules_page(sorted(load_rules().values(), key=lambda rule: rule.id))


def main() -> int:
    stale = [(path, text) for path, text in generated() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv:
        for path, _ in stale:
            print(f"{path.relative_to(_ROOT)} is out of date: run `make docs`.")
        return int(bool(stale))
    for path, text in stale:
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
