"""The text of a script for every rank, found as `python FILE`, `python -m MODULE` and `python -` find it."""

import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from emu.backend.rank.source_lines import STDIN
from emu.errors import InputError
from emu.files import read_input

_MAIN = "__main__"


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """The text of a script.

    Args:
        file: The file from which it was read.
        text: The text, as bytes.
        root: The folder that comes first in `sys.path`.
        module: The module's name, if the script was named as a module; else "".
    """

    file: Path
    text: bytes
    root: Path
    module: str = ""

    @property
    def is_stdin(self) -> bool:
        """True if the script was read from standard input."""
        return str(self.file) == STDIN

    @property
    def name(self) -> str:
        """The name of the script in reports and messages."""
        return "standard input" if self.is_stdin else self.module or self.file.name

    @property
    def package(self) -> str:
        """The name of the package that contains the script's module; "" if there is none."""
        return self.module.rpartition(".")[0]

    def copied(self, root: Path) -> "ScriptSource | None":
        """Return the same script in a copy of its root folder; None if the copy does not have it."""
        file = self.file if self.is_stdin else root / self.file.relative_to(self.root)
        return replace(self, file=file, root=root) if self.is_stdin or file.is_file() else None

    def names(self) -> dict[str, Any]:
        """Return the names that the module `__main__` has before the script runs."""
        if not self.module:
            return {} if self.is_stdin else {"__file__": str(self.file)}
        spec = spec_from_file_location(self.module, self.file)
        return {"__file__": str(self.file), "__package__": self.package, "__spec__": spec}

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Make tracebacks show the lines of a script that was read from standard input, while the context lasts."""
        if self.is_stdin:
            lines = self.text.decode("utf-8", "replace").splitlines(keepends=True)
            linecache.cache[STDIN] = len(self.text), None, lines, STDIN
        try:
            yield
        finally:
            if self.is_stdin:
                linecache.cache.pop(STDIN, None)


def read_source(script: str | Path, *, module: bool = False) -> ScriptSource:
    """Return the text of a script.

    Args:
        script: Its path, or `-` for standard input; or the name of a module.
        module: True if `script` is the name of a module.

    Raises:
        InputError: there is no such script, or it is not Python.
    """
    if module:
        name, file = _module_file(str(script))
        return _check_python(ScriptSource(file, read_input("run", file), Path.cwd(), name))
    if str(script) == "-":
        return _check_python(ScriptSource(Path(STDIN), sys.stdin.buffer.read(), Path.cwd()))
    file = Path(script).resolve()
    return _check_python(ScriptSource(file, read_input("run", file), file.parent))


def _check_python(source: ScriptSource) -> ScriptSource:
    try:
        compile(source.text, str(source.file), "exec")
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(f"run: {source.name}{line} is not Python: {getattr(error, 'msg', error)}") from None
    return source


def _module_file(name: str) -> tuple[str, Path]:
    """Return the name and the file of the module that `python -m` would run; for a package, that is its `__main__`."""
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.{_MAIN}"
        spec = _spec(name)
    if spec is None:
        raise InputError(f"run: no module {name!r} is installed or in folder {str(Path.cwd())!r}; name one as `python -m` does")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise InputError(f"run: module {name!r} has no Python source; name one that has")
    return name, Path(spec.origin).resolve()


def _spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module without importing the packages that contain it; None if there is none."""
    places: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    spec, whole = None, ""
    for word in name.split("."):
        if not word or places is None:
            return None
        whole = f"{whole}.{word}" if whole else word
        spec = PathFinder.find_spec(whole, places) or _spec_by_other_finders(whole, places if "." in whole else None)
        places = None if spec is None else spec.submodule_search_locations
    return spec


def _spec_by_other_finders(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Return the module spec from other import finders, such as those of editable installs; None if none has it."""
    found = (finder.find_spec(name, places) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in found if spec is not None), None)
