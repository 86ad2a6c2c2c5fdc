"""Do the documents say what is true of the program?"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from folders import FIXTURES, ROOT
from report.samples import SAMPLES
from tables import of_each
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.report import json_report
from perfdoctor.system import toml_tables
from perfdoctor.vocabulary.derivations import BOUNDS, SOURCES
from perfdoctor.vocabulary.rulebook import load_rules

README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PAGES = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="perfdoctor")


def test_what_follows_from_the_program_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_readme_says_what_was_measured_of_the_training_that_it_shows() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (pair,) = (
        each
        for each in toml_tables.parsed((ROOT / "benchmarks" / "pairs.toml").read_text("utf-8"))["pair"]
        if f"fixtures/pairs/{each.get('recording')}\n" in readme
    )
    measured = toml_tables.parsed((FIXTURES / "pairs" / "measured.toml").read_text("utf-8"))["pair"]
    (after_ms,) = next(each["after_ms"] for each in measured if each["name"] == pair["name"])
    assert f"took {after_ms} ms" in readme
    assert all(Path(pair[side]).name in readme for side in ("before", "after"))


def test_the_picture_of_the_architecture_has_every_room_above_those_that_it_imports() -> None:
    folders = {path.parent.name for path in (ROOT / "src" / "perfdoctor").glob("*/__init__.py")}
    picture = (ROOT / "docs" / "pictures" / "architecture.svg").read_text("utf-8")
    below = {room: int(y) for y, room in re.findall(r'<text x="\d+" y="(\d+)">(\w+)</text>', picture)}
    assert below.keys() == folders
    for room, imported in re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGES["architecture.md"], re.MULTILINE):
        assert all(below[other] > below[room] for other in re.findall(r"`(\w+)`", imported)), room


@of_each("command", sorted(set(re.findall(r"^perfdoctor (\w+)", README, re.MULTILINE))))
def test_every_command_in_the_readme_exists(command: str) -> None:
    assert run(command, "--help").exit_code == 0


def test_every_option_in_the_readme_exists() -> None:
    known = "".join(run(command, "--help").stdout for command in ("analyze", "run", "check"))
    for option in set(re.findall(r"`(--[a-z-]+)", README)):
        assert option in known, option


@of_each("target", re.findall(r"^make ([\w-]+)", README, re.MULTILINE))
def test_every_make_target_in_the_readme_exists(target: str) -> None:
    assert re.search(rf"^{target}:.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


@of_each("rule", sorted(load_rules()))
def test_every_rule_and_each_of_its_thresholds_is_explained(rule: str) -> None:
    page = re.sub(r"\s+", "", run("explain", rule).stdout)
    assert re.sub(r"\s+", "", load_rules()[rule].title) in page
    for threshold in load_rules()[rule].thresholds:
        assert threshold in page


def test_the_changelog_names_every_rule_of_a_released_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## (\S+)(?: \((?!unreleased).*)?$", changelog, re.MULTILINE)
    assert [
        rule.id for rule in load_rules().values() if rule.since in released and f"`{rule.id}`" not in changelog
    ] == []


@of_each("name", sorted(set(re.findall(r"`((?:src|tests|benchmarks|scripts|rules)/[\w/.-]+\.\w+)`", CONTRIBUTING))))
def test_every_file_that_contributing_names_exists(name: str) -> None:
    """But for names of what the reader is to write."""
    assert (ROOT / name).exists() or "my" in Path(name).name or "mine" in name or "tool" in name


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    program = "import sys; sys.argv = ['perfdoctor', '--help']; from perfdoctor.cli.main import main\ntry: main()\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "pandas", "pyarrow", "torch", "jinja2", "nanoarrow", "adbc_driver_manager"}


@pytest.mark.parametrize("recording", ["*/torch/*.json.gz", "*/nsys/*.sqlite"])
def test_analysing_imports_neither_torch_nor_pandas_and_no_reader_of_large_tables(recording: str) -> None:
    fixture = next((ROOT / "fixtures").glob(recording))
    program = f"import sys; sys.argv = ['perfdoctor', 'analyze', {str(fixture)!r}, '--no-html']; from perfdoctor.cli.main import main\ntry: main()\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.splitlines()[-1].split())  # the report in front of it may speak of torch
    assert not loaded & {"torch", "pandas", "pyarrow", "pynvml", "nanoarrow", "adbc_driver_manager"}


# JSON


def paths_of(value: object, path: str = "") -> Iterator[str]:
    """The path of each field in a document: `time[].idle_causes_ns.unknown`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            yield below
            yield from paths_of(inner, below)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of(inner, f"{path}[]")


#: Paths in the tables of the page: `name`, `name[].name` or, where names follow from the data, `name.*`.
DESCRIBED = set(re.findall(r"^\| `([\w.\[\]*]+)` \|", PAGES["json.md"], re.MULTILINE))
#: `recording` repeats `time`, which is described once.
SAME_AS = {"recording[]": "time[]"}


def is_described(path: str) -> bool:
    for repeated, described in SAME_AS.items():
        if path.startswith(repeated):
            path = described + path.removeprefix(repeated)
    return path in DESCRIBED or f"{path.rpartition('.')[0]}.*" in DESCRIBED


