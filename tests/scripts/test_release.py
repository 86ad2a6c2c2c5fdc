"""Does a release stop where something is wrong, change nothing until all has passed, and push nothing?"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
import release
from folders import ROOT

#: What a package is built from. The tests, recordings and documents would be in the archive as well, and take seconds.
NEEDED = ("src", "rules", "examples", "scripts", "requirements", "docs", "CHANGELOG.md",
          "LICENSE", "README.md", "pyproject.toml", ".gitignore")  # fmt: skip
#: Steps that run the tests or ask an index: the walk itself is what is tried here.
AWAY = [f"--without={step}" for step in ("tests", "pythons", "materials", "audit")]
VERSION = "9.1.0"


def git(folder: Path, *arguments: str) -> str:
    named = ["git", "-c", "user.name=Somebody", "-c", "user.email=somebody@localhost", *arguments]
    return subprocess.run(named, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository as this one is, with a section for the version, one tag, and a place that it could be pushed to."""
    folder = tmp_path_factory.mktemp("drawn") / "perfdoctor"
    for name in NEEDED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    (folder / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## {VERSION} (unreleased)\n\n* One thing.\n* Another.\n\n## 9.0.0\n", "utf-8"
    )
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")
    git(folder, "tag", "v9.0.0")
    git(folder, "init", "--quiet", "--bare", "../elsewhere.git")
    git(folder, "remote", "add", "origin", "../elsewhere.git")
    git(folder, "push", "--quiet", "origin", "main")
    return folder


@pytest.fixture
def repository(drawn: Path, tmp_path: Path) -> Path:
    """A copy of it: of one's own, to be spoiled."""
    shutil.copytree(drawn.parent, tmp_path / "all")
    return tmp_path / "all" / "perfdoctor"


def ran(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repository / "scripts" / "release.py"), *arguments]
    return subprocess.run(command, cwd=repository.parent, capture_output=True, text=True, check=False)


def state(repository: Path) -> tuple[str, ...]:
    """All that a release could change, here and where it could be pushed to."""
    here = (("rev-parse", "HEAD"), ("tag",), ("status", "--porcelain", "--ignored"), ("for-each-ref",))
    return (*(git(repository, *each) for each in here), git(repository.parent / "elsewhere.git", "for-each-ref"))


def test_a_dry_run_walks_through_all_steps_and_leaves_everything_as_it_was(repository: Path) -> None:
    before = state(repository)
    done = ran(repository, VERSION, "--dry-run", *AWAY)
    assert done.returncode == 0, done.stderr
    steps = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert steps[: len(release.STEPS)] == list(release.STEPS)
    assert f"dry run: v{VERSION} passed" in done.stdout
    assert f"perfdoctor-{VERSION}-py3-none-any.whl" in done.stdout
    (repository / "scripts" / "__pycache__").exists() and shutil.rmtree(repository / "scripts" / "__pycache__")
    assert state(repository) == before


def test_a_release_is_tagged_here_and_pushed_nowhere(repository: Path) -> None:
    *_, elsewhere = state(repository)
    done = ran(repository, VERSION, *AWAY)
    assert done.returncode == 0, done.stderr
    today = datetime.now(timezone.utc).date().isoformat()
    assert f"## {VERSION} ({today})" in (repository / "CHANGELOG.md").read_text("utf-8")
    assert git(repository, "rev-parse", f"v{VERSION}^{{commit}}") == git(repository, "rev-parse", "main")
    assert git(repository, "cat-file", "-t", f"v{VERSION}") == "tag"
    assert git(repository, "diff", "--name-only", "v9.0.0") == "CHANGELOG.md\nsrc/perfdoctor/__init__.py"
    folder = repository / "dist" / VERSION
    assert (folder / "SHA256SUMS").read_text("utf-8") == "".join(
        line for line in release.sums(folder).splitlines(keepends=True) if "SHA256SUMS" not in line
    )
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        assert f'__version__ = "{VERSION}"' in wheel.read("perfdoctor/__init__.py").decode()
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        changelog = archive.extractfile(f"perfdoctor-{VERSION}/CHANGELOG.md")
        assert changelog is not None
        assert today in changelog.read().decode()
    assert git(repository.parent / "elsewhere.git", "for-each-ref") == elsewhere
    assert "git push" in done.stdout


def changed(repository: Path) -> None:
    (repository / "LICENSE").write_text("mine", "utf-8")


def silent(repository: Path) -> None:
    (repository / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## {VERSION} (unreleased)\n\n## 9.0.0\n\n* Old.\n", "utf-8"
    )
    git(repository, "commit", "--quiet", "--all", "--message", "Nothing to say")


def unclean(repository: Path) -> None:
    (repository / "README.md").write_text("See `this", "utf-8")
    (repository / "pyproject.toml").write_text(
        (repository / "pyproject.toml")
        .read_text("utf-8")
        .replace('readme = "README.md"\n', 'readme = {file = "README.md", content-type = "text/x-rst"}\n'),
        "utf-8",
    )
    git(repository, "commit", "--quiet", "--all", "--message", "A description that no index shows")


@pytest.mark.parametrize(
    ("version", "spoil", "reason"),
    [
        ("9.0.0", None, "9.0.0 is not newer than 9.0.0"),
        ("nine", None, "nine is no version"),
        ("9.1", None, "the first section of CHANGELOG.md is “9.1.0 (unreleased)”"),
        ("9.1.0.RC1", None, "is written 9.1.0rc1"),
        (VERSION, changed, "LICENSE"),
        (VERSION, silent, "CHANGELOG.md says nothing about 9.1.0"),
        (VERSION, unclean, "twine check"),
    ],
)  # fmt: skip
def test_what_is_wrong_stops_it_and_nothing_has_changed(repository: Path, version: str, spoil, reason: str) -> None:
    if spoil is not None:
        spoil(repository)
    before = state(repository)
    done = ran(repository, version, *AWAY)
    assert done.returncode == 1
    assert reason in done.stderr
    assert (git(repository, "rev-parse", "HEAD"), git(repository, "tag")) == before[:2]
    assert not (repository / "dist").exists()


def test_what_differs_between_two_builds_is_no_release(repository: Path) -> None:
    """A file whose text is the folder that it is built in."""
    hook = 'import os\nfrom hatchling.builders.hooks.plugin.interface import BuildHookInterface\nclass Hook(BuildHookInterface):\n    def initialize(self, version, build_data):\n        with open(os.path.join(self.root, "src/perfdoctor/where.py"), "w") as file: file.write(repr(self.root))\n'
    (repository / "hatch_build.py").write_text(hook, "utf-8")
    with (repository / "pyproject.toml").open("a") as file:
        file.write("\n[tool.hatch.build.hooks.custom]\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "Built otherwise elsewhere")
    done = ran(repository, VERSION, *AWAY)
    assert done.returncode == 1
    assert "two builds differ" in done.stderr
