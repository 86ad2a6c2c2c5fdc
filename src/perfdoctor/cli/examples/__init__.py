"""Which examples stand below a command's help?"""

from __future__ import annotations

from pathlib import Path


def of(command: str) -> str:
    """The examples of a command, in lines that the help does not wrap."""
    file = Path(__file__).parent / f"{command.replace(' ', '-')}.txt"
    return f"\b\nExamples:\n{file.read_text('utf-8')}"
