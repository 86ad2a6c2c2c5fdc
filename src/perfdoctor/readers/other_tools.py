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
def _tools() -> tuple[tuple[re.Pattern[bytes], str, str, bool], ...]:
    """The mark of each tool, what its files are, what to do, and whether ops of PyTorch may be in them."""
    table = shipped_table(Path(__file__).with_suffix(".toml"))
    known = {"torch": TORCH, **table["do"]}
    rows = (
        (row["mark"].encode(), row["what"], row.get("do", "torch"), row.get("with_ops", False)) for row in table["tool"]
    )
    return tuple((regex(mark, re.MULTILINE), what, known.get(do, do), with_ops) for mark, what, do, with_ops in rows)


def refusal(file: str, head: bytes, *, with_ops: bool = False) -> PerfdoctorError | None:
    """The error that says what `file` is, by its first bytes, decompressed; None where that is not known.

    `with_ops`: ops of PyTorch were found in it, but no work of a device.
    """
    for mark, what, do, may_hold_ops in _tools():
        if may_hold_ops >= with_ops and mark.search(head):
            return PerfdoctorError(f"`{file}` is {what}, and no trace of PyTorch", do=do)
    return None
