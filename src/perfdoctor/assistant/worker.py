"""How is a recording read without the server's end? In another process, which may be ended at any time.

Each message that it reads from its standard input, and writes to its standard output, is JSON. It ends when its input
does, when a request takes longer than it should, and when it holds more memory than it may.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.spawned import own_streams, receive, send

if TYPE_CHECKING:
    from perfdoctor.assistant.desk import Desk

#: The server ends a worker that is late; this is for one whose server is gone.
_LATE_S = 5


class WorkerSetup(msgspec.Struct):
    """What a worker is started with, as JSON. `seconds`: of a call; `memory_bytes`: that it writes to, 0 for any.

    `rules`: whole paths of folders; `config`: the whole path of a pyproject.toml, "" for none.
    """

    root: str
    remote: list[str]
    seconds: float
    memory_bytes: int
    rules: list[str] = []
    config: str = ""


class ToolRequest(msgspec.Struct):
    tool: str
    arguments: Any


class Reply(msgspec.Struct):
    """An answer, or what went wrong and what to do. `is_bug`: the fault is ours. `is_last`: the worker ends now."""

    text: str = ""
    data: dict[str, Any] | None = None
    what: str = ""
    do: str = ""
    is_bug: bool = False
    is_last: bool = False


def main() -> None:
    """Answer requests until the input ends; the program's argument is a WorkerSetup as JSON."""
    requests, replies = own_streams()
    setting = msgspec.json.decode(sys.argv[1], type=WorkerSetup)
    _limit_memory(setting.memory_bytes)
    from perfdoctor.assistant.desk import Desk  # noqa: PLC0415 after that, for numpy
    from perfdoctor.assistant.root import AllowedRoot  # noqa: PLC0415

    root = AllowedRoot(Path(setting.root), tuple(setting.remote))
    desk = Desk(root, setting.seconds, setting.rules, Path(setting.config) if setting.config else None)
    while (content := receive(requests)) is not None:
        _alarm(setting.seconds + _LATE_S)
        reply = answered(msgspec.json.decode(content, type=ToolRequest), desk)
        _alarm(0)
        send(replies, msgspec.json.encode(reply))
        if reply.is_last:
            return


def answered(request: ToolRequest, desk: Desk) -> Reply:
    """The reply to a request; an error becomes a reply, too."""
    from perfdoctor.api.arguments import in_words_of_python  # noqa: PLC0415
    from perfdoctor.assistant.tools import answer_of, understood  # noqa: PLC0415

    try:
        with in_words_of_python():
            asked = understood(request.tool, request.arguments)
            text, data = answer_of(request.tool)(asked, desk).sent(asked)
    except PerfdoctorError as error:
        what, do = (text.replace(f"{desk.root.folder}/", "") for text in (error.what, error.do))
        return Reply(what=what, do=do)
    except (MemoryError, RecursionError):
        do = "Name fewer ranks, or start the server with a larger --memory."
        return Reply(what="the recording takes more memory than the server may use", do=do, is_last=True)
    except Exception as error:  # noqa: BLE001 a bug of ours ends one call, not the server
        traceback.print_exc(file=sys.stderr)
        return Reply(what=f"perfdoctor failed: {type(error).__name__}", do="Please report it.", is_bug=True)
    return Reply(text, data)


def _limit_memory(most: int) -> None:
    """Limit the memory that is written to, not what is only mapped: nsys, started from here, maps more than it uses."""
    if most and sys.platform == "linux":
        import resource  # noqa: PLC0415 not on Windows

        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _alarm(seconds: float) -> None:
    """End the process after so many seconds: nothing handles the signal."""
    if sys.platform != "win32":
        import signal  # noqa: PLC0415

        signal.setitimer(signal.ITIMER_REAL, seconds)
