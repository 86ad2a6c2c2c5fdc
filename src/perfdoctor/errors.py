"""Which errors can a user act on?"""

from __future__ import annotations


class PerfdoctorError(Exception):
    """Something the user can mend: one line *what* happened, one line what to *do*.

    Printed without a traceback, in one place (`cli/main.py`). Everything else that is raised is a bug of ours and
    keeps its traceback.
    """

    def __init__(self, what: str, *, do: str) -> None:
        super().__init__(what)
        self.what = what
        self.do = do


class AskedWronglyError(PerfdoctorError):
    """A question that this recording cannot be asked: `do` names the right ones."""
