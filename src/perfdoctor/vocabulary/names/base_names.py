"""Which names are the same one? Kernels as two tools write them, and names that differ by a running number.

Nsight Compute writes `(int)4` where Nsight Systems and torch.profiler write `4`, and `<unnamed>` for an anonymous
namespace; asked for the short name, it gives the function alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

from perfdoctor.patterns import regex

_NUMBER = regex(r"#?\d+")
# Brackets that belong to a name and open nothing, and `->`, which closes nothing.
_PIECE = regex(
    r"(?<!\w)operator\s*(?:\(\)|\[\]|<=>|<<=?|>>=?|<=?|>=?|->\*?)|\(anonymous namespace\)|decltype\(|->|.", re.DOTALL
)
_CLOSED_BY = {">": "<", ")": "(", "]": "[", "}": "{"}


def base_name(kernel: str) -> str:
    """The name by which ncu's `--kernel-name` knows a demangled kernel: without type, namespace, template, parameters.

    `void at::native::copy_kernel<4, F<float>>(int)` → `copy_kernel`. A text that is no such name stays as it is.
    """
    signature, called, _ = _without_groups(kernel).partition("(")
    if re.search(r"(?<!\w)operator\s*$", signature) and called:
        return "operator()"
    words = signature.split()
    # What was inside a lambda or an unnamed namespace has left an empty part.
    parts = [part for part in words[-1].split("::") if part] if words else []
    return parts[-1] if parts else kernel.strip()


def _without_groups(kernel: str) -> str:
    """Return the text outside of all brackets; the opening one of an outermost pair of parentheses stays."""
    kept: list[str] = []
    open_groups: list[str] = []
    for piece in _PIECE.findall(kernel):
        opening = piece[-1] if piece[-1] in "<([{" and not piece.startswith("operator") else ""
        if opening:
            if not open_groups and piece == "(":
                kept.append(piece)
            open_groups.append(opening)
        elif piece in _CLOSED_BY and open_groups:
            _close(open_groups, _CLOSED_BY[piece])
        elif not open_groups:
            kept.append("" if piece == "(anonymous namespace)" else piece)
    return "".join(kept)


def _close(open_groups: list[str], opening: str) -> None:
    if open_groups[-1] == opening:
        open_groups.pop()
    elif opening != "<" and opening in open_groups:
        # `(a < b)`: what looked like a bracket was a comparison. A `>` inside parentheses is one as well.
        while open_groups.pop() != opening:
            pass


_CAST = regex(r"\((?:unsigned )?(?:bool|char|short|int|long|long long)\)(?=-?\d|true\b|false\b)")
_UNNAMED = regex(r"<unnamed>|\{anonymous\}")
_TRUTH = {"true": "1", "false": "0"}
_LITERAL = regex(r"(?<![\w.])(\d+)u?l{0,2}\b", re.IGNORECASE)
#: `[lambda(float) (instance 1)]` and `{lambda(float)#1}`
_LAMBDA = regex(r"\[(lambda\([^][]*\)) \(instance (\d+)\)\]")
_WORD = regex(r"[A-Za-z_]\w{3,}")
_LIKE = 0.75


@lru_cache(maxsize=65536)
def plain_name(kernel: str) -> str:
    """A demangled name as all tools would write it: without type, parameters, casts of numbers and spaces."""
    named = _LAMBDA.sub(r"{\1#\2}", _UNNAMED.sub("(anonymous namespace)", kernel))
    plain = _LITERAL.sub(r"\1", _CAST.sub("", named))
    plain = re.sub(r"\b(?:true|false)\b", lambda said: _TRUTH[said[0]], plain)
    signature = plain[: _end_of_signature(plain)].removeprefix("void ")
    return "".join(signature.split())


def _end_of_signature(name: str) -> int:
    """Return the index at which the parameters begin: the last parenthesis that opens outside of all others."""
    depth, opened = 0, len(name)
    if not name.endswith(")"):
        return opened
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return at or opened
    return opened


def are_alike(one: str, other: str) -> bool:
    """May two names of the same function be one kernel, demangled by two tools? Most of their words must agree.

    A bare name, as ncu gives it when asked for functions, is like all that have it.
    """
    words = [set(_WORD.findall(name)) for name in (one, other)]
    fewer = min(map(len, words))
    bare = any("<" not in name for name in (one, other))
    return bare or len(words[0] & words[1]) >= _LIKE * fewer


def without_numbers(name: str) -> str:
    """The name with `#` for each number: `ProfilerStep#`, `layer #`."""
    return _NUMBER.sub("#", name)
