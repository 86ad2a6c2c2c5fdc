"""The shell's completion offers what the program then accepts, and is fast."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import own_rule_files
import pytest

import perfdoctor
from perfdoctor.cli import completion, hardware_options
from perfdoctor.cli.main import app
from perfdoctor.diagnosis.questions import questions
from perfdoctor.hardware.peaks import SETTABLE
from perfdoctor.recording import plan
from perfdoctor.vocabulary.rulebook import load_rules

SOURCE = str(Path(perfdoctor.__file__).parents[1])
RULES = load_rules()
PROGRAM = "from perfdoctor.cli.main import main; main()"
#: As small as a program of typer can be that completes anything.
LEAST = """
import typer
app = typer.Typer(rich_markup_mode=None)
@app.command()
def one(name: str = typer.Argument(autocompletion=lambda incomplete: ["host"])): ...
@app.command()
def two(): ...
app(prog_name="perfdoctor")
"""


def question(shell, typed, instruction="complete"):
    """The variables of a shell whose line is `typed`, with the cursor at its end."""
    return {
        "_PERFDOCTOR_COMPLETE": f"{instruction}_{shell}",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - (not typed.endswith(" "))),
        "_TYPER_COMPLETE_ARGS": typed,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }


def answer(shell, typed, program=PROGRAM, instruction="complete"):
    """What the program prints."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, **question(shell, typed, instruction)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def offered(monkeypatch, capsys):
    """What bash is offered behind a line, completed in this process."""

    def offers(typed):
        for name, value in question("bash", typed).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            app(prog_name="perfdoctor")
        return capsys.readouterr().out.split()

    return offers


@pytest.mark.parametrize(
    "before",
    ["explain", "rules", "analyze x --rule", "analyze x --ignore", "run --rule", "run --ignore"],
)
def test_rules_are_offered_where_a_rule_is_wanted(before, offered):
    assert offered(f"perfdoctor {before} host") == [name for name in RULES if name.startswith("host")]


@pytest.mark.parametrize("named", ["--rules perf", "--config pyproject.toml", "--rules nowhere --rules perf"])
def test_rules_of_ones_own_are_offered_where_the_line_names_them(named, offered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_rule_files.write(tmp_path / "perf", detector="raise SystemExit('this is code, and only read')")
    (tmp_path / "pyproject.toml").write_text('[tool.perfdoctor]\nrules = ["perf", "none"]\n')
    for before in ("analyze x {} --rule", "analyze x {} --what-if", "run {} --fail-on", "explain {}", "rules {}"):
        assert offered(f"perfdoctor {before.format(named)} acme/s") == ["acme/slow-add"]
    assert offered("perfdoctor analyze x --rule acme/s") == []


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("perfdoctor expl", ["explain"]),
        ("perfdoctor analyze x --fail-on an", ["any"]),
        ("perfdoctor run --fail-on input", ["input-wait"]),
        ("perfdoctor analyze x --what-if input-wait,bat", ["input-wait,batch=2x"]),
        ("perfdoctor analyze x --gpu H100-S", ["H100-SXM"]),
        ("perfdoctor analyze x --peak mem", ["memory="]),
        ("perfdoctor analyze x --format j", ["json"]),
        ("perfdoctor rules --format j", ["json"]),
        ("perfdoctor run --passes torch,", ["torch,nsys", "torch,ncu"]),
        ("perfdoctor analyze --no-h", ["--no-html"]),
        ("perfdoctor analyze READ", []),
    ],
)
def test_what_can_follow_is_offered(typed, expected, offered):
    assert offered(typed) == expected


def test_zsh_and_fish_show_the_titles():
    zsh, fish = answer("zsh", "perfdoctor explain gar"), answer("fish", "perfdoctor explain gar")
    title = RULES["garbage-collection"].title.replace("'", "’")
    assert zsh.strip() == f'_arguments \'*: :(("garbage-collection":"{title}"))\''
    assert fish.strip() == f"garbage-collection\t{title}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_calls_the_program(shell):
    script = answer(shell, "perfdoctor ", instruction="source")
    assert f"_PERFDOCTOR_COMPLETE=complete_{shell}" in script
    assert "perfdoctor" in script


def test_titles_read_by_line_are_those_of_the_rules():
    titles = dict(completion.rules(None, ""))
    assert titles == {name: rule.title.replace("'", "’") for name, rule in RULES.items()}
    assert [name for name, _, action in completion._rules() if action] == [
        n for n, rule in RULES.items() if rule.action
    ]


def test_every_offer_is_accepted():
    assert len(completion.gpus("")) > 50
    for name, full in completion.gpus(""):
        given = [hardware_options.user_values(each, [], None, None) for each in (name, name.lower())]
        assert [each.gpu for each in given] == [full, full]
    assert [name.rstrip("=") for name, _ in completion.peaks("")] == list(SETTABLE)
    for question, _ in completion.questions(None, "") + completion.questions(None, "input-wait, launch-bound=50%,"):
        if question.rpartition(",")[2].strip() not in ("input-wait", "launch-bound") or "," not in question:
            assert questions(question, RULES)
    for passes, _ in completion.passes("") + completion.passes("nsys,"):
        plan.parse_passes(passes)


def test_nothing_heavy_is_loaded():
    code = f"""
import sys
try:
    {PROGRAM}
except SystemExit:
    pass
heavy = {{'numpy', 'pandas', 'pyarrow', 'jinja2', 'nanoarrow', 'adbc_driver_manager', 'rich', 'torch'}}
print('loaded:', *sorted(heavy & {{name.split('.')[0] for name in sys.modules}}))
"""
    for typed in ("perfdoctor explain host", "perfdoctor analyze x --gpu H100", "perfdoctor analyze x --what-if b"):
        assert answer("zsh", typed, code).splitlines()[-1].strip() == "loaded:"


def test_completion_takes_little_longer_than_typer_itself():
    def seconds(typed, program):
        """CPU time: the load of other programs does not count."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer("zsh", typed, program)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # In turn, and the least of each. Measured: 1.3 times as long; with rich or numpy 1.9.
    pairs = [(seconds("perfdoctor explain host", PROGRAM), seconds("perfdoctor one ho", LEAST)) for _ in range(5)]
    ours, least = map(min, zip(*pairs, strict=True))
    assert ours < 1.5 * least
