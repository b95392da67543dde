"""The 8 bytes in front of a packet that say which way it goes: UB-Mesh 4.1.1 and Figure 11.

From the top: ptr (4 bits, the hop that is next), bitmap (12 bits, the first hop's on the left; 1: this hop is source-routed,
0: the router's own table decides), six instructions of 8 bits. That they have 8 follows from the sum; which of them is a
hop's is not spelled out, and is here the number of source-routed hops before it.
"""

from collections.abc import Sequence

from emu.errors import must_be

HOPS = 12
INSTRUCTIONS = 6
_BITS = 8  # of an instruction: (64 - 4 - 12) / 6


def pack(hops: Sequence[int | None]) -> bytes:
    """The header of a path.

    Args:
        hops: The instruction of each hop, such as a port; None where the router's own table decides.

    Raises:
        InputError: more than 12 hops, more than 6 instructions, or one that is not 0..255.
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
    """What a router does: the instruction of this hop, None where its own table decides, and the header it sends on.

    Raises:
        InputError: a header that has led over 12 hops.
    """
    word = int.from_bytes(header[:2], "big")
    hop, bitmap = word >> HOPS, word & (2**HOPS - 1)
    if hop >= HOPS:
        raise must_be("source route", "ptr", f"below {HOPS}", hop)
    before, routed = bitmap >> (HOPS - hop), bitmap >> (HOPS - 1 - hop) & 1
    ahead = (word + (1 << HOPS)).to_bytes(2, "big") + header[2:]
    return header[2 + before.bit_count()] if routed else None, ahead
