"""Which tool wrote a file that perfdoctor does not read (`other_tools.toml`), and what is recorded instead?"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

TORCH = "record with torch.profiler and pass the file that prof.export_chrome_trace writes"


@cache
def _tools() -> tuple[tuple[re.Pattern[bytes], str, str], ...]:
    """The mark of each tool, what its files are, and what to do."""
    table = shipped_table(Path(__file__).with_suffix(".toml"))
    known = {"torch": TORCH, **table["do"]}
    rows = ((row["mark"].encode(), row["what"], row.get("do", "torch")) for row in table["tool"])
    return tuple((regex(mark, re.MULTILINE), what, known.get(do, do)) for mark, what, do in rows)


def refusal(file: str, head: bytes) -> PerfdoctorError | None:
    """The error that says what `file` is, by its first bytes, decompressed; None where that is not known."""
    for mark, what, do in _tools():
        if mark.search(head):
            return PerfdoctorError(f"`{file}` is {what}, and no trace of PyTorch", do=do)
    return None
