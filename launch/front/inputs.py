"""The arguments of questions: checks, and the conversion of names, files and objects into the objects of the library.

The decorator of a question is here too: it caches results between calls, and words errors for the shell or for Python.
"""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from emu.collective.chooser_names import AUTO
from emu.collective.shape import Grid, parse_grid
from emu.errors import InputError, must_be
from emu.model import model as models
from emu.model.model import MODELS, Model
from emu.model.stack.stack import Stack, overheads, parse_stack
from emu.registry import has_own, unknown
from emu.store import user_folder
from emu.study.choice import algorithm_cache
from emu.topology import catalogue
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.timed_dtype import AS_RAN
from emu.units import is_whole
from launch.data.devices import find_device
from launch.data.presets import STACKS
from launch.front.argument_rules import check_rules
from launch.shell import is_in_shell

PLAIN_SWEPT = ("model", "device", "seq", "global-batch")  # quantities that a sweep names as the command line does
SWEPT = (  # for help texts, which load no study
    f"{', '.join(PLAIN_SWEPT)}, npus (of `emu plan`), plan.WORD, stack.WORD, topology.SETTING or device.SETTING"
)

if TYPE_CHECKING:  # it takes long to load
    import networkx as nx

# A name of the catalogue with its settings, a file, or an object. The aliases are texts, so that networkx is not loaded.
TopologyLike: TypeAlias = "str | Path | Topology | nx.Graph"
Topologies: TypeAlias = "str | Path | Topology | nx.Graph | Sequence[str | Path | Topology | nx.Graph]"
ModelLike = str | Path | Model | Mapping[str, Any]  # a name of the catalogue, a file, or sizes for an architecture
DeviceLike = str | Path | Device | Mapping[str, Any]  # a name, a file, an object, or its fields
Words = str | Sequence[str]
_GIVEN: dict[str, Model | Mapping[str, Any]] = {}  # the models that were given as sizes or objects, by name


def several(given: Any) -> tuple[Any, ...]:
    """Return an argument that is one value or a sequence of values as a tuple; an empty one gives an empty tuple."""
    return tuple(given) if isinstance(given, list | tuple) else (given,) if given is not None and given != "" else ()


def grid_of(dims: str | Grid) -> Grid:
    """Return the shape of a grid, given as text or as a tuple; () if the argument is empty.

    Raises:
        InputError: the text is no grid.
    """
    return parse_grid(dims, "--dims") if isinstance(dims, str) and dims else dims or ()


def topologies_of(given: Topologies) -> list[Topology]:
    """Return the topologies of an argument: one or several names, files, graphs or `Topology` objects.

    Raises:
        InputError: there is none, or one is unknown or cannot be built.
    """
    found = [build_topology(each) for each in several(given)]
    if not found:
        raise must_be("", "topology", "one or more", "none", "give a name from `emu list topologies`, a file or an object")
    return found


def build_topology(given: TopologyLike) -> Topology:
    """Return a topology, given by a name with its settings, a file, a networkx graph, or the object itself.

    Raises:
        InputError: it is unknown or cannot be built.
    """
    if isinstance(given, Topology):
        return _checked_network(given)
    if isinstance(given, str | Path):
        return _checked_network(catalogue.build_topology(str(given)))
    if not hasattr(given, "is_multigraph"):  # a graph of networkx is not loaded to be told from others
        raise must_be("", "topology", "a name, a file, a Topology or a networkx graph", given)
    built: Topology = importlib.import_module("emu.topology.description.networkx_graph").topology_of(given)  # it loads networkx
    return built


def _checked_network(topology: Topology) -> Topology:
    """Return a topology after the check of the network of packets that it names, which only the packet engine can read.

    Raises:
        InputError: a setting of the network is unknown or impossible.
    """
    if topology.network:
        importlib.import_module("emu.fabric.packet_fabric").own_network(topology)  # not above: few topologies have one
    return topology


def find_model(given: ModelLike) -> Model:
    """Return a model, given by a name, a file, a dict of its `architecture` and sizes, or the object itself.

    Raises:
        InputError: there is no such model, or its sizes are impossible.
    """
    return models.find_model(model_word(given))


