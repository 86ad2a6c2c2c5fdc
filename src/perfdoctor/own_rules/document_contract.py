"""Does the document of a rule say all that reports need, in the way that readers know? As our own are held to."""

from __future__ import annotations

import ast
import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfdoctor.own_rules.tried import OF_EACH, names_in
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.derivations import plain, unit_of
from perfdoctor.vocabulary.names.frameworks import FACTS
from perfdoctor.vocabulary.nearest import near
from perfdoctor.vocabulary.own_rules import REQUIRED
from perfdoctor.vocabulary.places import GPU
from perfdoctor.vocabulary.rulebook import Rule, RuleFix, is_share
from perfdoctor.vocabulary.sentences import CLAUSE

#: All other fields of a Rule; where one lies, and what is wrong with it, no document says.
OPTIONAL = tuple(set(Rule.__struct_fields__) - {*REQUIRED, "fixes", "origin", "broken"})
OF_A_FIX = ("title", "how", "effort", "changes_numerics", "situations", "when", "needs")
#: What the skeleton leaves to its author.
TO_DO = "TODO"
_VERSION = regex(r"\d+\.\d+\.\d+")
_NO_IMPERATIVE = regex(r"(ing|ed|s)$")
#: Dots that stand for code, and not the rest of the dimensions: `x[..., :3]`.
_DOTS = regex(r"(?<!\[)\.\.\.|=\s*…")
#: What no training does.
_SERVES = regex(r"\binference_mode\(|\bvllm\b|\bsglang\b|\.generate\(|\bkv.?cache\b", re.IGNORECASE)
#: Such a fix may be C++, or words.
_WITHOUT_TORCH = "not torch"
_SHELL = regex(r"^(\$|#!|python|pip|taskset|nsys|ncu|[A-Z_]+=\S*|nvidia-smi|perfdoctor|torchrun|export) ")
#: A number without a unit that ends so counts something, which the sentence names.
_NO_UNIT = ("count", "")
#: A unit stands so near: behind a second number (`from {a} to {b} ms`), or a few words.
_NEAR = 40
_IN_HOW = regex(r"\{(\w+)\|")


def problems(document: Mapping[str, Any], rule: Rule, known: Mapping[str, Rule], text: str = "") -> Iterator[str]:
    """What is wrong with the document of a rule, one line each. `known`: all rules, which it may name. `text`: as it
    was written, for the lines of what is wrong.
    """
    yield from _fields(document, rule, known, text)
    yield from _left_to_do(document)
    yield from _thresholds(document)
    yield from _sentences(rule)
    for fix in document["fix"]:
        yield from _fix(fix, rule)
    yield from _situations(rule)
    yield from _derivation(rule)


def sentences(rule: Rule) -> list[str]:
    return [rule.summary, *rule.summaries.values()]


def named_values(rule: Rule) -> set[str]:
    """The values of a finding that its sentences, fixes and formulas name."""
    texts = [*sentences(rule), *rule.clauses.values()]
    named = {name.removesuffix(CLAUSE) for text in texts for name in placeholders(text)} - set(GPU)
    in_fixes = {name for fix in rule.fixes for name in _IN_HOW.findall(fix.how)}
    return named | in_fixes | (set(rule.derivation.every_input) if rule.derivation else set())


def placeholders(template: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(template) if name]


def _no_such_field(name: str, fields: Iterable[str], text: str) -> str:
    """The line of the field, and which one may have been meant."""
    at = next((number for number, line in enumerate(text.splitlines(), 1) if _begins(line, name)), 0)
    return f"{f'line {at}: ' if at else ''}{name}: there is no such field. {near(name, fields)}"


def _begins(line: str, name: str) -> bool:
    """Does the line give this field, or begin its table?"""
    key = line.strip().lstrip("[").partition("=")[0].strip().rstrip("]")
    return key.strip('"') == name or key.startswith(f"{name}.")


def _fields(document: Mapping[str, Any], rule: Rule, known: Mapping[str, Rule], text: str) -> Iterator[str]:
    fields = {*REQUIRED, *OPTIONAL, "fix"}
    for name in sorted(set(document) - {*REQUIRED, *OPTIONAL}):
        yield _no_such_field(name, sorted(fields), text)
    if document["status"] not in ("stable", "preview"):
        yield "status is stable or preview"
    if not _VERSION.fullmatch(document["since"]):
        yield "since is a version of three numbers: 1.0.0"
    for name in ("title", "summary", "why", "not_a_problem_when"):
        if not document[name].strip():
            yield f"{name} is empty"
    if document["title"].endswith("."):
        yield "the title ends with a full stop: it is a heading"
    if not rule.needs:
        yield "needs is empty: a rule about time needs at least `places`"
    if not rule.references:
        yield "references is empty: name the page that a reader would want to see"
    for reference in rule.references:
        if not reference.startswith("https://"):
            yield f"the reference {reference} does not begin with https://"
    if not rule.thresholds:
        yield "there are no thresholds: from which share of the step on is it worth a line?"
    if not set(rule.hidden_by) <= {"loader", "host"}:
        yield "hidden_by names loader and host alone"
    for name in rule.symptom_of:
        if name not in known or name == rule.id:
            yield f"symptom_of names {name}, which is no other rule"
    doubts = [*([rule.doubt] if rule.doubt else []), *rule.doubts.values()]
    for doubt in doubts:
        if not doubt[:1].islower() or doubt.endswith("."):
            yield f"the doubt {doubt!r} is half a sentence: it begins with a small letter, without a full stop"


