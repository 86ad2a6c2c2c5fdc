"""The page's templates, compiled once for the user: that takes a fifteenth of analysing a small trace."""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from pathlib import Path

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket

from perfdoctor import __version__
from perfdoctor.system.user_cache import cache_folder


class CompiledPages(FileSystemBytecodeCache):
    """What Jinja made of each template, by the versions of both. It is made anew where a template's text differs."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Nothing is kept where the folder cannot be written; the page is rendered all the same."""
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True, mode=0o700)
            super().dump_bytecode(bucket)

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().load_bytecode(bucket)


def compiled_pages() -> CompiledPages | None:
    """None where the user has no folder for it."""
    try:
        folder = cache_folder() / "pages" / f"{__version__}-jinja-{version('jinja2')}"
    except RuntimeError:
        return None
    return CompiledPages(str(folder), "%s.bin")
