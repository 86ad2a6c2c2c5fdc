"""A client of the official package, which starts the server as assistants do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters, stdio_client

from perfdoctor.assistant.arguments import MOST_TOKENS


class Asked:
    """One answer: what the assistant reads, and the fields."""

    def __init__(self, result: Any) -> None:
        self.is_error = bool(result.is_error)
        self.text, *fields = [each.text for each in result.content]
        self.data = result.structured_content or {}
        assert self.is_error or json.loads(fields[0]) == self.data

    @property
    def everything(self) -> str:
        return self.text + json.dumps(self.data, ensure_ascii=False)


class Assistant:
    def __init__(self, portal: Any, client: Any) -> None:
        self._portal, self._client = portal, client

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The fields of an answer that is no error, with all that one may hold."""
        asked = self.call(tool, {"max_tokens": MOST_TOKENS, **arguments})
        assert not asked.is_error, asked.text
        return asked.data

    def call(self, tool: str, arguments: Any) -> Asked:
        return Asked(self._portal.call(self._client.call_tool, tool, arguments))

    def pages(self, tool: str, rows: str, **arguments: Any) -> list[Any]:
        """The rows of all pages."""
        found: list[Any] = []
        cursor = "0"
        while cursor is not None:
            data = self.ask(tool, cursor=cursor, **arguments)
            found += data[rows]
            assert data["next_cursor"] != cursor
            cursor = data["next_cursor"]
        return found

    def tools(self) -> list[Any]:
        return self._portal.call(self._client.list_tools).tools

    def resources(self) -> list[Any]:
        return self._portal.call(self._client.list_resources).resources

    def read(self, uri: str) -> str:
        (content,) = self._portal.call(self._client.read_resource, uri).contents
        return content.text

    def prompts(self) -> list[Any]:
        return self._portal.call(self._client.list_prompts).prompts

    def prompt(self, name: str, **arguments: str) -> str:
        (message,) = self._portal.call(self._client.get_prompt, name, arguments).messages
        return message.content.text

    @property
    def instructions(self) -> str:
        return self._client.instructions or ""


def command(root: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "perfdoctor", "mcp", "--root", str(root), *options]


@contextmanager
def assistant(root: Path, *options: str) -> Iterator[Assistant]:
    with connected(command(root, *options)) as client:
        yield client


@contextmanager
def connected(program: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Assistant]:
    """To a server that this command starts."""
    env = dict(environment or os.environ)
    parameters = StdioServerParameters(command=program[0], args=list(program[1:]), env=env)
    with start_blocking_portal() as portal:
        client = Client(stdio_client(parameters))
        with portal.wrap_async_context_manager(client) as session:
            yield Assistant(portal, session)
