"""Is a vulnerability known in what is installed? pip-audit asks, and what it could not ask is no good news.

usage: scripts/audit.py     exits with 0 if none is known, with 1 if one is, with 2 if not all were answered
pip-audit itself exits with 0 where the index has no list of vulnerabilities, as most mirrors have none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
#: What is audited: it holds the versions of all that users get, and of all that releases are built with.
LOCK = Path("requirements", "dev.txt")


@dataclass
class Answer:
    """Return the packages that are known to be vulnerable, those that are known not to be, and those nobody knows."""

    vulnerable: list[str]
    clean: list[str]
    unanswered: list[str]
    why: str = ""

    def sentence(self) -> str:
        """One line for people."""
        if self.vulnerable:
            return "\n".join(self.vulnerable)
        if not self.unanswered:
            return f"no vulnerability is known in {len(self.clean)} packages"
        return f"not audited: {len(self.unanswered)} of {len(self.clean) + len(self.unanswered)} packages ({self.why})"


def read(document: dict[str, Any]) -> Answer:
    """What the JSON of pip-audit says."""
    answer = Answer([], [], [])
    for package in document["dependencies"]:
        name = package["name"]
        if "skip_reason" in package:
            answer.unanswered.append(name)
            answer.why = answer.why or package["skip_reason"]
        elif package["vulns"]:
            ids = ", ".join(
                f"{known['id']} (fixed in {' or '.join(known['fix_versions']) or 'no version'})"
                for known in package["vulns"]
            )
            answer.vulnerable.append(f"{name} {package['version']}: {ids}")
        else:
            answer.clean.append(name)
    return answer


def answer(*arguments: str) -> Answer:
    """What pip-audit says of what its arguments name."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return read(json.loads(done.stdout))
    except ValueError:  # it ends with a traceback where the service is out of reach
        last = next(reversed(done.stderr.strip().splitlines()), "no output")
        return Answer([], [], ["all"], why=last[:200])


def main() -> None:
    """Audit the development environment."""
    found = answer("--disable-pip", "--require-hashes", "--requirement", str(_ROOT / LOCK))
    print(found.sentence())
    sys.exit(1 if found.vulnerable else 2 if found.unanswered else 0)


if __name__ == "__main__":
    main()
