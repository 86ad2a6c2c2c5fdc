"""What is public stays, is documented, and is loaded only when it is used."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest
from folders import ROOT
from generated_pages import field_meaning, pages
from public_api import ALIASES, MEMBERS, lines, members
from tables import of_each

import perfdoctor
from perfdoctor import aliases, api, rule_api

#: Names of Python's, numpy's and pandas' in types.
ELSEWHERE = """
int float str bool None Iterable ArrayLike cls Any object tuple dict list Literal Mapping Sequence Callable Iterator os PathLike npt NDArray np
int32 generic bool_ DTypeLike pd DataFrame re Pattern frozenset Path True False slice
"""
#: Public modules beside the API.
OTHERS = ("rule_api.", "rule_testing.")
KEPT = ROOT / "tests" / "public_api.txt"


def test_names_signatures_and_fields_change_only_on_purpose() -> None:
    now, kept = list(lines()), KEPT.read_text("utf-8").splitlines()
    removed, added = sorted(set(kept) - set(now)), sorted(set(now) - set(kept))
    assert (removed, added) == ([], []), (
        f"The public API changed. Gone: {removed}. New: {added}. If that is meant, say so in CHANGELOG.md, and run: "
        "python scripts/public_api.py > tests/public_api.txt"
    )
    assert now == kept


def test_every_public_name_is_that_of_the_package_and_of_its_module() -> None:
    assert set(perfdoctor.__all__) >= set(api.__all__)
    assert all(getattr(perfdoctor, name) is getattr(api, name) for name in api.__all__)
    assert set(perfdoctor.__all__) <= set(dir(perfdoctor))


def test_the_api_page_shows_every_name_with_its_members() -> None:
    page = pages()["api.md"]
    for line in lines():
        name, _, member = re.match(r"(?:class |type )?(\w+)(\.(\w+))?", line).group(1, 2, 3)  # type: ignore[union-attr]
        if line.startswith(OTHERS):  # which have pages of their own
            continue
        shown = (
            f"`{name}.{member}`" in page or f"| `{member}` |" in page
            if member
            else f"## {name}\n" in page or f"| `{name}` |" in page
        )
        assert shown, line


@of_each("name", ["Advice", "CodeLine", "Fix", "KernelRow", "Outcome", "Saving", "StepStats", "TimeSplit"])
def test_the_page_says_what_each_field_means(name: str) -> None:
    cls = getattr(api, name)
    fields = [each.name for each in members(cls) if not each.about]
    assert fields
    assert [each for each in fields if not field_meaning(name, each) and f"`{each}`" not in cls.__doc__] == []


def test_every_public_class_and_function_says_what_it_is() -> None:
    lacking = [name for name in api.__all__ if (getattr(api, name).__doc__ or "") in ("", name)]
    assert lacking == []


def test_every_type_in_what_is_public_is_public_itself() -> None:
    known = {*api.__all__, *rule_api.__all__, *ALIASES, *ELSEWHERE.split()}
    for line in lines():
        declared = (
            re.sub(r"'[^']*'|\b\w+(?=:)", "", re.split(r"[:(=]", line, maxsplit=1)[-1])
            if not line.startswith(("class ", "type ", "rule_api.once_per_")) and re.search("[:(]", line)
            else ""
        )
        unknown = {name for name in re.findall(r"[A-Za-z_]\w+", declared) if name not in known}
        assert unknown == set(), line


def test_types_that_are_named_in_the_api_can_be_imported() -> None:
    """Those that are named only in what rules import are there in the same way."""
    shown = [line for line in lines() if not line.startswith(("type ", *OTHERS))]
    named = {name for name in ALIASES if any(re.search(rf"\b{name}\b", line) for line in shown)}
    assert named == set(aliases.__all__)
    assert set(ALIASES) >= set(aliases.__all__)


def test_another_name_is_an_attribute_error_that_loads_nothing() -> None:
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        getattr(perfdoctor, "analyse")  # noqa: B009
    assert importlib.import_module("perfdoctor.cli") is not None


def test_importing_it_loads_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import perfdoctor; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["perfdoctor"]


def test_diagnosing_from_python_loads_no_command() -> None:
    program = "import sys, perfdoctor; perfdoctor.analyze; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "numpy" in loaded
    assert not loaded & {"typer", "rich", "torch", "pandas", "nanoarrow", "jinja2", "perfdoctor.cli"}


def test_the_list_of_members_names_only_what_is_there() -> None:
    for name, listed in MEMBERS["api"].items():
        missing = [
            each
            for each in listed
            if not re.search(rf"^{name}\.{re.escape(each)}\b", KEPT.read_text("utf-8"), re.MULTILINE)
        ]
        assert missing == [], name
