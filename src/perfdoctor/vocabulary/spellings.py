"""Which table or column is meant by a name of another tool, or by one that is spelled almost so?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from perfdoctor.system import toml_tables
from perfdoctor.vocabulary.nearest import near, nearest

#: A column of so many tables is listed with them; one of more (`name`) is a word that says nothing about where to look.
_LISTED = 6


@cache
def spellings(kind: str) -> Mapping[str, Sequence[str]]:
    """What each of our `tables` or `columns` is called elsewhere, in lower case."""
    said = toml_tables.shipped_table(Path(__file__).with_name("spellings.toml"))
    return {ours: words.split() for ours, words in said[kind].items()}


def table_hint(name: str, known: Iterable[str]) -> str:
    """What to do where no table or view has this name: which one is called so elsewhere, else the nearest."""
    names = list(known)
    return _called(name, "tables", names) or near(name, names)


def column_hint(name: str, asked: Mapping[str, Iterable[str]], known: Mapping[str, Iterable[str]]) -> str:
    """What to do where no column of the `asked` tables has this name: what it is called in them, else which few others
    of all that are `known` have it, else the nearest; and all columns of those that were asked.
    """
    own = [column for columns in asked.values() for column in columns]
    if called := _called(name, "columns", own):
        return called
    if not own:
        return _tables_with(name, known) or f"Tables: {', '.join(known)}."
    found = nearest(name, own)
    hint = _tables_with(name, known) or (f"Did you mean {', '.join(found)}?" if found else "")
    return " ".join([*filter(None, [hint]), *(f"{table} has: {', '.join(asked[table])}." for table in asked)])


def _called(name: str, kind: str, here: Sequence[str]) -> str:
    """`Here it is called …` of the first of our names that are `here`; "" where none is."""
    found = next((ours for ours, words in spellings(kind).items() if name.lower() in words and ours in here), "")
    return f"Here it is called {found}." if found else ""


def _tables_with(name: str, known: Mapping[str, Iterable[str]]) -> str:
    """Which tables have the column, or one that is called so elsewhere; "" for none, and for too many."""
    foreign = [ours for ours, words in spellings("columns").items() if name.lower() in words]
    for column in (name.lower(), *foreign):
        if tables := [table for table, columns in known.items() if column in columns]:
            return f"A column {column} is in {', '.join(tables)}." if len(tables) <= _LISTED else ""
    return ""
