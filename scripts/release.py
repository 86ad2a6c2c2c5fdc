"""How is a release made? Version, changelog, tests, build, checks and tag, one after the other; nothing is pushed.

usage: scripts/release VERSION [--dry-run] [--without STEP]…

All is done in a clone of the commit that is checked out. Only when every step has passed does the commit with its tag
come into this repository, and what is to be uploaded into dist/VERSION; with --dry-run neither does.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.metadata import distributions
from pathlib import Path

import audit
import licences
from packaging.version import InvalidVersion, Version

_ROOT = Path(__file__).parents[1]
_BIN = Path(sys.executable).parent
#: Of whoever has no name in git, as a CI job has none: a commit needs one.
_NOBODY = {"user.name": "perfdoctor", "user.email": "perfdoctor@localhost"}


class Stop(Exception):  # noqa: N818 no error of the program
    """Why there is no release."""


def ran(*command: object, folder: Path) -> str:
    """What a command prints. Stop where it fails."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Stop(f"`{' '.join(map(str, command))}` failed\n{done.stdout[-3000:]}{done.stderr[-3000:]}".rstrip())
    return done.stdout.strip()


class Release:
    """One version on its way: `clone` is the repository that it is made in, `files` the folder of what is uploaded."""

    def __init__(self, root: Path, version: str, scratch: Path) -> None:
        self.root, self.version, self.scratch = root, version, scratch
        self.clone, self.files = scratch / "clone", scratch / "dist"
        ran("git", "clone", "--quiet", "--local", root, self.clone, folder=root)
        for key, value in _NOBODY.items():
            known = subprocess.run(
                ["git", "config", key], cwd=root, capture_output=True, text=True, check=False
            ).stdout.strip()
            ran("git", "config", key, known or value, folder=self.clone)

    @property
    def tag_name(self) -> str:
        return f"v{self.version}"

    def of_version(self) -> str:
        """Write the version, which must be newer than all that were tagged."""
        try:
            version = Version(self.version)
        except InvalidVersion:
            raise Stop(f"{self.version} is no version: see PEP 440") from None
        if str(version) != self.version:
            raise Stop(f"{self.version} is written {version}")
        if changed := ran("git", "status", "--porcelain", folder=self.root):
            raise Stop(f"these files differ from the commit that would be released:\n{changed}")
        tagged = [Version(tag[1:]) for tag in ran("git", "tag", "--list", "v[0-9]*", folder=self.root).split()]
        if tagged and version <= max(tagged):
            raise Stop(f"{self.version} is not newer than {max(tagged)}, which was released")
        path = self.clone / "src" / "perfdoctor" / "__init__.py"
        _replace(path, r'(?m)^__version__ = ".*"$', f'__version__ = "{self.version}"')
        return f"newer than {max(tagged)}" if tagged else "the first one"

    def of_changelog(self) -> str:
        """Date the newest section, which must be about this version and say something."""
        path = self.clone / "CHANGELOG.md"
        heading, _, rest = path.read_text("utf-8").partition("\n## ")[2].partition("\n")
        if heading != f"{self.version} (unreleased)":
            raise Stop(f"the first section of CHANGELOG.md is “{heading}”, not “{self.version} (unreleased)”")
        entries = re.findall(r"(?m)^\* ", rest.partition("\n## ")[0])
        if not entries:
            raise Stop(f"CHANGELOG.md says nothing about {self.version}")
        today = datetime.now(timezone.utc).date().isoformat()
        _replace(path, re.escape(f"## {heading}"), f"## {self.version} ({today})")
        ran(
            "git",
            "commit",
            "--quiet",
            "--all",
            "--allow-empty",
            "--message",
            f"Version {self.version}",
            folder=self.clone,
        )
        return f"{len(entries)} entries, {today}"

    def of_tests(self) -> str:
        """What every change has to pass."""
        ran("make", "lint", "test", folder=self.root)
        return "make lint, make test"

    def of_build(self) -> str:
        """Wheel and source archive, to the byte what a second clone elsewhere gives."""
        other = self.scratch / "elsewhere" / "again"
        ran("git", "clone", "--quiet", "--local", self.clone, other, folder=self.clone)
        again = self.scratch / "again"
        for clone, target in ((self.clone, self.files), (other, again)):
            ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, clone, folder=clone)
        if sums(self.files) != sums(again):
            raise Stop(f"two builds differ:\n{sums(self.files)}{sums(again)}")
        return ", ".join(sorted(path.name for path in self.files.iterdir()))

    def of_check(self) -> str:
        """May it be uploaded, and does the wheel hold what it should?"""
        packages = sorted(self.files.iterdir())
        ran(_BIN / "twine", "check", "--strict", *packages, folder=self.clone)
        ran(_BIN / "check-wheel-contents", self._wheel(), folder=self.clone)
        return "twine, check-wheel-contents"

    def of_pythons(self) -> str:
        """Install the wheel in a clean environment of each Python."""
        return ran(self.clone / "scripts" / "try-pythons", self._wheel(), folder=self.clone).splitlines()[-1]

    def of_materials(self) -> str:
        """The bill of materials: what `pip install` of this wheel brings today, and under which licences."""
        environment = self.scratch / "environment"
        venv.create(environment)
        site = ran(
            environment / "bin" / "python", "-c", "import site; print(site.getsitepackages()[0])", folder=self.clone
        )
        pip = (sys.executable, "-m", "pip", "--python", environment, "install", "--quiet")
        ran(*pip, self._wheel(), folder=self.clone)
        # What is installed from a file remembers where it lay: nobody else's business.
        for origin in Path(site).glob("*.dist-info/direct_url.json"):
            origin.unlink()
        target = self.files / f"perfdoctor-{self.version}.cdx.json"
        of_project = ("--pyproject", self.clone / "pyproject.toml", "--output-reproducible", "--output-file", target)
        ran(_BIN / "cyclonedx-py", "environment", *of_project, environment, folder=self.clone)
        stated = {each.metadata["Name"]: licences.licence(each) for each in distributions(path=[site])}
        if refused := [f"{name}: {said}" for name, said in stated.items() if not licences.is_admitted(said)]:
            raise Stop("these licences are not admitted:\n" + "\n".join(refused))
        return f"{target.name}, {len(stated)} distributions, all under open licences"

    def of_audit(self) -> str:
        """No known vulnerability in what the development environment has, which holds all that users get."""
        answer = audit.answer("--disable-pip", "--require-hashes", "--requirement", str(self.clone / audit.LOCK))
        if answer.vulnerable:
            raise Stop("known vulnerabilities:\n" + "\n".join(answer.vulnerable))
        if answer.unanswered:
            raise Stop(f"{answer.sentence()}; --without audit releases all the same")
        return answer.sentence()

    def of_tag(self) -> str:
        """Sums of what is uploaded, and the tag, in the clone."""
        (self.files / "SHA256SUMS").write_text(sums(self.files), "utf-8")
        ran("git", "tag", "--annotate", self.tag_name, "--message", f"perfdoctor {self.version}", folder=self.clone)
        return self.tag_name

    def take_over(self) -> None:
        """Bring the commit and its tag into the repository, and the files into its dist/."""
        ran(
            "git",
            "fetch",
            "--quiet",
            self.clone,
            f"refs/tags/{self.tag_name}:refs/tags/{self.tag_name}",
            folder=self.root,
        )
        ran("git", "merge", "--quiet", "--ff-only", self.tag_name, folder=self.root)
        shutil.copytree(self.files, self.root / "dist" / self.version, dirs_exist_ok=True)

    def _wheel(self) -> Path:
        return next(self.files.glob("*.whl"))


