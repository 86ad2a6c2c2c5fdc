"""Is what pip-audit could not ask kept apart from what is clean?"""

from __future__ import annotations

import audit

CLEAN = {"name": "rich", "version": "15.0.0", "vulns": []}
KNOWN = {"name": "numpy", "version": "1.0", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1", "2.0"]}]}
UNFIXED = {"name": "isal", "version": "1.0", "vulns": [{"id": "CVE-2", "fix_versions": []}]}
UNKNOWN = {"name": "typer", "skip_reason": "Dependency not found on PyPI and could not be audited: typer (0.29)"}


def test_where_all_were_answered_and_none_is_known_it_is_clean() -> None:
    answer = audit.read({"dependencies": [CLEAN]})
    assert (answer.vulnerable, answer.unanswered) == ([], [])
    assert answer.sentence() == "no vulnerability is known in 1 packages"


def test_what_could_not_be_asked_is_not_clean_and_says_why() -> None:
    answer = audit.read({"dependencies": [CLEAN, UNKNOWN]})
    assert answer.unanswered == ["typer"]
    assert answer.sentence() == f"not audited: 1 of 2 packages ({UNKNOWN['skip_reason']})"


def test_what_is_known_is_named_with_the_version_that_mends_it() -> None:
    answer = audit.read({"dependencies": [CLEAN, KNOWN, UNFIXED, UNKNOWN]})
    assert answer.sentence().splitlines() == [
        "numpy 1.0: CVE-1 (fixed in 1.1 or 2.0)",
        "isal 1.0: CVE-2 (fixed in no version)",
    ]


def test_a_service_that_is_out_of_reach_leaves_all_unanswered() -> None:
    answer = audit.answer("--no-such-option")
    assert answer.unanswered
    assert not answer.clean
    assert "no-such-option" in answer.why