@pytest.mark.parametrize(
    ("fixture", "options"),
    [
        ("input-bound-single-process/torch", []),
        ("straggler/torch", []),
        ("cpu-slow-input/torch", []),
        ("communication-exposed/torch", ["--what-if", "ranks=16@50GB/s"]),
        ("cuda-graphs/nsys", []),
        ("bf16-nvjet/torch", []),
    ],
)
def test_the_page_describes_every_field_of_the_json(fixture: str, options: list[str]) -> None:
    done = run("analyze", str(FIXTURES / fixture), "--no-html", "--quiet", "--json", "-", *options)
    found = set(paths_of(json.loads(done.stdout)))
    assert len(found) > 50, done.stderr
    assert sorted(path for path in found if not is_described(path)) == []


def test_the_page_names_every_source_and_bound_of_a_derivation() -> None:
    rows = dict(re.findall(r"^\| `findings\[\]\.derivation\.([\w.\[\]]+)` \| (.*) \|$", PAGES["json.md"], re.MULTILINE))
    resolved = set(SOURCES) - {"machine"}  # which becomes one of the others
    assert [source for source in resolved if f"`{source}`" not in rows["inputs[].source"]] == []
    assert [bound for bound in BOUNDS if f"`{bound}`" not in rows["bounds[].by"]] == []


def test_the_page_describes_every_field_of_diagnoses_made_by_hand() -> None:
    """Beside the recordings above: memory, a failed rule, a run without steps."""
    for diagnosis in SAMPLES.values():
        assert (
            sorted(path for path in paths_of(json.loads(json_report.render(diagnosis))) if not is_described(path)) == []
        )


def test_the_page_describes_no_field_that_is_gone() -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    for path in DESCRIBED:
        name = path.removesuffix(".*").removesuffix("[]").rpartition(".")[2].removesuffix("[]")
        assert re.search(rf"\b{name}\b", sources), path


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_has_a_page_for_every_rule_with_its_fixes(site: Path) -> None:
    for rule in load_rules().values():
        text = html.unescape((site / "rules" / f"{rule.id}.html").read_text("utf-8"))
        assert rule.title in text
        assert all(fix.title.replace("`", "") in re.sub("<[^>]+>", "", text) for fix in rule.fixes)


def test_no_menu_of_the_site_has_more_than_ten_entries() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8").split("nav:", 1)[1].split("not_in_nav", 1)[0]
    levels = re.split(r"^  - .*$", text, flags=re.MULTILINE)
    assert 1 < len(levels) - 1 <= 10
    assert all(len(re.findall(r"^      - ", level, re.MULTILINE)) <= 10 for level in levels)


@of_each("page", ["README.md", *(f"docs/{each.name}" for each in (ROOT / "docs").glob("*.md"))])
def test_comments_of_examples_fit_the_box_that_they_are_shown_in(page: str) -> None:
    """About 88 characters of a code block are seen on the site, and in a README, without scrolling."""
    blocks = re.findall(r"^```(?:bash|sh)?\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = (line for block in blocks for line in block.splitlines())
    assert [line for line in lines if re.search(r"\S +# ", line) and len(line) > 88] == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for tag, address in re.findall(
            r"<(\w+)[^>]*?(?:src|href)=[\"']?(?:https?:)?//([^\"'> ]+)", page.read_text("utf-8")
        ):
            assert tag == "a", f"{page.name} loads {address}"


def test_the_site_tells_every_command(site: Path) -> None:
    text = html.unescape((site / "commands.html").read_text("utf-8"))
    for command in re.findall(r"^  (\w+)  ", run("--help").stdout.split("Commands:")[1], re.MULTILINE):
        assert f"Usage: perfdoctor {command}" in text


def test_every_message_that_the_answers_quote_is_one_of_the_program() -> None:
    sources = re.sub(r'"\s*\n\s*f?"', "", "".join(p.read_text("utf-8") for p in (ROOT / "src").rglob("*.py")))
    plain = re.sub(r"\{[^{}]*\}", "…", sources)
    for message in re.findall(r"\*\*`([^`]+)`", PAGES["faq.md"]):
        for part in filter(None, (part.strip() for part in message.split("…"))):
            assert part in plain, message


@pytest.fixture(scope="module")
def helps() -> str:
    commands = (
        "analyze",
        "compare",
        "check",
        "run",
        "attach",
        "treat",
        "env",
        "rules",
        "explain",
        "selftest",
        "history",
        "mcp",
        "export",
        "scrub",
        "query",
        "watch",
        "status",
        "record-now",
    )
    of_history = ("show", "trend", "promises", "pin", "tag", "note", "prune", "merge")
    every = [(command,) for command in commands] + [("history", command) for command in of_history]
    every += [("rules", "new"), ("rules", "check")]
    return "".join([*(run(*command, "--help").stdout for command in every), *bundle_helps()])


def bundle_helps() -> Iterator[str]:
    """Of the script that makes a bundle, and of what runs on the other machine."""
    folder = ROOT / "scripts" / "gpu_bundle"
    for script in (folder / "build.py", folder / "there" / "__main__.py"):
        environment = {**os.environ, "PYTHONPATH": str(FIXTURES)}  # the bundle holds scrub and kept beside it
        command = [sys.executable, str(script), "--help"]
        yield subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


@of_each("page", sorted(PAGES))
def test_every_option_in_the_pages_exists(page: str, helps: str) -> None:
    asked = re.findall(r"`(--[a-z][a-z-]+)", PAGES[page]) + re.findall(r"perfdoctor \w+ (--[a-z][a-z-]+)", PAGES[page])
    of_others = {
        "--gpus",
        "--cap-add",
        "--ntasks-per-node",
        "--nthreads",
        "--nworkers",
        "--include-blobs",
        "--python-sampling",
        "--output-dir",
        "--logdir",
        "--run-name",
        "--job-id",
    }
    for option in set(asked) - of_others:
        assert option in helps, option
