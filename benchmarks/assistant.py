"""Do the texts of `perfdoctor mcp` answer questions about recordings? `make assistant`.

A scripted client makes the calls of assistant.toml, through the protocol, and reads the first text of each answer.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from labels import recordings
from mcp import Client, StdioServerParameters, stdio_client

from perfdoctor.assistant.fitted import tokens
from perfdoctor.system.toml_tables import parsed

ROOT = Path(__file__).parents[1]
QUESTIONS: Sequence[Mapping[str, Any]] = parsed(Path(__file__).with_suffix(".toml").read_text("utf-8"))["question"]


class Answered(msgspec.Struct):
    """`found`: the answer in the texts, "" where there is none. `tokens`: of the longest answer, with its fields."""

    question: Mapping[str, Any]
    found: str
    right: str | float
    tokens: int
    is_right: bool


def folder_of(question: Mapping[str, Any], public: Path | None) -> Path | None:
    """The server's root for this question; None where its recording is not here."""
    if "recording" not in question:
        return ROOT / "fixtures"
    return public if public is not None and (public / question["recording"]).exists() else None


async def answered(questions: Sequence[Mapping[str, Any]], root: Path) -> list[Answered]:
    """Each question, asked of one server."""
    command = ["-m", "perfdoctor", "mcp", "--root", str(root)]
    server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        return [await _answered(client, question, root) for question in questions]


async def _answered(client: Client, question: Mapping[str, Any], root: Path) -> Answered:
    known: dict[str, str] = {}
    longest = 0
    for call, pattern in zip(question["calls"], question["find"], strict=True):
        arguments = {key: _filled(value, known) for key, value in call.items() if key != "tool"}
        result = await client.call_tool(call["tool"], arguments)
        longest = max(longest, sum(tokens(each.text) for each in result.content))
        found = re.search(pattern, result.content[0].text)
        known |= found.groupdict() if found else {}
        if found is None:
            break
    right = question["answer"] if "answer" in question else _by_sql(question, root)
    said = known.get("answer", "")
    return Answered(question, said, right, longest, _is_right(said, right, question.get("within", 0.0)))


def _filled(value: Any, known: Mapping[str, str]) -> Any:
    """A moment is a number, and a cursor is a text."""
    name = re.fullmatch(r"\{(\w+)\}", value) if isinstance(value, str) else None
    if name is None:
        return value
    return known[name[1]] if name[1] == "next" else int(known[name[1]])


def _by_sql(question: Mapping[str, Any], root: Path) -> float:
    """The answer of the recording's own tables."""
    file = root / question["calls"][0]["path"]
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        ((value,),) = connection.execute(question["sql"]).fetchall()
    finally:
        connection.close()
    return float(value)


def _is_right(said: str, right: str | float, within: float) -> bool:
    if isinstance(right, str) or not said:
        return said == right
    return abs(float(said) - right) <= within * abs(right)


def all_answered(public: Path | None) -> Iterator[Answered]:
    """Every question whose recording is here."""
    for root in dict.fromkeys(folder_of(question, public) for question in QUESTIONS):
        if root is not None:
            of_root = [question for question in QUESTIONS if folder_of(question, public) == root]
            yield from asyncio.run(answered(of_root, root))


def main() -> int:
    found = list(all_answered(recordings()))
    for each in found:
        mark = "right" if each.is_right else "WRONG"
        print(f"{mark}  {each.tokens:>5} tokens  {each.question['ask']}  {each.found or 'no answer'} ({each.right})")
    right = sum(each.is_right for each in found)
    print(f"\n{right} of {len(found)} answers are in the texts, at most {max(each.tokens for each in found)} tokens each;"
          f" {len(QUESTIONS) - len(found)} questions are about recordings that are not here.")  # fmt: skip
    return int(right < len(found))


if __name__ == "__main__":
    sys.exit(main())
