"""Digests of the code on which results depend: Emu's own, the catalogue's, and the user's; they name stored results.

A user's code is every file that files something, with the modules that it imports, in functions too, without Python's own and
installed ones. Files that such code reads by itself are not known here.
"""

import ast
import hashlib
import importlib.machinery
import secrets
import sys
import sysconfig
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.metadata import entry_points, version
from pathlib import Path
from traceback import walk_stack
from types import ModuleType

from cachetools.keys import hashkey

_EMU = Path(__file__).resolve().parent
_NO_CODE = frozenset({".pyc", ".md"})
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_PYTHON = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
_SENT: list[str] = []  # the digest of the code of users in the process that sent work to this one
_version = cache(version)  # it reads and parses a file
_OURS = frozenset({"emu", "launch"})  # packages whose frames are not the caller's
_USERS: list[Path] = []  # files that have filed something, and modules that these have loaded, in order


def edition() -> int:
    """Return a number that grows whenever a user's code has registered an entry."""
    return len(_USERS)


def of_edition(*asked: Hashable, **words: Hashable) -> Hashable:
    """Return a cache key of some arguments that changes whenever code changes, so that caches are never stale."""
    return hashkey(edition(), *asked, **words)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Note a file that is read within the context, and the user's modules that are loaded for it."""
    before = {*sys.modules}
    _USERS.append(path.resolve())
    try:
        yield
    finally:
        names = sorted({*sys.modules} - before)
        files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
        _USERS.extend(filter(_is_users, map(Path, filter(None, files))))


def note_caller() -> None:
    """Note the file of the code that calls Emu at present as code of the user."""
    frames = (frame for frame, _ in walk_stack(None))
    file = next((f.f_code.co_filename for f in frames if f.f_globals.get("__name__", "").partition(".")[0] not in _OURS), "")
    _USERS.append(Path(file).resolve())


def spec_beside(name: str) -> importlib.machinery.ModuleSpec | None:
    """Return the import specification of a package in the folder where Emu itself is installed; None if it is not there."""
    return importlib.machinery.PathFinder.find_spec(name, [str(_EMU.parent)])


@cache
def _own_folders() -> tuple[Path, ...]:
    """Return Emu's own folder and those of the catalogue's packages."""
    specs = (spec_beside(point.value) for point in entry_points(group="emu.catalogue"))
    return _EMU, *sorted({Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None})


def code_digest(*more: Path) -> str:
    """Return a digest of Emu's code, the catalogue's, that of users, and numpy's version.

    Args:
        *more: Folders of which every file counts, data too.
    """
    return _digest_of_texts(product_digest(*more), users_digest())


def product_digest(*more: Path) -> str:
    """Return a digest as `code_digest` does, without the code of users."""
    return _digest_of_texts(_version("numpy"), _digest_of_folders(_own_folders(), ".py"), _digest_of_folders(more))


def users_digest() -> str:
    """Return a digest of the user's code, in this process or in the process that sent work to it."""
    return _SENT[-1] if _SENT else _digest_of_user_files(edition())


def take_users_digest(sent: str) -> None:
    """Store the digest of the user's code that another process sent with its work; the files of the code may be missing."""
    _SENT[:] = [sent]


def user_modules() -> list[ModuleType]:
    """Return the loaded modules of the user that another machine needs, because they have registered things."""
    files = {path for path in _USERS if not is_installed(path)}
    names = {path.name for path in files}  # first, as a path takes long to resolve
    found = [(each, Path(str(getattr(each, "__file__", None)))) for each in [*sys.modules.values()]]
    return [each for each, path in found if path.name in names and path.resolve() in files]


def _digest_of_texts(*parts: str) -> str:
    """Return one digest of several texts."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part.encode() + b"|")
    return state.hexdigest()


@cache
def _digest_of_folders(folders: tuple[Path, ...], suffix: str = "") -> str:
    """Return one digest of all files with a suffix in some folders."""
    files = (path for folder in folders for path in folder.rglob(f"*{suffix}") if path.is_file())
    return _digest_of_files(sorted(path for path in files if path.suffix not in _NO_CODE))


@lru_cache(maxsize=1)
def _digest_of_user_files(edition: int) -> str:
    """Return a digest of the user's files that have registered entries, and of the files that these import."""
    return _digest_of_files(sorted(_with_imported(_USERS)))


def _digest_of_files(files: Iterable[Path]) -> str:
    """Return a digest of the names and contents of files; an unreadable file makes the digest unique."""
    state = hashlib.blake2b(digest_size=16)
    for path in files:
        try:
            data = path.read_bytes()
        except OSError:
            data = secrets.token_bytes(16)
        state.update(repr((path.name, len(data))).encode() + data)
    return state.hexdigest()


def _with_imported(files: Iterable[Path]) -> set[Path]:
    """Return the files, the user's files that they import, and so on until no new file is found."""
    found, left = set[Path](), list(files)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported(path)
    return found


def _imported(path: Path) -> set[Path]:
    """Return the user's files that a Python file imports; empty if it is not Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    folders = [Path(entry).resolve() for entry in sys.path]
    found = set[Path]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(*(_modules(each.name, folders) for each in node.names))
        elif isinstance(node, ast.ImportFrom):
            where = [path.parents[node.level - 1]] if 0 < node.level <= len(path.parents) else folders
            names = (".".join(filter(None, (node.module, each.name))) for each in node.names)
            found.update(*(_modules(name, where) for name in names))
    return found


def _modules(name: str, folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the user's files that a dotted module name may mean in the given folders, with the packages on the way.

    Files of Emu, of Python and of installed packages are left out.
    """
    parts = name.split(".")
    for folder in folders if parts[0] != _EMU.name else ():
        for upto in range(1, len(parts) + 1):
            there = folder.joinpath(*parts[:upto])
            yield from (path for path in (there / "__init__.py", Path(f"{there}.py")) if _is_users(path) and path.is_file())


def _is_users(path: Path) -> bool:
    """Return whether a file is the user's: not Python's, not installed, and not Emu's."""
    return not is_installed(path) and not {*_own_folders(), *_PYTHON} & {*path.resolve().parents}


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to an installed package, even one from `pip install --target` in a folder of any name."""
    places = (each for each in (path, *path.parents) if each.name)
    return not _INSTALLED.isdisjoint(path.parts) or any(each.name in _installed_in(each.parent) for each in places)


@cache
def _installed_in(folder: Path) -> frozenset[str]:
    """Return the files and folders that installers have recorded in a folder; empty if there are no records."""
    records = (path.read_text(encoding="utf-8", errors="replace") for path in folder.glob("*.dist-info/RECORD"))
    files = (line.partition(",")[0] for record in records for line in record.splitlines())
    return frozenset(file.partition("/")[0] for file in files)
