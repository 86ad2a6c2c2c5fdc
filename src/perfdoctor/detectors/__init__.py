"""What is bad about it? One file a rule, below its category and named like its TOML: metric × threshold → Finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.rulebook import Rule

Detector = Callable[[Run, Mapping[str, float]], Iterator[Finding]]


def detector(rule: Rule) -> Detector:
    """The `detect` of a rule. Imported when it is asked for: most runs need few of them."""
    found: Detector = import_module(f"{__name__}.{rule.category}.{rule.id.replace('-', '_')}").detect
    return found
