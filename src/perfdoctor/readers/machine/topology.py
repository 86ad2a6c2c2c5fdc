"""Which link joins which GPUs and NICs of a machine? Read from what `nvidia-smi topo -m` prints.

Cells are separated by tabs or spaces; on some terminals the header is underlined with escape codes. Columns
behind the devices (CPU Affinity, NUMA Affinity, GPU NUMA ID) are empty for NICs. Older drivers print a NIC's own name
(mlx5_0) where newer ones number them and add a legend.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN, Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers import text_rows

#: From near to far as in the legend of `nvidia-smi topo -m`; NV# is the nearest.
LINK = regex(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
_DEVICE = (
    r"(?:GPU\d+|NIC\d+|mlx[45]_\w+|bnxt_\w+|irdma\w*|rdma\w+|qedr\w+|efa_?\w+|hns_\w+|ib\w+|roce\w+|hfi1_\w+|cxi\w+)"
)
_HEADER = regex(rf"GPU\d+(?:\s+{_DEVICE})*(?:\s+(?:CPU|NUMA)\s+Affinity|\s+CPUs|\s*$)")
_ALIAS = regex(r"(NIC\d+):\s+(\S{1,64})$")
_AFFINITY = regex(r"[\d,-]+$")


class _Matrix(Struct):
    """The table of the file. `links[i][k]`: from the i-th of `sources` to the k-th of `targets`."""

    targets: list[str]
    sources: list[str]
    links: list[list[str]]
    numas: list[int]
    dropped: int = 0


def looks_like(head: bytes) -> bool:
    """Do these first bytes hold the header of the matrix, and a first row?"""
    lines = text_rows.head_lines(head, 200)
    return any(
        _HEADER.match(header) and re.match(rf"{_DEVICE}\s+{LINK.pattern}\b", row) for header, row in pairwise(lines)
    )


def read(path: Path) -> Timeline:
    """A row a pair and direction. PerfdoctorError where the file cannot be read or holds no matrix."""
    matrix, names = _parsed(text_rows.lines(path))
    if matrix is None or not matrix.sources:
        raise PerfdoctorError(f"{path.name} holds no topology", do="Write it with nvidia-smi topo -m > topology.txt")
    rows = [
        {"name": link, "source": names.get(source, source), "target": names.get(target, target), "numa": numa}
        for source, links, numa in zip(matrix.sources, matrix.links, matrix.numas, strict=True)
        for target, link in zip(matrix.targets, links, strict=True)
        if link != "X"
    ]
    if len(matrix.sources) == 1 and not rows:  # one GPU: that it has no neighbours is recorded, too
        rows = [{"name": "X", "source": matrix.sources[0], "target": matrix.sources[0], "numa": matrix.numas[0]}]
    return text_rows.timeline("links", text_rows.frame("links", rows), "topology", path.name, _notes(path.name, matrix))


def _parsed(lines: Iterator[str]) -> tuple[_Matrix | None, dict[str, str]]:
    matrix: _Matrix | None = None
    names: dict[str, str] = {}
    is_over = False
    for line in lines:
        text = line.strip()
        if _HEADER.match(text) and matrix is None:
            matrix = _Matrix(re.findall(rf"(?<!\S){_DEVICE}(?!\S)", text), [], [], [])
        elif alias := _ALIAS.match(text):
            names[alias.group(1)] = alias.group(2)
        elif matrix is not None and text and not is_over:
            # The legend or other text ends the table.
            is_legend = text.startswith(("Legend", "NIC Legend"))
            is_over = is_legend or not _row(matrix, text)
            matrix.dropped += is_over and not is_legend
    return matrix, names


def _row(matrix: _Matrix, text: str) -> bool:
    """Add a row to the matrix; False where the text is none."""
    cells = text.split()
    source, links = cells[0], cells[1 : 1 + len(matrix.targets)]
    if not re.fullmatch(_DEVICE, source) or len(links) < len(matrix.targets):
        return False
    if not all(LINK.fullmatch(link) for link in links) or source in matrix.sources:
        return False
    matrix.sources.append(source)
    matrix.links.append(links)
    # The node is in the column NUMA Affinity, which follows CPU Affinity.
    numa = "".join([cell for cell in cells[1 + len(matrix.targets) :] if _AFFINITY.match(cell)][1:2])
    matrix.numas.append(int(numa) if re.fullmatch(r"[0-9]{1,4}", numa) else UNKNOWN)
    return True


def _notes(name: str, matrix: _Matrix) -> Iterator[str]:
    gpus = [source for source in matrix.sources if source.startswith("GPU")]
    nics = len(matrix.sources) - len(gpus)
    pairs: dict[str, int] = {}
    for at, source in enumerate(matrix.sources):
        for link, target in zip(matrix.links[at], matrix.targets, strict=True):
            if source in gpus and target in gpus and gpus.index(source) < gpus.index(target):
                pairs[link] = pairs.get(link, 0) + 1
    each = [f"{count} pair{'s' * (count > 1)} over {link}" for link, count in sorted(pairs.items())]
    links = f": {', '.join(each)}" if each else ""
    beside = f" and {nics} NIC{'s' * (nics > 1)}" if nics else ""
    yield f"{name}: {len(gpus)} GPU{'s' * (len(gpus) > 1)}{beside}{links}."
    if matrix.dropped:
        yield f"{name}: text below the table was left out."
