"""What is public in `perfdoctor`, by name, signature and field? For its page, and for the test that holds it still.

Printed one line a name: `python scripts/public_api.py > tests/public_api.txt` after a change that is meant.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from perfdoctor import api, rule_api, rule_testing
from perfdoctor.comparison.records import Fate, FindingFate, Verdict
from perfdoctor.model.steps import Confidence, FoundBy
from perfdoctor.records.findings import Status, Value
from perfdoctor.system.toml_tables import parsed

#: By module and class, which members are public.
MEMBERS = parsed(Path(__file__).with_name("public_members.toml").read_text("utf-8"))

#: What types in signatures and fields mean that have a name and no class of their own.
ALIASES = {
    "Amount": "int | float, the same in all fields of one record",
    "AnyPath": "str | os.PathLike[str]",
    "AnyQuestions": "str | Sequence[str] | Mapping[str, str]",
    "AnyRun": "Diagnosis | AnyPath",
    "AnySteps": "int | str | tuple[int, int]",
    "AnyThresholds": "Mapping[str, Mapping[str, float]]",
    "Column": "numpy array | Text, one element a row",
    "Confidence": f"{Confidence}",
    "Evidence": "Measure | Rows | Span",
    "Fate": f"{Fate}",
    "FindingFate": f"{FindingFate}",
    "Floats": "numpy array of float64",
    "FoundBy": f"{FoundBy}",
    "Lanes": "str | Sequence[str]",
    "Ints": "numpy array of int64",
    "Mask": "numpy array of bool, one element a row",
    "Nanoseconds": "numpy array of int64",
    "Progress": "Callable[[str], None]",
    "RowsOf": "Callable[[Place], Mask]",
    "Status": f"{Status}",
    "Value": f"{Value}",
    "Verdict": f"{Verdict}",
}


class Member(NamedTuple):
    """`declared`: its type, or its signature. `about`: its docstring; "" for a field, which its class describes."""

    name: str
    declared: str
    about: str = ""


def names() -> list[str]:
    """All public names: functions first, then what they return, then the others in alphabetical order."""
    functions = [name for name in sorted(api.__all__) if not is_class(getattr(api, name))]
    returned = ["Diagnosis", "Comparison", "Timeline", "Frame", "Text", "Recording", "Advice"]
    return [*functions, *returned, *sorted(set(api.__all__) - {*functions, *returned})]


def is_class(found: object) -> bool:
    """An alias like `list[int]` is none, although Python 3.10 says so."""
    return inspect.isclass(found) and not isinstance(found, types.GenericAlias)


def signature(function: Any) -> str:
    """As it is written: annotations are texts."""
    found = inspect.signature(function)
    shown = [
        parameter.replace(annotation=_Plain(parameter.annotation))
        if parameter.annotation is not inspect.Parameter.empty
        else parameter
        for name, parameter in found.parameters.items()
        if name != "self"
    ]
    returned = _Plain(found.return_annotation) if found.return_annotation is not found.empty else found.empty
    return str(found.replace(parameters=shown, return_annotation=returned))


class _Plain:
    """An annotation that prints without quotes."""

    def __init__(self, text: object) -> None:
        self._text = text if isinstance(text, str) else getattr(text, "__name__", str(text))

    def __repr__(self) -> str:
        return self._text


def members(cls: type) -> Iterator[Member]:
    """The public ones: as public_members.toml lists them, else fields, properties and methods without an underscore."""
    fields = _fields(cls)
    listed = MEMBERS["api"].get(cls.__name__) or MEMBERS["rule_api"].get(cls.__name__)
    found = listed or [*fields, *(name for name in vars(cls) if not name.startswith("_") and name not in fields)]
    for member in _members(cls, found, fields):
        declared = member.declared
        for variable, argument in _arguments(cls).items():
            declared = re.sub(rf"\b{variable}\b", argument, declared)
        yield member._replace(declared=declared)


def _arguments(cls: type) -> dict[str, str]:
    """Return what stands for each type variable of the class's generic bases, by the variable's name."""
    return {
        variable.__name__: argument.__name__
        for base in getattr(cls, "__orig_bases__", ())
        for variable, argument in zip(getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False)
        if inspect.isclass(argument)
    }


def _members(cls: type, names: Iterable[str], fields: Mapping[str, str]) -> Iterator[Member]:
    for name in names:
        if name in fields:
            yield Member(name, f": {fields[name]}")
        elif name in getattr(cls, "__slots__", ()) or name in getattr(cls, "__annotations__", {}):
            declared = getattr(cls, "__annotations__", {}).get(name, _SLOTS.get((cls.__name__, name), ""))
            yield Member(name, f": {declared}")
        else:
            yield _of_code(name, inspect.getattr_static(cls, name))


def _fields(cls: type) -> dict[str, str]:
    """Return the type of each field of a Struct, as it is written; {} for any other class."""
    written = {
        name: kind for each in reversed(cls.__mro__) for name, kind in vars(each).get("__annotations__", {}).items()
    }
    return {name: str(written[name]) for name in getattr(cls, "__struct_fields__", ())}


#: Types of attributes that a class only assigns.
_SLOTS = {
    ("Text", "codes"): "npt.NDArray[np.int32]",
    ("Text", "values"): "Sequence[str]",
    ("Intervals", "starts"): "Ints",
    ("Intervals", "ends"): "Ints",
}


def _of_code(name: str, found: Any) -> Member:
    about = inspect.cleandoc(found.__doc__ or "")
    if isinstance(found, property) or hasattr(found, "attrname"):
        getter = found.fget if isinstance(found, property) else found.func
        return Member(name, f": {_Plain(inspect.signature(getter).return_annotation)!r}", about)
    return Member(name, signature(getattr(found, "__func__", found)), about)


def lines() -> Iterator[str]:
    """One a name, in alphabetical order of the names."""
    for name in sorted(api.__all__):
        found = getattr(api, name)
        if is_class(found):
            yield f"class {name}"
            yield from (f"{name}.{each.name}{each.declared}" for each in members(found))
        else:
            yield f"{name}{signature(found)}"
    for name in sorted(rule_api.__all__):
        found = getattr(rule_api, name)
        yield f"rule_api.{name}{signature(found) if inspect.isfunction(found) else ''}"
        if is_class(found) and name not in api.__all__:
            yield from (f"rule_api.{name}.{each.name}{each.declared}" for each in members(found))
    yield from (f"rule_testing.{name}{signature(getattr(rule_testing, name))}" for name in sorted(rule_testing.__all__))
    yield from (f"type {name} = {meaning}" for name, meaning in ALIASES.items())


if __name__ == "__main__":
    print("\n".join(lines()))
