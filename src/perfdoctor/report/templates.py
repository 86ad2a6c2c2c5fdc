"""How are templates read? Escaped, and compiled once a user: that takes a fifteenth of analysing a small trace."""

from __future__ import annotations

import contextlib
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined, compiler
from jinja2.bccache import Bucket
from markupsafe import Markup

from perfdoctor import __version__
from perfdoctor.report.words.foreign_text import clean_block
from perfdoctor.system.paths import cache_folder


def environment() -> Environment:
    """A new environment for the files in `page/`."""
    return Environment(
        loader=FunctionLoader(page_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_printable, bytecode_cache=compiled_pages(),
    )  # fmt: skip


def page_file(name: str) -> str:
    """The text of a template, style or script."""
    return (files("perfdoctor.report") / "page" / name).read_text("utf-8")


def _printable(value: object) -> object:
    """A value of the template without control characters, before jinja2 escapes it."""
    return clean_block(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class CompiledPages(FileSystemBytecodeCache):
    """What Jinja made of each template, by our version and its compiler; made anew where a text differs."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was compiled, if the folder can be written; the page is rendered all the same."""
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True, mode=0o700)
            super().dump_bytecode(bucket)

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().load_bytecode(bucket)


def compiled_pages() -> CompiledPages | None:
    """The cache of compiled templates; None where the user has no folder for it."""
    try:
        written = Path(compiler.__file__).stat().st_mtime_ns  # its version would take 5 ms to find
        folder = cache_folder() / "pages" / f"{__version__}-jinja-{written:x}"
    except (OSError, RuntimeError):
        return None
    return CompiledPages(str(folder), "%s.bin")
