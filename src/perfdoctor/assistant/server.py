"""How does perfdoctor speak the Model Context Protocol? On standard input and output, with the official package.

Nothing but the protocol is written to standard output. A call that cannot be answered is a tool's error with what
happened and what to do; the server goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import msgspec
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from perfdoctor import __version__
from perfdoctor.assistant.asking import Call, WorkerProcess
from perfdoctor.assistant.documents import documents
from perfdoctor.assistant.tools import INSTRUCTIONS, PROMPTS, TOOLS, understood
from perfdoctor.assistant.worker import WorkerSetup
from perfdoctor.errors import PerfdoctorError
from perfdoctor.report.words.foreign_text import clean

#: Calls that wait for their turn; of more than these nobody reads the answers.
_MOST_WAITING = 16
_READS_ONLY = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


def serve(setting: WorkerSetup) -> None:
    """Answer calls until the client closes the connection, or ends this process."""
    worker = WorkerProcess(setting)

    def leave(number: int, _frame: object) -> None:
        worker.close()
        os._exit(128 + number)  # else the thread that reads standard input would be waited for

    signal.signal(signal.SIGTERM, leave)
    try:
        asyncio.run(_serve(worker))
    finally:
        worker.close()


async def _serve(worker: WorkerProcess) -> None:
    server = _server(worker)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _server(worker: WorkerProcess) -> Server[Any]:
    waiting = 0

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[
            types.Tool(
                name=name, title=tool.title, description=tool.description, input_schema=tool.schema(),
                annotations=_READS_ONLY,
            )
            for name, tool in TOOLS.items()
        ])  # fmt: skip

    async def call_tool(
        _context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        nonlocal waiting
        if waiting >= _MOST_WAITING:
            return _failed("too many calls wait for an answer", "Wait for those.")
        waiting += 1
        try:
            understood(params.name, params.arguments)
            return await _answered(worker, params)
        except PerfdoctorError as error:
            return _failed(error.what, error.do)
        finally:
            waiting -= 1

    return Server(
        "perfdoctor", version=__version__, title="perfdoctor", instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool, on_list_resources=_list_resources,
        on_read_resource=_read_resource, on_list_prompts=_list_prompts, on_get_prompt=_get_prompt,
    )  # fmt: skip


async def _list_resources(
    _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[
        types.Resource(
            name=each.name, title=each.title, uri=uri, mime_type=each.mime_type, size=each.path.stat().st_size
        )
        for uri, each in documents().items()
    ])  # fmt: skip


async def _read_resource(
    _context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    found = documents().get(uri)
    if found is None:
        raise MCPError(types.INVALID_PARAMS, "there is no such document; resources/list names all")
    text = found.path.read_text("utf-8")
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type=found.mime_type, text=text)]
    )


async def _list_prompts(
    _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[
        types.Prompt(
            name=name, title=each.title, description=each.description,
            arguments=[
                types.PromptArgument(name=key, description=said, required=True)
                for key, said in each.arguments.items()
            ],
        )
        for name, each in PROMPTS.items()
    ])  # fmt: skip


async def _get_prompt(
    _context: ServerRequestContext[Any], params: types.GetPromptRequestParams
) -> types.GetPromptResult:
    try:
        prompt = PROMPTS[params.name]
        text = prompt.filled(params.arguments or {})
    except KeyError as error:
        raise MCPError(types.INVALID_PARAMS, f"there is no such prompt, or it lacks an argument: {error}") from None
    message = types.PromptMessage(role="user", content=types.TextContent(text=text))
    return types.GetPromptResult(description=prompt.description, messages=[message])


async def _answered(worker: WorkerProcess, params: types.CallToolRequestParams) -> types.CallToolResult:
    """The result of a call. A call that is given up ends the worker, as nobody waits for what it reads."""
    call = Call(params.name, params.arguments)
    try:
        reply = await asyncio.to_thread(worker.ask, call)
    except asyncio.CancelledError:
        worker.give_up(call)
        raise
    if reply.data is None:
        return _failed(reply.what, reply.do)
    fields = msgspec.json.encode(reply.data).decode()
    return types.CallToolResult(
        # The fields once more, as the specification asks for: some clients show text alone.
        content=[types.TextContent(text=reply.text), types.TextContent(text=fields)],
        structured_content=reply.data,
    )


def _failed(what: str, do: str) -> types.CallToolResult:
    what, do = clean(what), clean(do)
    return types.CallToolResult(
        content=[types.TextContent(text=f"{what}\n{do}")], structured_content={"error": {"what": what, "do": do}},
        is_error=True,
    )  # fmt: skip
