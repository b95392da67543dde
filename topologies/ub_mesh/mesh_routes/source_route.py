"""The 8 bytes in front of a packet that carry its route: UB-Mesh 4.1.1 and Figure 11.

From the top: ptr (4 bits, the hop that is next), bitmap (12 bits, the first hop's on the left; 1: this hop is source-routed, 0:
the router's own table decides), six instructions of 8 bits. The 8 follows from the sum. The paper does not say which
instruction belongs to a hop; here it is the one whose number is the count of source-routed hops before.
"""

from collections.abc import Sequence

from emu.errors import must_be

HOPS = 12
INSTRUCTIONS = 6
_BITS = 8  # bits of an instruction: (64 - 4 - 12) / 6


def pack(hops: Sequence[int | None]) -> bytes:
    """Return the header of a path.

    Args:
        hops: The instruction of each hop, such as a port; None where the router's own table decides.

    Raises:
        InputError: There are more than 12 hops or 6 instructions, or an instruction is not 0..255.
    """
    given = [hop for hop in hops if hop is not None]
    if len(hops) > HOPS:
        raise must_be("source route", "hops", f"at most {HOPS}", len(hops), "let routers' tables lead from a later node on")
    if len(given) > INSTRUCTIONS:
        mend = "leave some hops to the routers' tables"
        raise must_be("source route", "source-routed hops", f"at most {INSTRUCTIONS}", len(given), mend)
    if not all(0 <= instruction < 2**_BITS for instruction in given):
        raise must_be("source route", "instructions", f"0..{2**_BITS - 1}", given)
    bitmap = sum(1 << (HOPS - 1 - i) for i, hop in enumerate(hops) if hop is not None)
    return bitmap.to_bytes(2, "big") + bytes(given).ljust(INSTRUCTIONS, b"\0")


def forward(header: bytes) -> tuple[int | None, bytes]:
    """Return the instruction of this hop, None where the router's own table decides, and the header that the router sends on.

    Raises:
        InputError: The header has led over 12 hops.
    """
    word = int.from_bytes(header[:2], "big")
    hop, bitmap = word >> HOPS, word & (2**HOPS - 1)
    if hop >= HOPS:
        raise must_be("source route", "ptr", f"below {HOPS}", hop)
    before, routed = bitmap >> (HOPS - hop), bitmap >> (HOPS - 1 - hop) & 1
    ahead = (word + (1 << HOPS)).to_bytes(2, "big") + header[2:]
    return header[2 + before.bit_count()] if routed else None, ahead
