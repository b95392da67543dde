"""Every fault that the edits make of a file, as a change of its bytes, and a draw among them.

What was drawn is drawn again after changes elsewhere, so that a fault that survived can be tried again when tests are added.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

from benchmarks.mutate.edits import EDITS, WITHOUT_EFFECT, Edit

TARGET = {ast.For: "iter", ast.comprehension: "iter", ast.If: "test", ast.While: "test"}  # what of it an edit replaces
TYPES = {"annotation", "returns", "type_params", "ctx"}  # fields that change no result
WRAPPED = ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp | ast.IfExp | ast.Lambda | ast.NamedExpr | ast.Await | ast.Yield


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes of a file, and the text that stands there instead."""

    path: Path
    line: int
    kind: str
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """The file with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, root: Path) -> list[str]:
        """Lines taken out (`-`) and put in (`+`), with none around them."""
        source = (root / self.path).read_bytes()
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        return [line for line in unified_diff(before, after, n=0, lineterm="") if not line.startswith(("---", "+++", "@@"))]

    def words(self, root: Path) -> tuple[str, str]:
        """Return what stood there and what stands there now, without indentation."""
        lines = self.diff(root)
        old, new = ([line[1:].strip() for line in lines if line[0] == mark] for mark in "-+")
        return " ".join(old), " ".join(new)


@dataclass(frozen=True, slots=True)
class _Site:
    """A node that an edit may replace, and the f-string that it is part of, which is then written anew as a whole."""

    node: ast.AST
    whole: ast.AST | None = None

    def inside(self, child: ast.AST) -> "_Site":
        return _Site(child, self.whole or (self.node if isinstance(self.node, ast.JoinedStr) else None))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name not in TYPES:
            yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST))


def _sites(site: _Site) -> Iterator[_Site]:
    yield site
    for child in _children(site.node):
        if not (isinstance(child, ast.keyword) and child.arg in WITHOUT_EFFECT):
            yield from _sites(site.inside(child))


Fields = dict[str, list[str]]  # by a value's text: names that are read of it in a file; by a field's name: its types


def _types(trees: Iterable[ast.AST]) -> Fields:
    """The type that each field or method has in the classes of some files."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in (item for tree in trees for each in ast.walk(tree) if isinstance(each, ast.ClassDef) for item in each.body):
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)].add(ast.unparse(node.annotation))
        elif isinstance(node, ast.FunctionDef) and node.returns and node.decorator_list:
            found[node.name].add(ast.unparse(node.returns))
    return {name: sorted(types) for name, types in found.items()}


def _read(tree: ast.AST) -> Fields:
    """Return the fields that a file reads of each value, by the value's text."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found[ast.unparse(node.value)].add(node.attr)
    return {base: sorted(names) for base, names in found.items()}


def _edits(node: ast.AST, read: Fields, types: Fields) -> Iterator[Edit]:
    for look in EDITS.get(type(node), ()):
        yield from look(node)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        own = set(types.get(node.attr, ()))
        for name in read[ast.unparse(node.value)]:
            if name != node.attr and own & set(types.get(name, ())):
                yield Edit("another field", ast.Attribute(node.value, name))


def _with(tree: object, old: ast.AST, new: ast.AST) -> object:
    """A tree in which one node is another."""
    if tree is old:
        return new
    if isinstance(tree, ast.AST):
        return type(tree)(**{name: _with(value, old, new) for name, value in ast.iter_fields(tree)})
    return [_with(item, old, new) for item in tree] if isinstance(tree, list) else tree


def _text(whole: ast.AST, old: ast.AST, new: ast.AST) -> str:
    changed = _with(whole, old, new)
    assert isinstance(changed, ast.AST)
    text = ast.unparse(changed)
    return f"({text})" if isinstance(changed, WRAPPED) else text


@dataclass(frozen=True, slots=True)
class Place:
    """The faults that one kind of mistake makes at one place."""

    kind: str
    key: str  # as good as a name: the file, what stands there, and the how manieth of these it is
    variants: tuple[Fault, ...]

    def rank(self, seed: int) -> str:
        """Return the key that orders places in a draw. It depends on nothing but the seed and the place."""
        return sha256(f"{seed} {self.kind} {self.key}".encode()).hexdigest()

    def variant(self, seed: int) -> Fault:
        """Return the one of its faults that this seed draws."""
        return self.variants[int(self.rank(seed), 16) % len(self.variants)]


class Parsed:
    """A file, its tree and where its lines begin."""

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path
        self.source = (root / path).read_bytes()
        self.tree = ast.parse(self.source)
        self.starts = [0, *accumulate(len(line) for line in self.source.splitlines(keepends=True))]

    def places(self, types: Fields) -> Iterator[Place]:
        """Yield all places of the file."""
        read, seen = _read(self.tree), Counter[str]()
        for site in _sites(_Site(self.tree)):
            target = getattr(site.node, TARGET.get(type(site.node), ""), site.node)
            by_kind: dict[str, list[Fault]] = defaultdict(list)
            for kind, node in _edits(site.node, read, types):
                by_kind[kind].append(self._fault(kind, site.whole or target, target, node))
            for kind, variants in by_kind.items():
                name = f"{self.path} {ast.unparse(target)}"
                seen[f"{name} {kind}"] += 1
                yield Place(kind, f"{name} {seen[f'{name} {kind}']}", tuple(variants))

    def _fault(self, kind: str, whole: ast.AST, old: ast.AST, new: ast.AST) -> Fault:
        assert isinstance(whole, ast.expr | ast.stmt)
        assert whole.end_lineno is not None
        assert whole.end_col_offset is not None
        start = self.starts[whole.lineno - 1] + whole.col_offset
        end = self.starts[whole.end_lineno - 1] + whole.end_col_offset
        return Fault(self.path, whole.lineno, kind, start, end, _text(whole, old, new))

    def holds(self, fault: Fault) -> bool:
        """Return whether the file with the fault is still a program."""
        try:
            compile(fault.apply(self.source), str(self.path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return True


def drawn(root: Path, paths: Iterable[Path], seed: int) -> Iterator[Fault]:
    """All faults of some files, one a place and kind, in a seeded order in which the kinds take turns.

    The order of those of one kind depends on nothing but what stands at each place: other places may change meanwhile.
    """
    files = {path: Parsed(root, path) for path in paths}
    types = _types(file.tree for file in files.values())
    by_kind: dict[str, list[Place]] = defaultdict(list)
    for place in (place for file in files.values() for place in file.places(types)):
        by_kind[place.kind].append(place)
    order = [sorted(places, key=lambda place: place.rank(seed)) for places in by_kind.values()]
    turns = ((i, place.rank(seed), place) for places in order for i, place in enumerate(places))
    for *_, place in sorted(turns, key=lambda turn: turn[:2]):
        fault = place.variant(seed)
        if files[fault.path].holds(fault):
            yield fault