def model_word(given: ModelLike) -> str:
    """Return the name or file by which a model is found; sizes and objects are first registered under their name.

    Raises:
        InputError: the sizes are impossible, or a model of the catalogue has the name.
    """
    if isinstance(given, str | Path):
        return str(given)
    if not isinstance(given, Model | Mapping):
        raise must_be("", "model", "a name, a file, a dict of sizes or a Model", given)
    name = given.name if isinstance(given, Model) else str(given.get("name", "own"))
    if name in _GIVEN and _GIVEN[name] == given:
        return name
    if name not in _GIVEN and MODELS.has(name) and MODELS.find(name) is not given:
        raise must_be("", "model", "of a name that no model of the catalogue has", name, "give it another `name`")
    model = given if isinstance(given, Model) else _described(given)
    MODELS.replace(name, model)
    _GIVEN[name] = given if isinstance(given, Model) else dict(given)
    return name


def _described(sizes: Mapping[str, Any]) -> Model:
    """Return the model that a dict of sizes describes; its key `name` may name the model."""
    return models.describe_model({key: value for key, value in sizes.items() if key != "name"}, str(sizes.get("name", "own")))


def device_of(given: DeviceLike, dtype: str = AS_RAN) -> Device:
    """Return the device that a name, a file, a dict of the fields of a `Device`, or an object gives.

    Raises:
        InputError: as `find_device`; or a field is unknown.
    """
    if isinstance(given, Mapping):
        known = [field.name for field in fields(Device)]
        for name in given:
            if name not in known:
                raise unknown("field of a device", name, known)
        return Device(**given)
    return given if isinstance(given, Device) else find_device(str(given), dtype)


def stack_of(words: str) -> Stack:
    """Return the stack that a text such as `software=megatron,dp=overlapped` describes.

    Raises:
        InputError: as `parse_stack`.
    """
    return parse_stack(words, STACKS) if words else Stack()


def overheads_of(words: str) -> Stack:
    """Return the stack of a step that was recorded, from a text with only the times of messages and requests.

    Raises:
        InputError: as `parse_stack`, or there is a setting that only a generated step can have.
    """
    return overheads(stack_of(words))


def algorithm_words(words: Words, stack: Stack) -> tuple[str, ...]:
    """Return the words that choose the algorithms of a step: one for all operations, then the values of `algorithm`.

    The first is the library of the stack, or `auto` if it has none. Those that follow name operations, for
    which they take its place.
    """
    return (stack.library or AUTO, *several(words))


def algorithms_with(stack: Stack, algorithms: Words) -> tuple[str, ...]:
    """Return words that choose algorithms, as `algorithm_words` returns them, with another stack."""
    return algorithm_words(several(algorithms)[1:], stack)


def placement_order(axes: Words) -> tuple[str, ...]:
    """Return the axes in the order of their placement (neighbouring NPUs first); () if none are given."""
    return tuple(filter(None, axes.split(","))) if isinstance(axes, str) else tuple(axes)


def check_float32(device: Device, dtype: str) -> None:
    """Check that a device has a peak for float32 if a script is timed as it ran.

    The dtypes of a script are not known before it runs, but most scripts compute in float32, too.

    Raises:
        InputError: the device has no peak for float32.
    """
    if dtype == AS_RAN and "float32" not in device.peak_flops:
        mend = "add float32 = 67e12 to it, or give --dtype bfloat16, which times float32 as bfloat16"
        what = "given for float32 too, because most scripts compute in it"
        raise must_be(device.name, "peak_flops", what, ", ".join(device.peak_flops), mend)


def cache_folder(cache: str | Path | None) -> Path | None:
    """Return the folder in which results are cached between calls; None if they must not be cached.

    Nothing is kept in the user's cache where things of the user's own are filed: they may read files that change unnoticed.

    Args:
        cache: The folder that is given; None: the user's cache.
    """
    return Path(cache) if cache else (None if has_own() else user_folder() / "plans")


