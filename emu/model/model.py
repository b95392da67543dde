"""Models as plain data: the operators of each part give parameters, FLOPs and memory; and the registry of models.

A model is an embedding, layers of one or more kinds, and a head (final norm, output product, loss). A part's operators stand
in the order in which they run. Sums here are over the whole model and one sequence; `tp` cuts what is sharded.

A word names a model: a name of the catalogue, or a TOML file that names an architecture of the catalogue and gives sizes of
one's own, the fields of the architecture's configuration.
"""

import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

from emu.arrays import digest
from emu.errors import InputError, must_be
from emu.model.operator import LOOKUP, Amount, Cut, ModelOperator, Tokens
from emu.registry import Registry
from emu.topology.description.values import check_keys, load_toml, located
from emu.units import format_count

C = TypeVar("C")
EMBEDDING, HEAD = "embedding", "head"
EXPERT_COLUMNS = "groups of 4 columns of an expert"  # what `Model.tp_divides` calls them; etp must divide them, too
EXPERTS = "experts"  # the style of a module that has the weights of all experts of a block
# What the styles of a block of experts become where tokens travel: inside it every rank has its own tokens.
_OWN = {"sparse": "own tokens", EXPERTS: None, "inner shared": "own shared", "inner rowwise": "own rowwise"}


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the catalogue: its sizes, its operators, how it is built and how it is sharded."""

    name: str
    hidden: int
    heads: int
    head_dim: int
    vocab: int
    max_seq: int
    kinds: tuple[str, ...]  # of each layer, the first first, e.g. ("dense", "dense")
    part: Callable[[str, Tokens], tuple[ModelOperator, ...]]  # of EMBEDDING, one layer of a kind, or HEAD; names as in it
    build: Callable[[int], Any]  # a torch.nn.Module [batch, tokens] -> logits [batch, tokens, vocab], for so many tokens
    tp_divides: Mapping[str, int] = field(default_factory=dict, hash=False)  # what tp must divide beside the vocabulary
    shards: Mapping[str, str] = field(default_factory=dict, hash=False)  # module path -> a style of emu.model.parallel
    experts: int = 0  # of a layer that has any, those that tokens are routed to; ep must divide it
    top_k: int = 0  # of them, those that a token sees
    tied: bool = False  # the output product has the parameters of the embedding
    source: str = ""  # of its sizes
    config: object = field(default=None, hash=False)  # the sizes that its architecture describes it by
    describe: "Callable[[Any], Model] | None" = field(default=None, compare=False)  # by other sizes; None: it has no others

    def _repr_pretty_(self, page: Any, *_: object) -> None:
        """Print the model on one line in a notebook; `repr` shows all fields."""
        sizes = f"{format_count(self.parameters())} parameters, {self.layers} layers, hidden {self.hidden}"
        page.text(f"<Model {self.name}: {sizes}, vocabulary {self.vocab}>")

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.kinds)

    def digest(self) -> str:
        """Return a digest of the model; its functions count by its configuration and its operators."""
        said = (getattr(self, each.name) for each in fields(self) if each.name not in ("part", "build", "describe"))
        return digest((*said, *(part for _, _, part in self.parts(Tokens(1)))))

    def parts(self, tokens: Tokens) -> Iterator[tuple[int, str, tuple[ModelOperator, ...]]]:
        """Yield the number of equal parts, the name and the operators of each kind of part, in running order."""
        yield 1, EMBEDDING, self.part(EMBEDDING, tokens)
        for kind, times in Counter(self.kinds).items():
            yield times, kind, self.part(kind, tokens)
        yield 1, HEAD, self.part(HEAD, tokens)

    def operators(self, tokens: Tokens, cut: Cut | None = None) -> Iterator[tuple[int, ModelOperator]]:
        """Yield each operator with its number in the model; with `cut`, the share of one rank."""
        for times, _, part in self.parts(tokens):
            for operator in part:
                yield times, operator.on(cut) if cut else operator

    def parameters(self, tp: int = 1, ep: int = 1, etp: int = 0) -> int:
        """Return the number of parameters of the model, or of one rank in groups of these sizes."""
        return sum(n * o.parameters for n, o in self.operators(Tokens(1), Cut(tp, ep, etp)))

    def active_parameters(self) -> int:
        """Return the number of parameters that one token uses: those of its experts, and all others."""
        return sum(n * o.active_parameters for n, o in self.operators(Tokens(1)))

    def flops_per_token(self, seq: int) -> int:
        """Return the model FLOPs of a token: 6 * active parameters without the input embedding + 12 * L * h * s.

        Attention is not halved. Source: Chowdhery et al., PaLM (2022), appendix B; h is heads * head_dim, or the mean if values
        have another size.
        """
        return 3 * sum(n * forward_flops(o) for n, o in self.operators(Tokens(1, context=seq)))

    def saved(self, tokens: Tokens, cut: Cut) -> Amount:
        """Return the amount that one rank keeps for the backward of one pass: activations, indices and statistics."""
        return sum((o.eager.saved.times(n) for n, o in self.operators(tokens, cut)), Amount())


def forward_flops(o: ModelOperator) -> int:
    """Return the forward FLOPs of one operator for one token, as MFU counts them."""
    if o.kind == LOOKUP:
        return 0
    forward = o.fused.forward
    multiplied = forward.parameters * o.active // o.experts if o.experts else forward.parameters
    return 2 * multiplied + (0 if o.shape else forward.flops)


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture with the sizes of its models: `describe` makes a model from a name and sizes."""

    name: str
    configs: Mapping[str, Any]  # sizes by the model's name: frozen dataclasses of one type
    describe: Callable[[str, Any], Model]  # a model, from its name and sizes


