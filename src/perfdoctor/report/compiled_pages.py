"""The page's templates, compiled once for the user: that takes a fifteenth of analysing a small trace."""

from __future__ import annotations

import contextlib
from pathlib import Path

from jinja2 import FileSystemBytecodeCache, compiler
from jinja2.bccache import Bucket

from perfdoctor import __version__
from perfdoctor.system.paths import cache_folder


class CompiledPages(FileSystemBytecodeCache):
    """What Jinja made of each template, by our version and its compiler; made anew where a text differs."""

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
        written = Path(compiler.__file__).stat().st_mtime_ns  # its version would take 5 ms to find
        folder = cache_folder() / "pages" / f"{__version__}-jinja-{written:x}"
    except (OSError, RuntimeError):
        return None
    return CompiledPages(str(folder), "%s.bin")
