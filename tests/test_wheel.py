"""Does what is installed from a wheel hold everything that the checkout has, and is it the same wherever it is built?"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from folders import ROOT

from perfdoctor.assistant.documents import PAGES


def build(source: Path, target: Path, **how: int) -> Path:
    """The folder with the wheel and the source archive that it was made from."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return target


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def wheel(packages: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(packages.glob("*.whl")))


def test_every_rule_is_in_the_wheel_to_the_byte(wheel: zipfile.ZipFile) -> None:
    rules = sorted((ROOT / "rules").rglob("*.toml"))
    assert rules
    for path in rules:
        assert wheel.read(f"perfdoctor/rules/{path.parent.name}/{path.name}") == path.read_bytes()


def test_every_example_is_in_the_wheel_to_the_byte(wheel: zipfile.ZipFile) -> None:
    examples = sorted((ROOT / "examples").glob("*.*"))
    assert examples
    for path in examples:
        assert wheel.read(f"perfdoctor/examples/{path.name}") == path.read_bytes()


def test_the_dashboard_is_in_the_wheel_to_the_byte(wheel: zipfile.ZipFile) -> None:
    dashboard = ROOT / "docs" / "grafana" / "perfdoctor.json"
    assert wheel.read("perfdoctor/grafana/perfdoctor.json") == dashboard.read_bytes()


def test_the_schema_of_a_diagnosis_is_in_the_wheel_to_the_byte(wheel: zipfile.ZipFile) -> None:
    schema = ROOT / "docs" / "diagnosis.schema.json"
    assert wheel.read("perfdoctor/diagnosis.schema.json") == schema.read_bytes()


def test_every_page_that_a_server_gives_is_in_the_wheel_to_the_byte(wheel: zipfile.ZipFile) -> None:
    shipped = {name.rpartition("/")[2] for name in wheel.namelist() if name.startswith("perfdoctor/docs/")}
    assert shipped == {f"{page}.md" for page in PAGES}
    for page in PAGES:
        assert wheel.read(f"perfdoctor/docs/{page}.md") == (ROOT / "docs" / f"{page}.md").read_bytes()


def test_the_wheel_holds_no_compiled_python(wheel: zipfile.ZipFile) -> None:
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    expected = {str(p.relative_to(source)) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert expected <= set(wheel.namelist())


def test_the_wheel_holds_nothing_but_the_package(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel.namelist()} == {"perfdoctor"}


def test_an_unpacked_wheel_finds_its_rules_and_examples(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = """
from perfdoctor.vocabulary.examples import examples_folder, load_examples
from perfdoctor.vocabulary.rulebook import load_rules, rules_folder
print(rules_folder(), len(load_rules()), examples_folder(), len(load_examples()))
"""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    rules, rule_count, examples, example_count = done.stdout.split()
    assert (rules, examples) == (str(tmp_path / "perfdoctor" / "rules"), str(tmp_path / "perfdoctor" / "examples"))
    assert int(rule_count) == len(list((ROOT / "rules").rglob("*.toml")))
    assert int(example_count) == len(list((ROOT / "examples").glob("*_fixed.py")))


def test_an_unpacked_source_archive_builds_the_same_wheel_and_archive_to_the_byte(
    packages: Path, tmp_path: Path
) -> None:
    subprocess.run(["tar", "-xzf", str(next(packages.glob("*.tar.gz"))), "-C", str(tmp_path)], check=True)
    (source,) = tmp_path.iterdir()
    # In another folder, of another time, and with other rights.
    for path in source.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
        path.chmod(path.stat().st_mode & ~0o077)
    again = build(source, tmp_path / "again", umask=0o077)
    for path in packages.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name
