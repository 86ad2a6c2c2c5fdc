"""docs/own-rules.md: its rule keeps the contract as it stands there, and finds what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import ROOT
from public_api import MEMBERS
from typer.testing import CliRunner

from perfdoctor import rule_api, rule_testing
from perfdoctor.cli.main import COMMANDS, app
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.own_rules import contract
from perfdoctor.own_rules.document_contract import OPTIONAL, REQUIRED
from perfdoctor.own_rules.drawn import COLLECTIVES, COPIES, HOST, KERNELS
from perfdoctor.rule_api import of_idle
from perfdoctor.rule_testing import draw, draw_steps, findings
from perfdoctor.vocabulary.own_rules import all_rules

PAGE = (ROOT / "docs" / "own-rules.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(toml|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ("slow-tokenizer.toml", "slow_tokenizer.py", "test_slow_tokenizer.py")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The example, as a reader would paste it."""
    folder = tmp_path / "perf" / "rules"
    folder.mkdir(parents=True)
    for name, (_, text) in zip(NAMES, BLOCKS, strict=False):
        (folder / name).write_text(text, "utf-8")
    return folder


def test_the_example_keeps_the_contract(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_speed", lambda rule: contract.Speed(1, 0.0, 1.0))
    known = all_rules([str(rules)])
    found = contract.check(known["acme/slow-tokenizer"], known)
    assert found.problems == ()
    assert (found.tried, found.fired, found.silent) == (15, 1, 2)


def test_the_check_prints_what_the_page_shows(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the times, which are of another machine."""
    (shown,) = re.findall(r"^\$ perfdoctor rules check perf/rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(rules.parent.parent)
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["rules", "check", "perf/rules"])
    times = re.compile(r"[\d.,]+ ms")
    assert times.sub("ms", done.stdout) == times.sub("ms", shown)


def test_its_finding_is_above_what_it_explains(rules: Path) -> None:
    picture = draw(
        kernels="####            ####", host=["l               l   ", "    tttttttttt      "],
        legend={"t": ("ranges", "tokenize")}, repeat=6, unit_us=1000,
    )  # fmt: skip
    (finding,) = findings(rules / NAMES[0], picture)
    assert finding.saving_ns_per_step.likely == 9_000_000
    assert finding.values == pytest.approx({"lost_ms": 10, "step_ms": 20, "lost_percent": 50})


def test_a_strict_type_checker_accepts_the_example(rules: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(rules / "slow_tokenizer.py")]
    done = subprocess.run(command, cwd=rules.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_every_field_of_a_document_and_every_public_shape() -> None:
    rare = {
        "hidden_by",
        "clauses",
        "needs_without_gpu",
        "doubts",
        "verdict",
        "when",
        "inference",
        "without_gpu",
        "without_torch",
        "planted",
    }
    named = set(re.findall(r"`\[*(\w+)", PAGE))
    assert {*REQUIRED, *OPTIONAL} - {"fix", "thresholds"} - rare - named == set()
    for name in ("of_idle", "of_cause", "of_kernels", "of_copies", "of_collectives", "affected", "shares", "NO_SAVING"):
        assert name in named
        assert name in rule_api.__all__
    assert set(re.findall(r"`(\w+)` and nothing else", PAGE)) <= {"rule_api"}
    assert all(re.search(rf"\b{name}\b", PAGE) for name in rule_testing.__all__)


def test_the_letters_of_the_page_are_those_that_can_be_drawn() -> None:
    for lane, letters in (("kernels", KERNELS), ("nccl", COLLECTIVES), ("copies", COPIES), ("host", HOST)):
        (row,) = re.findall(rf"^\| `{lane}` \|(.*)\|$", PAGE, re.MULTILINE)
        assert set(re.findall(r"`(.)`", row)) == {letter for letter in letters if not letter.isdigit()}


def test_the_kernels_of_an_op_are_found_as_the_page_does() -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "python" and "launch_known" in text)
    page: dict[str, Any] = {}
    exec(text, page)
    recording = draw_steps(
        kernels="## cc ccc c", host=["l  l  l    ", "   oo      "], legend={"o": ("ops", "aten::to")},
        kernel_names={"c": "direct_copy_kernel_cuda"}, launched_us_before=None,
    )  # fmt: skip
    (place,) = prepare(recording).places
    assert page["casts"](place).tolist() == [False, True, False, False] * (len(place.kernels) // 4)
    assert page["unknown_ms"](place) == 1


def test_the_page_finds_what_else_a_rule_may_seek() -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "python" and "waiting_in_ops" in text)
    page: dict[str, Any] = {}
    exec(text, page)
    recording = draw_steps(
        kernels="##ss#s      s       ", copies="        hd          ", nccl="              =a    ",
        host=["      o c           "], legend={"o": ("ops", "aten::unique"), "c": ("calls", "cudaHostAlloc")},
        kernel_names={"s": "void slow_add<float>(float*)"},
    )  # fmt: skip
    (place,) = prepare(recording).places
    steps = place.units
    found = of_idle(prepare(recording), 0.01, page["waiting_in_ops"])
    assert found is not None
    assert found.ns == pytest.approx(1e6)
    assert page["waiting_in_ops"](place).total_ns == steps * 1_000_000
    assert page["kernels"](place).sum() == 3 * steps
    assert page["copies"](place).tolist() == [True, False] * steps
    assert page["collectives"](place).tolist() == [True, False] * steps
    assert page["longer_ns"](place) == steps * 1_000_000


def test_what_the_tables_name_is_public() -> None:
    for cls, name in ((Run, "Run"), (Place, "Place")):
        table = PAGE[PAGE.index(f"| of a `{name}`") :].split("\n\n")[0]
        cells = [row.split("|")[1] for row in table.splitlines()[2:]]
        members = {each for cell in cells for each in re.findall(r"`(?:run\.)?(\w+)", cell)}
        assert members <= set(MEMBERS["rule_api"][name])
        assert all(hasattr(cls, each) or each in cls.__annotations__ for each in MEMBERS["rule_api"][name])


def test_every_command_that_the_page_lists_takes_the_options() -> None:
    listed = re.search(r"^(`run`.*?) take these options", PAGE, re.MULTILINE | re.DOTALL)
    assert listed is not None
    for name in re.findall(r"`(\w+)`", listed[1]):
        assert name in COMMANDS
        done = subprocess.run(
            [sys.executable, "-m", "perfdoctor", name, "--help"], capture_output=True, text=True, check=True
        )
        assert "--rules" in done.stdout
        assert "--config" in done.stdout