MODELS: Registry[Model] = Registry("model", "models")
ARCHITECTURES: Registry[Architecture] = Registry("architecture", "models")


def model(configs: Mapping[str, C]) -> Callable[[Callable[[str, C], Model]], Callable[[str, C], Model]]:
    """File an architecture under the function's name, and one model for each of its named configurations."""

    def file(describe: Callable[[str, C], Model]) -> Callable[[str, C], Model]:
        name = describe.__name__.replace("_", "-")

        @wraps(describe)
        def described(each: str, config: C) -> Model:
            return replace(describe(each, config), config=config, describe=partial(described, each))

        for each, config in configs.items():
            MODELS.file(each, described(each, config), describe)
        ARCHITECTURES.file(name, Architecture(name, configs, described), describe)
        return described

    return file


def own_tokens(shards: Mapping[str, str]) -> dict[str, str]:
    """Return the parallel styles by path for models in which tokens are sent to their experts."""
    routers = {f"{path}.router.gate": "own rows" for path, style in shards.items() if style == "sparse"}
    kept = {path: _OWN.get(style, style) for path, style in shards.items()}
    return {path: style for path, style in kept.items() if style is not None} | routers


_ARCHITECTURE = "architecture"
_SHOWN = {int: "a whole number of 1 or more", float: "a number above 0", str: "text in quotes", bool: "true or false"}


def find_model(word: str | Model) -> Model:
    """Return the model for a name or a `.toml` file; a model is returned unchanged.

    Raises:
        InputError: There is no such model, or the file cannot be read or describes none; the message names the key.
    """
    if isinstance(word, Model):
        return word
    return describe_model(load_toml(Path(word), "model", word), word) if word.endswith(".toml") else MODELS.find(word)


def anywhere(word: str) -> str:
    """Return the name of a model, or the whole path of its file, which a process in another folder can find."""
    return str(Path(word).resolve()) if word.endswith(".toml") else word


def describe_model(sizes: Mapping[str, Any], name: str) -> Model:
    """Return the model of an architecture of the catalogue with sizes of one's own.

    Args:
        sizes: The name of the `architecture`, and the fields of its configuration.
        name: The name of the model, which stands in reports and errors.

    Raises:
        InputError: The architecture or a key is unknown, a key is missing, or a size is impossible.
    """
    given = dict(sizes)
    wanted = given.pop(_ARCHITECTURE, None)
    if not isinstance(wanted, str):
        known = ", ".join(each for each, _ in ARCHITECTURES)
        raise must_be(name, _ARCHITECTURE, "the name of one in quotes", wanted, f"known: {known}")
    with located(name):
        found = ARCHITECTURES.find(wanted)
    config = _read(given, type(next(iter(found.configs.values()))), name, f"of {wanted}")
    with located(name):
        model = found.describe(name, config)
        model.parameters()  # works out every part, which refuses sizes that do not fit each other
    return model


def _read(given: Mapping[str, Any], of: Any, where: str, whose: str) -> Any:
    """Return a dataclass whose fields have the values of a table, after a check."""
    known = [field.name for field in fields(of)]
    check_keys(given, known, where)
    needed = [f.name for f in fields(of) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    if missing:
        raise InputError(f"{where}: keys missing: {', '.join(missing)}; the sizes {whose} are {', '.join(known)}")
    hints = typing.get_type_hints(of)
    values = {key: _value(value, hints[key], key, where) for key, value in given.items()}
    with located(where):  # it may refuse sizes that do not fit each other
        return of(**values)


def _value(value: object, kind: Any, key: str, where: str) -> object:
    if isinstance(kind, types.UnionType):  # X | None: a table, if it is given at all
        kind = typing.get_args(kind)[0]
    if is_dataclass(kind):
        if not isinstance(value, dict):
            raise must_be(where, key, f"a table of {', '.join(f.name for f in fields(kind))}", value)
        return _read(value, kind, f"{where}, {key}", f"of {key}")
    fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if not fits or isinstance(value, bool) != (kind is bool) or (kind in (int, float) and value <= 0):  # type: ignore[operator]
        raise must_be(where, key, _SHOWN[kind], value)
    return float(value) if kind is float else value  # type: ignore[arg-type]
