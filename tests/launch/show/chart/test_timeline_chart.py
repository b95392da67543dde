"""The picture of a timeline: a box a span, within a page that fits its title and legend."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.units import TICKS_PER_S
from launch.show.chart.time_chart import timeline_figure
from launch.show.lanes import Lane
from tests.launch.show.drawn import on_one_another, outside

US = TICKS_PER_S // 10**6


def _lane(owner, stream, *spans):
    start, end = np.array(spans, np.int64).reshape(-1, 2).T * US
    return Lane(owner, stream, ("x",) * len(spans), start, end)


def _figure(ranks, streams=("dp", "tp"), title="the last step of a.trace on ub-mesh:board"):
    lanes = [lane for r in range(ranks) for lane in [_lane(f"rank {r}", "compute", (0, 2), (2, 4), (7, 9))]]
    lanes += [_lane(f"rank {r}", stream, (4, 7), (9, 10)) for r in range(ranks) for stream in streams]
    return timeline_figure([*lanes, _lane("links", "link 0: NPU 0 to NPU 1", (0, 9))], title, 0, 10 * US)


@pytest.mark.parametrize("ranks", [1, 8, 32])
@pytest.mark.parametrize("streams", [(), ("dp", "tp"), ("cp", "dp", "ep", "pp", "tp", "a group of the user's own")])
def test_a_page_holds_its_words_however_many_ranks_and_streams(ranks, streams):
    figure = _figure(ranks, streams, title="the last step of " + "a/long/way/to/" * 12 + "a.trace")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {r}" for r in range(ranks)]
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["computation", *(f"communication, {stream}" for stream in streams)]
    assert outside(figure) == []
    assert on_one_another(figure) == []


def test_computation_is_above_and_axes_share_the_room_below():
    (axes,) = _figure(2).axes
    spans = [[path.get_extents() for path in group.get_paths()] for group in axes.collections]
    assert [[(box.x0, box.x1) for box in of] for of in spans[:2]] == [[(0, 4), (7, 9)]] * 2  # what touches is one
    assert [[(box.x0, box.x1) for box in of] for of in spans[2:]] == [[(4, 7), (9, 10)]] * 4
    bands = [(of[0].y0, of[0].y1) for of in spans]
    for rank in range(2):
        (top, middle), *below = bands[rank], *(bands[2 + 2 * rank : 4 + 2 * rank])
        assert rank - 0.5 < top < middle <= min(low for low, _ in below)
        assert max(high for _, high in below) < rank + 0.5
        assert below[0][1] <= below[1][0] + 1e-9


def test_what_cannot_be_seen_is_refused():
    with pytest.raises(
        InputError, match="the picture must be of 1 to 32 ranks, got 33; write --timeline and open it in Perfetto"
    ):
        _figure(33)
    with pytest.raises(InputError, match="got 0"):
        timeline_figure([], "nothing", 0, US)
