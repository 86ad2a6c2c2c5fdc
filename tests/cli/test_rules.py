"""`rules` and `explain` show what is checked and how it is fixed."""

from __future__ import annotations

import ast
import io
import json
import re
import textwrap

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from tables import of_each
from typer.testing import CliRunner

from perfdoctor.cli import rules as command
from perfdoctor.cli.main import app
from perfdoctor.report import rule_page
from perfdoctor.report.words.code_text import folded, shown
from perfdoctor.report.words.fix_text import blocks
from perfdoctor.vocabulary import derivations, rulebook
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.parts import PARTS, SHRINKS

FIX = rulebook.RuleFix(
    "Load [in] workers",
    "loader = DataLoader(\n    d,\n)",
    "minutes",
    changes_numerics=False,
    situations=("no-workers",),
)
INPUT_WAIT = rulebook.Rule(
    id="input-wait",
    title="The GPU waits for the next batch",
    category="input",
    since="0.1.0",
    status="stable",
    needs=("places", "steps"),
    summary="{wait_ms:.1f} ms of a {step_ms:.1f} ms step pass.",
    why="Nothing is launched meanwhile.",
    not_a_problem_when="It is a test.",
    references=("https://example.org/loader",),
    thresholds={"min_share": rulebook.Threshold(0.03, "fraction of step time", "Below is noise.")},
    fixes=(FIX,),
    summaries={"no-workers": "It waits {wait_ms:.1f} ms."},
    action="input_wait",
    doubt="no loader was seen",
    derivation=derivations.read(
        {
            "formula": "{wait_ms} × {min_share}",
            "low": "0",
            "high": "{wait_ms}",
            "source": "A paper",
            "inputs": {"wait_ms": {"source": "recording", "what": "the wait of a step"}},
            "situations": {"no-workers": {"formula": "{wait_ms} ÷ 2"}},
        }
    ),
    planted="Some of it stays.",
)
OTHER = replace(
    INPUT_WAIT, id="worker-restarts", title="Workers start anew", symptom_of=("input-wait",), status="preview"
)
REAL = rulebook.load_rules()
CODE = [
    (name, block.text)
    for name, rule in REAL.items()
    for fix in rule.fixes
    for block in blocks(fix.filled({}))
    if block.code
]
STYLES = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")


@pytest.fixture(autouse=True)
def _rules(monkeypatch):
    monkeypatch.setattr(rulebook, "load_rules", lambda: {rule.id: rule for rule in (INPUT_WAIT, OTHER)})


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_rules_is_one_line_a_rule_when_piped():
    head, line, other = run("rules").stdout.splitlines()
    assert head.split() == ["rule", "category", "what", "it", "finds", "status"]
    assert line == "input-wait       input     The GPU waits for the next batch  stable"
    assert other.split()[-1] == "preview"
    assert "places, steps" in run("rules", "--verbose").stdout


def on_screen(lines, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, legacy_windows=False)
    for line in lines(console):
        console.print(line, soft_wrap=True, highlight=False)
    return STYLES.sub("", console.file.getvalue())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_on_a_terminal_rules_are_listed_by_category(width):
    screen = on_screen(lambda console: command._grouped(list(REAL.values()), console, verbose=False), width)
    assert max(map(cell_len, screen.splitlines())) <= min(width, 100)
    headings = [line for line in screen.splitlines() if re.fullmatch("[a-z]+", line)]
    assert headings == list(CATEGORIES)
    sections = dict(
        zip(headings, re.split(rf"^(?:{'|'.join(headings)})$", screen, flags=re.MULTILINE)[1:], strict=True)
    )
    for rule in REAL.values():
        shown = " ".join(sections[rule.category].split())
        assert f"{rule.id} {rule.title}" in shown
        assert (f"{rule.title} {rule.status}" in shown) == (rule.status != "stable")


def test_a_title_stands_beside_its_id_or_four_further_in_under_it_where_that_leaves_little_room():
    rules = [INPUT_WAIT]
    for width, expected in (
        (len("input-wait") + 4 + 32, ["  input-wait  The GPU waits for the next batch"]),
        (len("input-wait") + 4 + 31, ["  input-wait", "    The GPU waits for the next batch"]),
    ):
        screen = on_screen(lambda console: command._grouped(rules, console, verbose=False), width)
        assert screen.splitlines()[1 : 1 + len(expected)] == expected


def test_quiet_rules_are_ids():
    assert run("rules", "--quiet").stdout == "input-wait\nworker-restarts\n"


def test_rules_as_json_hold_everything():
    first, _ = json.loads(run("rules", "--format", "json").stdout)
    assert first["thresholds"]["min_share"] == {
        "value": 0.03,
        "unit": "fraction of step time",
        "why": "Below is noise.",
    }
    assert first["fixes"][0]["how"] == FIX.how
    assert run("rules", "input-wait", "--format", "json").exit_code == 2


