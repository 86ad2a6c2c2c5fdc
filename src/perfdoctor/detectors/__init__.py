"""What is bad about it? One file a rule, below its category and named like its TOML: metric × threshold → Finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.rulebook import Rule

Detector = Callable[[Run, Mapping[str, float]], Iterator[Finding]]


class RuleError(Exception):
    """What a rule that is not ours did wrong, as one line: in which of its files and lines, and which error."""


def detector(rule: Rule) -> Detector:
    """The `detect` of a rule. Imported when it is asked for: most runs need few of them.

    Of a rule from elsewhere it may raise whatever its code raises; a finding of it is checked where it is made.
    """
    if rule.origin is not None:
        from perfdoctor.detectors import own  # noqa: PLC0415 most runs have none

        return own.detector(rule, rule.origin)
    found: Detector = import_module(f"{__name__}.{rule.category}.{rule.module}").detect
    return found