def sums(folder: Path) -> str:
    """Return the sums as `sha256sum` prints them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
    )


def _replace(path: Path, pattern: str, text: str) -> None:
    new, count = re.subn(pattern, lambda _: text, path.read_text("utf-8"), count=1)
    if not count:
        raise Stop(f"{path.name} has no {pattern}")
    path.write_text(new, "utf-8")


STEPS: dict[str, Callable[[Release], str]] = {
    "version": Release.of_version,
    "changelog": Release.of_changelog,
    "tests": Release.of_tests,
    "build": Release.of_build,
    "check": Release.of_check,
    "pythons": Release.of_pythons,
    "materials": Release.of_materials,
    "audit": Release.of_audit,
    "tag": Release.of_tag,
}
#: Each of the others is the ground of those behind it.
OPTIONAL = ("tests", "pythons", "materials", "audit")


def release(root: Path, version: str, *, without: list[str], dry_run: bool) -> None:
    """Print each step and what came of it. Stop at the first that fails: nothing was changed then."""
    with tempfile.TemporaryDirectory(prefix="perfdoctor-release-") as scratch:
        made = Release(root, version, Path(scratch))
        for name, step in STEPS.items():
            print(f"{name}: ", end="", flush=True)
            print("left out" if name in without else step(made), flush=True)
        if dry_run:
            print(f"dry run: {made.tag_name} passed, and was thrown away\n{sums(made.files)}", end="")
            return
        made.take_over()
    print(f"dist/{version} and the tag v{version} are here. Nothing was pushed; these are the last commands:")
    print(f"  git push origin HEAD v{version}\n  twine upload dist/{version}/*.whl dist/{version}/*.tar.gz")


def main() -> None:
    """Read the arguments, and make the release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="as PEP 440 writes it, such as 0.2.0 or 1.0.0rc1")
    parser.add_argument("--dry-run", action="store_true", help="do everything, and keep nothing")
    parser.add_argument(
        "--without", action="append", default=[], choices=OPTIONAL, metavar="STEP", help=", ".join(OPTIONAL)
    )
    asked = parser.parse_args()
    try:
        release(_ROOT, asked.version, without=asked.without, dry_run=asked.dry_run)
    except Stop as reason:
        sys.exit(f"\nno release: {reason}")


if __name__ == "__main__":
    main()
