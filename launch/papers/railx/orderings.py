"""Rows of the RailX paper about rails that are split for five axes: the times of table 4, the best split, rails taken in turns.

Letters are those of table 4: n ports of a chip's edge, n_c, n_e and n_p those of CP, EP and PP, V the bytes of a request.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from emu.model.generate.item import Ask
from launch.papers.paper import Curve, Figure, FormulaCase, check_formula
from launch.papers.railx.setting import (
    COARSE,
    FINE,
    PAIRINGS,
    Shape,
    best_static,
    best_switched,
    gap_s,
    request_s,
    sent,
    small_step,
    static_word,
)
from launch.papers.targets import Answer

_SHAPE, _M, _N, _OF, _K = Shape(4, 3, 3, 3, 3), 2, 4, 2, 4  # m, n, and n_c = n_e = n_d = n_p of 2 ports
_WORD = "railx:mapped:m=2,n=4,x=ep3@4+pp3@4,y=cp3@4+dp3@4"
_B = 50e9  # bytes per second of a port
_ELEMENTS = 648 * 16 * 20000  # of the larger size, so that latencies do not count; all shares are whole


def _request_byte_s(axes: tuple[str, ...], operation: str, served: str) -> float:
    """Return the seconds that Emu's time of a request grows by for each additional byte, from two sizes.

    The arguments are those of `_compared_entry`.
    """
    short, long = (
        request_s(_WORD, _SHAPE, axes, Ask("axis", operation, times * _ELEMENTS, "bfloat16"), served) for times in (1, 2)
    )
    return (long - short) / (2 * _ELEMENTS)


def _hops(axes: tuple[str, ...], operation: str, served: str) -> float:
    """Return the number of consecutive hops between nodes in a request; see `_compared_entry` for the arguments."""
    asked = Ask("axis", operation, 648 * 16, "bfloat16")
    short, long = (request_s(f"{_WORD},optical={us}us", _SHAPE, axes, asked, served) for us in (1, 100))
    return (long - short) / 99e-6


def _compared_entry(
    axes: tuple[str, ...], operation: str, served: str, byte: tuple[float, float], hops: int
) -> Callable[[], Iterator[FormulaCase]]:
    """Return a function that compares one entry of table 4 with Emu's times of the same request.

    The function yields the seconds for each additional byte and, if `hops` is not 0, the number of hops between nodes. Each
    comes as a name, Emu's value, and the value by the table's formula.

    Args:
        axes: The axes of the plan on which the ranks of a group differ, such as `ep`.
        operation: The operation of the request, such as `all_to_all`.
        served: The name of the algorithm that serves it.
        byte: Two factors: the time of a byte in the table, in units of a byte's time on one port, such as 1 / (2 n_e / m) for
            EP; and the share of the bytes that is really sent, which the table rounds to 1.
        hops: The number of hops between nodes that follow one another, such as C - 1.
    """

    def found() -> Iterator[FormulaCase]:
        yield "s a byte", _request_byte_s(axes, operation, served), byte[0] * byte[1] / _B
        if hops:
            yield "hops between nodes", _hops(axes, operation, served), hops

    return found


_SIDE = _M / (2 * _OF)  # V / (2 n / m), of a ring or an all-to-all of one dimension
_TIMES: Mapping[str, tuple[tuple[str, ...], str, str, tuple[float, float], int]] = {
    "rx-t4t-1": (("tp",), "reduce_scatter", "2d-ring:2x2", (1 / (2 * _K * _N), 3 / 4), 0),
    "rx-t4t-2": (("tp",), "all_gather", "2d-ring:2x2", (1 / (2 * _K * _N), 3 / 4), 0),
    "rx-t4t-3": (("cp",), "all_gather", "bidirectional-ring@4", (_SIDE, 2 / 3), 2),
    "rx-t4t-4": (("ep",), "all_to_all", "at-once@4", (_SIDE, 2 / 3), 1),
    "rx-t4t-5": (("ep", "dp"), "all_reduce", "torus-in-step@4:3x3", (_SIDE, 8 / 9), 8),
    "rx-t4t-6": (("cp", "ep", "dp"), "all_reduce", "torus-in-step@4:3x3x3", (2 * _SIDE / 3, 26 / 27), 12),
    "rx-t4t-7": (("cp", "dp"), "all_reduce", "torus-in-step@4:3x3", (_SIDE, 8 / 9), 8),
    "rx-t4t-8": (("pp",), "all_gather", "ring@4", (_M / _OF, 2 / 3), 2),  # each passes its part to the next, one way
}
_OF_TIMES = (
    f"{_WORD}, all groups of the axis at once: 4 rails a dimension, n_c = n_e = n_d = n_p = 2 ports of 50 GB/s, k = 4; with "
    "the share (p - 1)/p and the p - 1 hops, which the table rounds to 1 and p",
)


def _time(*of: object) -> Answer:
    """Return Emu's seconds a byte of a request on the built rails, and whether its times are those that table 4 prints.

    The arguments are those of `_compared_entry`.
    """
    return check_formula(_compared_entry(*of)(), *_OF_TIMES)  # type: ignore[arg-type]


def _pairing_text(ports: str) -> tuple[list[float], str]:
    """Return the seconds of the fastest split for each pairing of axes, and a sentence on them."""
    found = [best_static(ports, pairing) for pairing in PAIRINGS]
    told = ", ".join(
        f"{a}+{b} and {c}+{d} {1e3 * s:.3f} ms ({word.partition('GB/s,')[2]})"
        for (a, b, c, d), (s, word) in zip(PAIRINGS, found, strict=True)
    )
    return [s for s, _ in found], f"{ports}: {told}"


def _pairs() -> Answer:
    """Return whether EP with PP, and CP with DP, is the fastest way to divide four axes over two dimensions."""
    volumes = sent()
    fine, fine_told = _pairing_text(FINE)
    coarse, coarse_told = _pairing_text(COARSE)
    in_order = list(volumes.values()) == sorted(volumes.values(), reverse=True)
    told = f"least steps {', '.join(f'{1e3 * s:.3f}' for s in fine)} ms"
    bytes_told = "bytes that a rank sends: " + ", ".join(f"{axis} {size}" for axis, size in volumes.items())
    first = all(each[0] < min(each[1:]) for each in (fine, coarse))
    return Answer(told, (bytes_told, fine_told, coarse_told), holds=in_order and first)


_TURNS = ("1us", "10us", "100us", "1ms")


def _in_turns() -> Answer:
    """Return whether CP and EP are as fast on rails in turns as if each had all rails of a dimension, and the step gains."""
    shape, (dynamic, word) = Shape(), best_switched(_TURNS[0])
    asked = {
        "ep": (Ask("ep", "all_to_all", _ELEMENTS, "bfloat16"), "at-once@4"),
        "cp": (Ask("cp", "all_gather", _ELEMENTS, "bfloat16"), "bidirectional-ring@4"),
    }
    halved = static_word(FINE, ("ep", "cp", "dp", "pp"), (8, 4, 4))
    shares = {axis: request_s(halved, shape, (axis,), *of) / request_s(word, shape, (axis,), *of) for axis, of in asked.items()}
    static = best_static(FINE, PAIRINGS[0])[0]
    told = f"EP {shares['ep']:.3f} and CP {shares['cp']:.3f} times as fast as on half of the rails"
    note = f"the step takes {1e3 * dynamic:.3f} ms with turns of {_TURNS[0]}, and {1e3 * static:.3f} on the best fixed split"
    return Answer(told, (note,), holds=min(shares.values()) > 1.99 and dynamic < static)


def _steps_by_turn() -> dict[str, float]:
    """Return the seconds of the small step by the time of a turn, on the split of Y that is best for the shortest."""
    word = best_switched(_TURNS[0])[1]
    return {turn: small_step(word.replace(f"turning={_TURNS[0]}", f"turning={turn}"))[0] for turn in _TURNS}


def _turn_fits() -> Answer:
    """Return whether a turn that is shorter than the gap costs the step less than CP and EP gain."""
    static = best_static(FINE, PAIRINGS[0])[0]
    steps = _steps_by_turn()
    told = ", ".join(f"{turn} {1e3 * s:.3f} ms" for turn, s in steps.items())
    rising = list(steps.values()) == sorted(steps.values())
    gains, loses = steps[_TURNS[0]] < static, static < steps[_TURNS[-1]]
    return Answer(told, (f"on the best fixed split {1e3 * static:.3f} ms",), holds=rising and gains and loses)


def _gap_grows_with_model() -> Answer:
    """Return whether the gap between CP and EP is longer for a larger model."""
    small, large = gap_s(), gap_s(larger=True)
    told = f"{1e3 * small:.2f} and {1e3 * large:.2f} ms"
    notes = "sizes of Llama 3 70B and 405B with 8 experts, sequences of 8192 tokens, on the cluster of A.4"
    return Answer(told, (notes,), holds=small < large)


def _gap() -> Answer:
    """Return the milliseconds between CP and EP in the paper's trace."""
    longer = 1e3 * gap_s(seq=16384)
    return Answer(1e3 * gap_s(), (f"sequences of 8192 tokens, which the paper does not print; {longer:.2f} ms with 16384",))


MAPPED: Mapping[str, Callable[[], Answer]] = {
    **{row: partial(_time, *of) for row, of in _TIMES.items()},
    "rx-52-map": _pairs,
    "rx-52-full": _in_turns,
    "rx-52-turn": _turn_fits,
    "rx-52-larger": _gap_grows_with_model,
    "rx-a4-gap": _gap,
}


def turned(_: object) -> Figure:
    """Return figure 13: the time of a step whose CP and EP share rails in turns, by the switching time."""
    turns = (1.0, 10.0, 100.0, 1000.0)  # us
    dynamic = [1e3 * s for s in _steps_by_turn().values()]
    fixed = 1e3 * best_static(FINE, PAIRINGS[0])[0]
    curves = (Curve("CP and EP in turns", turns, dynamic), Curve("the best fixed split", turns, [fixed] * len(turns)))
    title = "RailX figure 13: a step of 144 chips whose rails CP and EP take in turns"
    return Figure(title, "us of a turn", "ms of a step", curves, log="x")