def _left_to_do(value: Any, path: str = "") -> Iterator[str]:
    """The paths of texts of the skeleton that nobody wrote anew, in `value`, which lies at `path`."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _left_to_do(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _left_to_do(inner, path)
    elif isinstance(value, str) and TO_DO in value:
        yield f"{path} still says {TO_DO}"


def _thresholds(document: Mapping[str, Any]) -> Iterator[str]:
    for name, entry in document["thresholds"].items():
        if isinstance(entry, str):
            continue
        for field in ("unit", "why"):
            if not str(entry.get(field, "")).strip():
                yield f"the threshold {name} has no {field}"
        unit = str(entry.get("unit", ""))
        if is_share(name, unit) and not 0 < entry["value"] <= 1:
            yield f"the threshold {name} is {entry['value']}: a share is above 0, and 1 at most"
        if is_share(name, unit) and ("%" in unit or "percent" in unit):
            yield f"the threshold {name} is in {unit}: a share is a number from 0 to 1, as in `fraction of step time`"


def _sentences(rule: Rule) -> Iterator[str]:
    for text in sentences(rule):
        if len(placeholders(text)) < 2:
            yield f"a summary has the two numbers that convince, and {text[:40]!r} has {len(placeholders(text))}"
    for text in (*sentences(rule), *rule.clauses.values()):
        for name, behind in _numbers(text):
            unit = unit_of(name)
            if unit == "share":
                yield f"{{{name}}} is a share: a reader wants percent, and a name that ends in _percent"
            elif unit not in _NO_UNIT and unit not in behind:
                yield f"{{{name}}} is in {unit}, and the sentence does not say so behind it"
    texts = [*sentences(rule), *rule.clauses.values()]
    used = {name for text in texts for name in placeholders(text) if name.endswith(CLAUSE)}
    for name in sorted({name.removesuffix(CLAUSE) for name in used} ^ set(rule.clauses)):
        yield f"the clause {name} is not both in [clauses] and in a sentence"


def _numbers(text: str) -> Iterator[tuple[str, str]]:
    """Each placeholder with what stands behind it, up to the end of the sentence's part: `{a} of {b} ms`."""
    pieces = list(string.Formatter().parse(text))
    for place, (_, name, _, _) in enumerate(pieces):
        if name:
            yield name, "0".join(literal for literal, *_ in pieces[place + 1 :])[:_NEAR]


def _fix(fix: Mapping[str, Any], rule: Rule) -> Iterator[str]:
    title = str(fix["title"])
    for name in sorted(set(fix) - set(OF_A_FIX)):
        yield f"{name}: a fix has no such field. {near(name, OF_A_FIX)}"
    if not isinstance(fix["changes_numerics"], bool):
        yield f"the fix {title!r}: changes_numerics is true or false"
    if title == rule.title:
        yield f"the fix {title!r} repeats the title of the rule"
    first = title.partition(" ")[0]
    if not first[:1].isupper() or _NO_IMPERATIVE.search(first) or title.endswith("."):
        yield f"the title {title!r} of a fix begins with a verb in its plain form, and ends without a full stop"
    if any(_DOTS.search(line) for line in fix["how"].splitlines()):
        yield f"the fix {title!r} has dots in place of code: write what stands there, or a name for it"
    if _SERVES.search(fix["how"]) and not any("inference" in each for each in fix.get("when", ())):
        yield f"the fix {title!r} is one of a program that answers requests: say so in `when`"
    if not fix["how"].strip():
        yield f"the fix {title!r} has no code to paste"
    elif _WITHOUT_TORCH not in fix.get("when", ()) and not any(_SHELL.match(line) for line in fix["how"].splitlines()):
        try:
            compile(fix["how"], title, "exec", ast.PyCF_ONLY_AST)
        except SyntaxError as error:
            yield f"the code of the fix {title!r}, line {error.lineno}, is no Python: {error.msg}"


def _situations(rule: Rule) -> Iterator[str]:
    """The first situation, and what is known of the program, for which no fix is left."""
    situations = {"", *rule.summaries, *(each for fix in rule.fixes for each in fix.situations)}
    if rule.fixes and all(fix.situations and "" not in fix.situations for fix in rule.fixes):
        situations.discard("")
    for situation, facts in itertools.product(sorted(situations), filter(rule.applies, _programs(rule.fixes))):
        if not any(fix.fits(situation, facts) for fix in rule.fixes):
            where = f" of the situation {situation!r}" if situation else ""
            known = ", ".join(sorted(facts)) or "nothing"
            yield f"no fix is left for a finding{where} in a program of which is known: {known}"
            return


def _programs(fixes: tuple[RuleFix, ...]) -> list[frozenset[str]]:
    """Each set of facts, of those that `fixes` ask for, that may be known of a program."""
    asked = sorted(fact for fact in FACTS if any(fact in condition for fix in fixes for condition in fix.when))
    sets = itertools.chain.from_iterable(itertools.combinations(asked, count) for count in range(len(asked) + 1))
    return [frozenset(some) for some in sets]


def _derivation(rule: Rule) -> Iterator[str]:
    if rule.derivation is None:
        return
    read: set[str] = set()
    for cases in rule.derivation.by_situations.values():
        for case, formula in cases.items():
            read |= set(placeholders(formula))
            if "\n" in formula:
                yield f"the derivation's {case} is more than one line"
            if any(words in formula for words in OF_EACH):
                continue
            try:
                names = names_in(plain(formula))
            except ValueError as error:
                yield f"the derivation's {case}: {error}"
            else:
                for name in sorted(names - set(placeholders(formula))):
                    yield f"the derivation's {case} has {name} without braces"
    inputs = set(rule.derivation.every_input)
    for name in sorted(read - inputs - set(rule.thresholds)):
        yield f"the derivation names {name}, which is neither an input nor a threshold"
    for name in sorted(inputs - read):
        yield f"the derivation has the input {name}, which no formula names"
