"""The words that a figure shows, and where, as matplotlib's renderer places them."""

from functools import lru_cache
from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

_TOUCH = 0.5  # pixels that two boxes may share


@lru_cache(maxsize=1)
def boxes(figure):
    """Return all words of a figure with the box of pixels of each, ticks left out."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    of_axes = [text for axes in figure.axes for text in (*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label)]
    of_legends = [text for legend in figure.legends for text in legend.get_texts()]
    texts = [text for text in (*of_axes, *of_legends, *figure.texts) if text.get_text()]
    return [(text.get_text(), Text.get_window_extent(text, canvas.get_renderer())) for text in texts]  # without its arrow


def outside(figure):
    """Words that the edge of the figure cuts."""
    return [
        words
        for words, box in boxes(figure)
        if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.width or box.y1 > figure.bbox.height
    ]


def on_one_another(figure):
    """Pairs of words that share room."""
    return [
        (first, second)
        for (first, a), (second, b) in combinations(boxes(figure), 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > _TOUCH and min(a.y1, b.y1) - max(a.y0, b.y0) > _TOUCH
    ]
