"""The answer to a question: rows that print, draw and save themselves.

The command line prints and saves answers, and notebooks show them; both take them from the functions of `launch.front`.
"""

import difflib
import html
import importlib
import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from emu.errors import InputError, either
from emu.files import write_file
from launch.show.blocks import Page
from launch.show.row_file import json_text, plain, rows_text

if TYPE_CHECKING:  # they take long to load
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

R = TypeVar("R")
_INTERNAL = frozenset({"FILES", "as_json", "exit_code", "has_report", "records", "with_means"})  # for the shell
PICTURES = (".png", ".svg", ".pdf")  # the endings of files of a picture
_FRAME_PX = 720  # height of a report in a notebook at most; a shorter page makes its frame as short, where scripts may run
_SHRINK = f"this.style.height=Math.min({_FRAME_PX},this.contentDocument.body.offsetHeight+24)+'px'"


@dataclass(frozen=True, slots=True)
class TraceOutput:
    """The file of a command's trace, with the function that writes it."""

    path: Path
    through: Callable[[Path, Callable[[Path], object]], object]  # takes the file, and the function that writes to it


def lazy(name: str) -> Callable[..., Any]:
    """Return a function of `launch.show`, given as `module:function`, imported only now because that is slow."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"launch.show.{module}"), function)
    return found


def _fields_of(of: type) -> list[str]:
    """Return the names of the fields if a class is a dataclass; an empty list for another class."""
    return [field.name for field in fields(of)] if is_dataclass(of) else []


@dataclass(frozen=True, repr=False, eq=False)
class Result(Sequence[R], Generic[R]):
    """An answer of Emu: its rows, which can be read as text, JSON, a table, a picture, a page or files.

    An answer with a single row has the fields of this row, too: `emu.estimate(...).step_time_s`.
    """

    rows: tuple[R, ...]

    FILES: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".csv", ".html")  # the endings that `save` knows
    _drawn_by: ClassVar[str] = ""  # the function that draws the picture, as `lazy` takes it; "": there is none

    def __init_subclass__(cls, drawn_by: str = "", files: Sequence[str] = ()) -> None:
        """Set the function that draws the picture of a kind of answers, and the further endings that `save` knows."""
        super().__init_subclass__()
        cls._drawn_by, cls.FILES = drawn_by or cls._drawn_by, (*cls.FILES, *(PICTURES if drawn_by else ()), *files)

    @abstractmethod
    def text(self) -> str:
        """Return the report as the command prints it."""

    @property
    def failure(self) -> str | None:
        """A line on what went wrong, such as a proof that failed; None: nothing did."""
        return None

    @property
    def exit_code(self) -> int:
        """The exit code of the command where nothing failed."""
        return 0

    @property
    def has_report(self) -> bool:
        """True if there is a report to print; a script that failed has none."""
        return True

    def as_json(self) -> object:
        """Return the answer as objects that become JSON, as `--json` prints it."""
        return self.rows

    def to_dict(self) -> Any:
        """Return what the command prints with `--json`, in dicts, lists, strings and numbers."""
        return plain(self.as_json())

    def records(self) -> Sequence[object]:
        """Return the rows in the form that `to_pandas`, files of CSV and JSON lines have."""
        return self.rows

    def to_pandas(self) -> Any:
        """Return the rows as a DataFrame of pandas; a field of a field gets a dot in its name.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError:
            raise InputError("to_pandas: pandas is not installed; pip install 'emu-cluster[pandas]'") from None
        return pandas.json_normalize([plain(row) for row in self.records()])

    def figure(self) -> "Figure":
        """Return the picture of the answer.

        Raises:
            InputError: this answer has none.
        """
        if not self._drawn_by:
            raise InputError(f"{type(self).__name__}: has no picture; print it, or take its rows")
        drawn: Figure = lazy(self._drawn_by)(*self._shown())
        return drawn

    def _shown(self) -> tuple[Any, ...]:
        """Return the arguments of the function that draws the picture."""
        return (self.rows,)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Return the axes of the picture of the answer.

        Args:
            ax: The axes to draw into; None: a new figure, whose first axes are returned.

        Raises:
            InputError: this answer has no picture.
        """
        if ax is None:
            return self.figure().axes[0]
        with lazy("canvas:drawing_into")(ax):
            self.figure()
        return ax

    def page(self) -> Page:
        """Return the report as a page of HTML: the picture, where there is one, and the text."""
        said = (inspect.getdoc(type(self)) or "").partition("\n")[0].rstrip(".")
        made: Page = lazy("html.page:answer_page")(said, self.text(), self._drawn())
        return made

    def _drawn(self) -> "Figure | None":
        """Return the picture of the answer; None if answers of this kind have no picture."""
        try:
            return self.figure()
        except InputError:
            return None

    def save(self, path: str | Path) -> None:
        """Write the answer to a file whose ending says what is written.

        Args:
            path: A name that ends in one of `FILES`: .json (what the command prints with `--json`), .csv and .jsonl (the rows),
                .html (the report), .png, .svg and .pdf (the picture), .xml and .npz (the schedule), .trace (the step, for
                `emu.replay` and `emu.compare`).

        Raises:
            InputError: this answer has no file of that ending.
            WriteError: the file cannot be written.
        """
        path = Path(path)
        if path.suffix not in self.FILES:
            raise InputError(f"save: {type(self).__name__} is saved as {either(self.FILES)}, got {path.name!r}")
        (self.save_picture if path.suffix in PICTURES else getattr(self, f"save_{path.suffix[1:]}"))(path)

    def save_json(self, path: Path) -> None:
        """Write what the command prints with `--json`."""
        write_file("save", path, (json_text(self.as_json()) + "\n").encode())

    def save_csv(self, path: Path) -> None:
        """Write the rows as CSV under a head."""
        write_file("save", path, rows_text(self.records(), ".csv").encode())

    def save_jsonl(self, path: Path) -> None:
        """Write a line of JSON for each row."""
        write_file("save", path, rows_text(self.records(), ".jsonl").encode())

    def save_picture(self, path: Path) -> None:
        """Write the picture."""
        lazy("canvas:save")(self.figure(), path)

    def save_html(self, path: Path) -> None:
        """Write the report."""
        write_file("--html", path, lazy("html.page:html_of")(self.page()).encode())

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return the report for a notebook: the page in a frame of its own; the text where it has nothing more."""
        if type(self).page is Result.page and PICTURES[0] not in self.FILES:
            return f"<pre>{html.escape(self.text())}</pre>"
        source = html.escape(lazy("html.page:html_of")(self.page()), quote=True)
        return f'<iframe srcdoc="{source}" onload="{_SHRINK}" style="width:100%;height:{_FRAME_PX}px;border:0"></iframe>'

    def __getattr__(self, name: str) -> Any:
        """Return a field of the only row.

        Raises:
            AttributeError: there are several rows, or the row has no such field.
        """
        if name.startswith("_") or name == "rows":
            raise AttributeError(name)
        if self.rows and hasattr(self.rows[0], name):
            if len(self.rows) == 1:
                return getattr(self.rows[0], name)
            raise AttributeError(f"{name}: this answer has {len(self.rows)} rows; take it of one, such as answer[0].{name}")
        near = difflib.get_close_matches(name, dir(self), n=1)
        raise AttributeError(f"{type(self).__name__} has no field {name!r}" + (f"; did you mean {near[0]}?" if near else ""))

    def __dir__(self) -> list[str]:
        """Return the names of the methods that show the answer, of its own fields, and of the fields of a single row."""
        own = (
            name for of in type(self).__mro__ if of.__module__.startswith("launch.") for name in (*vars(of), *_fields_of(of))
        )
        names = {*own, *(dir(self.rows[0]) if len(self.rows) == 1 else ())}
        return sorted(name for name in names if not name.startswith("_") and name not in _INTERNAL)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, which: int) -> R: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[R, ...]: ...
    def __getitem__(self, which: int | slice) -> R | tuple[R, ...]:
        return self.rows[which]
