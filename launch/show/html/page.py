"""A report as one HTML file that needs no network."""

import base64
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from launch.show.blocks import Block, Page, Section
from launch.show.canvas import picture_bytes

_TEMPLATES = Path(__file__).parent / "templates"


def picture_block(figure: Figure, told: str) -> Block:
    """Return a picture as a block of a page.

    Args:
        figure: The picture.
        told: The description for readers who cannot see it.
    """
    return Block(template="picture.html", svg=base64.b64encode(picture_bytes(figure, "svg")).decode(), told=told)


def answer_page(title: str, text: str, figure: Figure | None) -> Page:
    """Return the page of an answer that has a picture and a text.

    Args:
        title: The title.
        text: The report as the command prints it.
        figure: The picture; None: there is none.
    """
    sections = [Section("Report", [Block(template="verbatim.html", text=text)])]
    if figure is not None:
        sections.insert(0, Section("Picture", [picture_block(figure, title)]))
    return Page(title, "", (), sections)


def html_of(page: Page) -> str:
    """Return a page as HTML text; equal pages give equal texts."""
    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html").render(page=page)