P = ParamSpec("P")
T = TypeVar("T")
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
# What an argument of these types must be; others take names, files or objects, which are read one by one.
_KINDS: dict[Any, tuple[Any, str]] = {
    int: (Integral, "a whole number"),
    int | None: (Integral | None, "a whole number"),
    float: (Real, "a number"),
    float | None: (Real | None, "a number"),
    str: (str, "text"),
    str | None: (str | None, "text"),
    Words: (str | Path | list | tuple | None, "text, or a list of texts"),
}


def question(answer: Callable[P, T]) -> Callable[P, T]:
    """Return a question for Python and for the shell, which keeps choices of algorithms between calls and processes.

    In Python the types of arguments are checked, and an InputError names arguments as Python has them. In the shell the command
    line has checked them, and errors name options. `needs` and `excludes` declare which arguments go together. Nothing is kept
    where collectives, topologies or models of the user's own are filed: they may read files, whose changes no digest sees.
    """
    parameters = inspect.signature(answer).parameters

    @wraps(answer)
    def ask(*given: P.args, **named: P.kwargs) -> T:
        algorithm_cache.keep_in(None if has_own() else algorithm_cache.user_table())
        if is_in_shell():
            check_rules(answer, named)
            return answer(*given, **named)
        try:
            _check(answer.__name__, parameters, named)
            check_rules(answer, named)
            return answer(*given, **named)
        except InputError as error:
            raise _in_python(error, parameters) from None

    return ask


def _check(name: str, parameters: Any, named: dict[str, Any]) -> None:
    """Refuse an argument that is unknown or has an impossible type.

    Args:
        name: The name of the question.
        parameters: The parameters of its function.
        named: The arguments by name.

    Raises:
        InputError: naming the argument; of an unknown one, the nearest.
    """
    for key, value in named.items():
        if key not in parameters:
            near = difflib.get_close_matches(key, parameters, n=1)
            hint = f"did you mean {near[0]}?" if near else f"help(emu.{name}) lists the arguments"
            raise InputError(f"{name}: no argument is called {key!r}; {hint}")
        kind, what = _KINDS.get(parameters[key].annotation, (object, ""))
        if not isinstance(value, kind):
            raise must_be(name, key, what, value, _right_kind(value, kind))
        if what == _KINDS[Words][1] and (wrong := [each for each in several(value) if not isinstance(each, str | Path)]):
            raise must_be(name, key, what, wrong[0], _right_kind(wrong[0], kind))


def _right_kind(value: object, kind: Any) -> str:
    """Return how an argument of the wrong type is written; "": nobody knows what was meant."""
    if isinstance(value, Mapping):
        words = [str(key) if of is True else f"{key}={','.join(map(str, several(of)))}" for key, of in value.items()]
        together = ",".join(words)
        return f"write {together!r}" if kind is str or len(words) == 1 else f"write {words}"
    if isinstance(value, str):
        return f"write {value} without quotes" if is_whole(value) else "write it as a number, such as 8192"
    return ""


def _in_python(error: InputError, parameters: Collection[str]) -> InputError:
    """Return the error with options replaced by the arguments of Python: `--global-batch` by `global_batch`.

    Its field is an argument or a key within one: where it is a phrase, the argument that the phrase or the line begins with.

    Args:
        error: The error.
        parameters: The names of the arguments.
    """

    def argument(flag: re.Match[str]) -> str:
        return flag[1].replace("-", "_")

    plain = InputError(_FLAG.sub(argument, str(error)))
    plain.field = None if error.field is None else _argument_of(_FLAG.sub(argument, error.field), str(plain), parameters)
    plain.value, plain.mend = error.value, _FLAG.sub(argument, error.mend)
    return plain


def _argument_of(field: str, line: str, parameters: Collection[str]) -> str:
    """Return the argument that the field of an error is about; the field itself if it is one word, or of no argument.

    Args:
        field: The field, such as `global_batch` or `sharding of a plan`.
        line: The line of the error, which may begin with an argument and a colon.
        parameters: The names of the arguments.
    """
    words = field.split()
    if len(words) == 1:
        return field
    named = [word for word in (*words, line.partition(":")[0]) if word in parameters]
    return named[0] if named else field
