"""The figures of the UB-Mesh paper, with the values that its text prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.papers.paper import Curve, DrawFunction, Figure
from launch.papers.ub_mesh.counts import NETWORK_SHARE, ratios
from launch.papers.ub_mesh.setting import CLOS, LONG, MODELS, RACKS, SHORT, UB, A, B
from launch.papers.ub_mesh.training import BASES, DRAWN, SENSITIVE, gains_of_lanes, linearity, losses, mean_relative, relative

_SHARE = "% of the Clos's performance"
_LOWEST = 80.0


def _racks(paper: Any) -> Sequence[Figure]:
    """Return figures 17a and 17b, the performance of each design of a rack: by model, and by length of sequences."""
    by_model = [Curve(rack, range(len(MODELS)), [relative(paper.steps, rack, model) for model in MODELS]) for rack in RACKS]
    by_seq = [Curve(rack, range(2), [mean_relative(paper.steps, rack, seqs) for seqs in (SHORT, LONG)]) for rack in RACKS]
    printed = Curve("as printed (6.2)", (-0.3, -0.1, 0.1, 0.7), (95.5, 98.1, 99.2, 95.0), printed=True)
    assert [*RACKS] == [UB, A, B, CLOS]  # the order in which printed values are listed
    return [
        Figure("UB-Mesh figure 17a: 8,192 NPUs, the mean of all sequences", "", _SHARE, by_model, words=[*MODELS], low=_LOWEST),
        Figure(
            "UB-Mesh figure 17b: the mean of all models",
            "tokens of a sequence",
            _SHARE,
            [*by_seq, printed],
            words=("8K to 32K", "64K to 1M"),
            low=_LOWEST,
        ),
    ]


def _between(paper: Any) -> Figure:
    """Return figure 19: the performance with each strategy of routing between racks."""
    lost = {model: losses(paper.steps, model) for model in SENSITIVE}
    curves = [Curve(model, range(len(of) + 1), [*(100 - loss for loss in of.values()), 100]) for model, of in lost.items()]
    words = (*lost[SENSITIVE[0]], CLOS)
    printed = Curve("GPT4-2T as printed (6.3)", (-0.2, 1.8), (100 - 0.73, 100 - 0.46), printed=True)
    title = "UB-Mesh figure 19: racks in a 2D full mesh by strategy of routing, and on switches; 8,192 NPUs"
    return Figure(title, "", "% of the performance with switches", [*curves, printed], words=words, low=95.0)


def _lanes(paper: Any) -> Figure:
    """Return figure 20: the gain of performance from twice as many UB lanes out of a rack, by model."""
    short, long = (gains_of_lanes(paper.steps, *asked) for asked in ((8, 16, SHORT), (16, 32, LONG)))
    curves = [
        Curve("x8 to x16, 8K to 32K", range(len(MODELS)), [*short.values()]),
        Curve("x16 to x32, 64K to 1M", range(len(MODELS)), [*long.values()]),
    ]
    title = "UB-Mesh figure 20: what twice the lanes out of a rack gain, by model"
    return Figure(title, "", "% of performance", curves, words=[*MODELS])


def _capex(_: Any) -> Figure:
    """Return figure 21: the price of other systems as a multiple of UB-Mesh's."""
    found = ratios(NETWORK_SHARE)
    curves = (
        Curve("ours, at public prices", range(len(found)), [*found.values()]),
        Curve("as printed (6.4)", range(len(found)), (1.18, 1.26, 1.65, 2.46), printed=True),
    )
    return Figure("UB-Mesh figure 21: CapEx of others over UB-Mesh's", "", "times UB-Mesh's", curves, words=[*found])


def _linearity(paper: Any) -> Figure:
    """Return figure 22: the performance of an NPU by the size of the cluster."""
    named = {name: f"{name}, 1x is {npus:,} NPUs" for name, npus in BASES.items()}
    curves = [Curve(words, DRAWN, [linearity(paper.steps, name, times) for times in DRAWN]) for name, words in named.items()]
    return Figure(
        "UB-Mesh figure 22: linearity with sequences of 256K, up to a SuperPod, without a search for plans",
        "times the smallest size",
        "% of the performance of an NPU at the smallest size",
        curves,
        log="x",
        low=_LOWEST,
    )


FIGURES: Mapping[str, DrawFunction] = {"17": _racks, "19": _between, "20": _lanes, "21": _capex, "22": _linearity}
