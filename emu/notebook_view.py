"""The view of a value in a notebook: its picture and its facts.

The application draws; the library names it here by its module, which is imported when a notebook asks for a view.
"""

import importlib

_DRAWN_BY = "launch.front.exhibits"


def html_of(value: object) -> str:
    """Return the view of a topology, a schedule or a trace as HTML."""
    view: str = importlib.import_module(_DRAWN_BY).view(value)
    return view
