"""How many bytes a second does a PCIe link carry, one way?"""

from __future__ import annotations

#: Per lane and direction, in bytes/s: transfers/s × the share of the line code that is data ÷ 8 (PCI-SIG, PCI Express
#: Base Specification: 2.5 and 5 GT/s with 8b/10b, 8 to 32 GT/s with 128b/130b, 64 GT/s with FLITs of 236/256).
_PER_LANE = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 236 / 256 / 8,
}

#: Of these bytes the share that is data: packets of acknowledgement and flow control take 8 % (62.96 → 57.88 Gbit/s;
#: Neugebauer et al., Understanding PCIe performance for end host networking, SIGCOMM 2018), and each 256 bytes of data,
#: the payload that hosts set, come with 24 of framing, header and checksum (PCI Express Base Specification). 0.84 in
#: all; pinned copies were measured at 0.79 to 0.87 of their links.
PAYLOAD_SHARE = 57.88 / 62.96 * 256 / (256 + 24)


def bytes_per_second(generation: float, lanes: float) -> float:
    """0 for a generation that is not known."""
    return _PER_LANE.get(int(generation), 0.0) * lanes
