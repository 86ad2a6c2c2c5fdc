"""What is made only when it is used: regular expressions, and the methods of dataclasses.

In one run of the program most of them never are: analysing a small trace uses a third of the expressions and makes
objects of a third of the classes. To make all of them takes as long as the rest of that analysis.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any, AnyStr

if TYPE_CHECKING:
    import inspect
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 (type checkers see the real one, by its own name)

    def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
        """`re.compile`, done when the expression is first used."""

else:

    def regex(text: AnyStr, flags: int = 0) -> Regex:
        """`re.compile`, done when the expression is first used."""
        return Regex(text, flags)

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, eq: bool = True
    ) -> type | Callable[[type], type]:
        """`dataclasses.dataclass`, done when the class is first called, compared, hashed, printed or inspected."""
        return _late(cls, frozen=frozen, eq=eq) if cls else lambda cls: _late(cls, frozen=frozen, eq=eq)


class Regex:
    """An expression by its text, with all that `re.Pattern` has. Equal to itself alone."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Of what is not here yet: a method of the compiled expression, which is kept here."""
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"regex({self.pattern!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Regex, (self.pattern, self._flags)


# --- dataclasses ---

#: What `fields`, `replace`, `is_dataclass` and `match` look for in a class.
_DESCRIPTIONS = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
_describing = RLock()
_NOT_GIVEN = object()


def _late(cls: type, *, frozen: bool, eq: bool) -> type:
    """The class with methods that find out what its fields are when they are first called."""
    methods: dict[str, object] = {"__init__": _late_init(cls), "__repr__": _repr}
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refused, "__delattr__": _refused}
    own = {name for name, value in vars(cls).items() if value is not None}  # Python puts None where __eq__ is
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    for name in _DESCRIPTIONS:
        setattr(cls, name, _Description(cls, name))
    setattr(cls, "__signature__", _SIGNATURE)  # noqa: B010 (mypy knows no such attribute)
    return cls


class _Description:
    """An attribute that `dataclasses` makes of the annotations."""

    def __init__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: type) -> Any:
        with _describing:
            if vars(self._cls)[self._name] is self:  # else another thread was first
                self._cls.__doc__ = self._cls.__doc__ or self._cls.__name__  # else it is made of the signature
                dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(self._cls)
                named = [each.name for each in dataclasses.fields(self._cls) if each.init and not each.kw_only]
                setattr(self._cls, "__match_args__", tuple(named))  # noqa: B010 (mypy knows no such attribute)
        return getattr(self._cls, self._name)


class _Signature:
    """What `help` and editors show of a class before the first object is made: its fields, with their types."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None or "__dataclass_fields__" not in vars(owner):
            raise AttributeError("__signature__")  # of a class that extends it
        import inspect  # noqa: PLC0415 takes longer than all else here

        shown = []
        for each in dataclasses.fields(owner):
            if each.init:
                has_factory = each.default_factory is not dataclasses.MISSING
                default = ... if has_factory else each.default
                default = inspect.Parameter.empty if default is dataclasses.MISSING else default
                kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
                shown.append(inspect.Parameter(each.name, kind, default=default, annotation=each.type))
        return inspect.Signature(shown)


_SIGNATURE = _Signature()


def _late_init(cls: type) -> Callable[..., None]:
    def __init__(self: object, *arguments: Any, **named: Any) -> None:  # noqa: N807
        init = _init(cls)
        setattr(cls, "__init__", init)  # noqa: B010 (mypy forbids to assign to a method)
        init(self, *arguments, **named)

    return __init__


def _init(cls: type) -> Callable[..., None]:
    """What `dataclasses` makes, too: as fast, with the same errors. Not for InitVar, kw_only and `hash=`."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_NOT_GIVEN": _NOT_GIVEN}
    parameters, body = ["self"], ["pass"]
    for each in dataclasses.fields(cls):
        name, default, value = each.name, "", each.name
        if each.default_factory is not dataclasses.MISSING:
            names[f"_new_{name}"] = each.default_factory
            default = "=_NOT_GIVEN"
            value = f"_new_{name}() if {name} is _NOT_GIVEN else {name}" if each.init else f"_new_{name}()"
        elif each.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = each.default
            default, value = f"=_default_{name}", name if each.init else f"_default_{name}"
        if each.init:
            parameters.append(name + default)
        body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body), names)  # noqa: S102 (names of fields alone)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _comparison(cls: type) -> Callable[[object], tuple[object, ...]]:
    """The values of the fields that are compared and hashed, of an object of the class."""
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    return attrgetter(*names) if len(names) > 1 else lambda it: tuple(getattr(it, name) for name in names)


#: The same, found once a class.
_compared: Callable[[type], Callable[[object], tuple[object, ...]]] = cache(_comparison)


def _eq(self: object, other: object) -> object:
    if type(other) is not type(self):
        return NotImplemented
    values = _compared(type(self))
    return values(self) == values(other)


def _hash(self: object) -> int:
    return hash(_compared(type(self))(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refused(_self: object, name: str, *value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