@pytest.mark.parametrize("command", ["explain", "rules"])
def test_a_rule_s_page_has_everything_in_its_document(command):
    page = run(command, "input-wait").stdout
    assert page.startswith("The GPU waits for the next batch\ninput-wait · input · stable, since 0.1.0\n")
    for part in (
        "Why it matters\n  Nothing is launched meanwhile.",
        "What a report says\n  … ms of a … ms step pass.\n  - no workers: It waits … ms.",
        "How it is detected\n  From steps.\n  What may be uncertain: no loader was seen.",
        "  min_share = 0.03 (fraction of step time)\n      Below is noise.",
        "[tool.perfdoctor.thresholds.input-wait]",
        "How the saving is computed\n  likely = wait_ms × min_share\n  low = 0\n  high = wait_ms\n  no workers:\n    likely = wait_ms ÷ 2\n  wait_ms (ms,",
        "  wait_ms (ms, recording): the wait of a step\n  Formula from: A paper\n",
        "Planted faults\n  Some of it stays.",
        "Not a problem when\n  It is a test.",
        "Its symptoms, which disappear with it: worker-restarts.",
        "Fix: Load [in] workers (minutes of work, numerics unchanged)\n  For: no workers\n",
        "```python\nloader = DataLoader(\n    d,\n)\n```\n",
        "`idle: waiting for data (input-bound)` and",
        "perfdoctor analyze RECORDING --what-if input-wait\n",
        "perfdoctor run --fail-on input-wait -- COMMAND\n",
        "References\n  https://example.org/loader\n",
    ):
        assert part in page
    assert "A symptom of input-wait" in run(command, "worker-restarts").stdout
    assert "Signals: places, steps." in run(command, "input-wait", "--verbose").stdout


def test_quiet_explain_is_the_fixes():
    assert run("explain", "input-wait", "--quiet").stdout.startswith("Fix: Load [in] workers")


def test_a_fix_says_for_which_programs_it_is_and_for_which_not(monkeypatch):
    when = ("not inference", "torch", "not compiled", "ddp", "gpu")
    rule = replace(INPUT_WAIT, fixes=(replace(FIX, when=when), replace(FIX, when=("not jax",))))
    monkeypatch.setattr(rulebook, "load_rules", lambda: {rule.id: rule})
    text = " ".join(run("explain", "input-wait").stdout.split())
    assert "For: PyTorch, DistributedDataParallel and work on a GPU. Not for: inference, code that torch" in text
    assert " Not for: JAX (XLA)." in text


@pytest.mark.parametrize("command", ["explain", "rules"])
def test_an_unknown_rule_is_a_usage_error(command):
    result = run(command, "input")
    assert result.exit_code == 2
    assert "Did you mean input-wait?" in " ".join(result.stderr.split())
    assert "`perfdoctor rules` lists them" in run(command, "zzz").stderr


@of_each("name,width", {f"{name} {width}": (name, width) for name in REAL for width in (40, 60, 80)})
def test_every_page_fits_its_terminal(name, width):
    """All but code and addresses, which are not to be broken."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, legacy_windows=False)
    rule_page.print_page(REAL[name], REAL, console, quiet=False, verbose=True)
    lines = STYLES.sub("", console.file.getvalue()).splitlines()
    wide = [line for line in lines if cell_len(line) > width]
    assert not [line for line in wide if not line.startswith("    ") and "://" not in line and " " in line.strip()]
    assert lines[0] in textwrap.wrap(REAL[name].title, width)


@of_each("name,code", CODE)
def test_piped_code_is_that_of_the_rule(name, code):
    console = Console(file=io.StringIO(), width=80)
    rule_page.print_page(REAL[name], REAL, console, quiet=True, verbose=False)
    assert f"\n{code}\n```\n" in console.file.getvalue()


@of_each("name,code", CODE)
def test_folded_code_is_the_same_program(name, code):
    for width in (36, 56, 76):
        shown = "\n".join(folded(code.splitlines(), width))
        try:
            expected = ast.dump(ast.parse(code))
        except SyntaxError:  # a shell's, or both
            assert [line for line in plain(shown) if line] == [line for line in plain(code) if line]
        else:
            assert ast.dump(ast.parse(shown)) == expected
        words = re.sub(r"[#\s]+", "", code)
        assert sorted(re.sub(r"[#\s]+", "", shown)) == sorted(words)


def plain(code):
    """Lines without comments, but for a sign within quotes, which these rules do not fold."""
    return [re.sub(r"(^|\s)#.*", "", line).rstrip() for line in code.splitlines()]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("x = 1  # short", ["x = 1  # short"]),
        ("    call(first, second)  # why it is so", ["    # why it is so", "    call(first, second)"]),
        ('say("it is # 1 of them all, really")', ['say("it is # 1 of them all, really")']),
        ("# one two three four five six seven", ["# one two three four", "# five six seven"]),
        ("a_very_long_name_without_any_comment()", ["a_very_long_name_without_any_comment()"]),
    ],
)
def test_only_comments_are_moved(line, shown):
    assert list(folded([line], 22)) == shown


def test_nothing_comes_between_a_continued_line_and_its_end():
    lines = ["torchrun --nproc-per-node 8 \\", "    train.py --batch-size 64  # the largest that fits"]
    assert list(folded(lines, 30)) == lines


def test_every_lever_names_a_part_that_the_bar_can_show():
    assert {rule.action for rule in REAL.values() if rule.action} <= set(SHRINKS)
    assert set(SHRINKS.values()) <= set(PARTS)


@pytest.mark.parametrize(
    ("code", "language"),
    [("// once:\nf(x);", "cpp"), ("mpirun -n 8 ./program\nls /dev", "bash"), ("f(x)  # // no", "python")],
)
def test_code_that_names_no_language_is_called_what_it_is(code, language):
    (block,) = blocks(code)
    first, *_ = shown(block, Console(file=io.StringIO()), 80)
    assert first.plain == f"```{language}"
