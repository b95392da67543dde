"""The fields of rows on the pages of the API: the comment behind a field is what the page says of it."""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension


class FieldComments(Extension):
    """The comments behind the fields of classes, as docstrings."""

    def on_attribute_instance(self, *, attr: Attribute, **kwargs: Any) -> None:
        """Make a docstring of the comment in the last line of a field."""
        lines = attr.lines
        said = re.search(r"  # (?!noqa|type:)(.+)$", lines[-1]) if lines else None
        if attr.docstring is None and said and attr.parent is not None and attr.parent.is_class:
            attr.docstring = Docstring(said[1], parent=attr, lineno=attr.lineno)
