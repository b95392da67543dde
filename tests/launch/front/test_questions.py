"""Each command is a function of the library: the same options, the same defaults, the same answer."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import click
import pytest

import emu
from launch.cli.options.output import FILES
from launch.front.result import Result
from launch.papers.catalogue import PAPERS
from tests.launch.answers import without_wall
from tests.launch.test_flags import commands

REPRO = ("measured", "nccl", "torchtitan", "kernels", "all", *PAPERS)
QUESTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(emu, name)
        for name in (
            *("verify", "bench", "synthesize", "train", "run", "replay", "estimate"),
            *("plan", "design", "jobs", "outage", "faults", "cost", "compare", "calibrate"),
        )
    },
    "queue": emu.queue,
    **{f"repro {source}": emu.repro for source in REPRO},
    **{f"show {what}": getattr(emu, f"show_{what}") for what in ("topology", "collective", "timeline")},
    "show fabric-run": emu.show_fabric_run,
    **{f"list {what}": getattr(emu, f"list_{what}") for what in ("collectives", "topologies", "models", "devices")},
}
# Options that say what is printed and saved of an answer: its methods `to_dict`, `save` and `save_timeline`. `--out` saves a
# device. What `--config` and `--import` read, a program says by itself.
OF_THE_SHELL = {*FILES, "as_json", "every_rank", "out", "config"}
# Arguments that are no option, and why.
OF_THE_LIBRARY = {
    "verify": {"among"},  # what `--import` gives
    **{f"repro {source}": {"source"} for source in REPRO},  # the name of the sub-command
}
REPRO_TAKES = {
    "measured": {"data", "fit"},
    "nccl": {"fit"},
    "torchtitan": {"fit"},
    "kernels": {"fit"},
    "all": {"cache", "workers", "ray_address"},
    **{paper: {"table", "figure", "cache", "workers", "ray_address"} for paper in PAPERS},
}


def options_of(name: str) -> dict[str, click.Parameter]:
    return {str(each.name): each for each in commands()[name].params if each.expose_value}


def arguments_of(name: str) -> dict[str, inspect.Parameter]:
    taken = dict(inspect.signature(QUESTIONS[name]).parameters)
    if name.startswith("repro "):  # one function for all: a source refuses what it does not take, as the next test has it
        taken = {key: each for key, each in taken.items() if key in {"source", *REPRO_TAKES[name.removeprefix("repro ")]}}
    return taken


def test_every_command_is_a_function():
    assert commands().keys() == QUESTIONS.keys()


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_takes_every_option_and_no_other(name):
    arguments = arguments_of(name)
    options = {option for option in options_of(name) if option not in OF_THE_SHELL or option in arguments}
    assert options == arguments.keys() - OF_THE_LIBRARY.get(name, set())


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_argument_has_the_default_of_its_option(name):
    options, empty = options_of(name), inspect.Parameter.empty
    for key, argument in arguments_of(name).items():
        option = options.get(key)
        if option is None:
            continue
        default = option.to_info_dict()["default"]
        if isinstance(option, click.Argument):
            assert (argument.default is empty) is (option.required and option.nargs == 1), key
        elif option.required:
            assert argument.default is empty, key
        elif argument.default not in ("", (), None, False):
            assert same(argument.default, default), (key, argument.default, default)
        else:
            assert not default or default in ("0s", "0"), (key, default)


def same(default: object, of_option: object) -> bool:
    """Return whether a default is that of an option, which may be text with a unit."""
    return str(default) == str(of_option) or (isinstance(default, float) and float(str(of_option).rstrip("s")) == default)


@pytest.mark.parametrize("source", REPRO)
def test_a_publication_refuses_what_is_not_for_it(source):
    for name, value in {
        "table": "6",
        "figure": "17",
        "data": "runs.csv",
        "fit": True,
        "cache": "kept",
        "workers": "ray",
    }.items():
        if name not in REPRO_TAKES[source]:
            with pytest.raises(emu.InputError, match=f"{name} is not for {source}"):
                emu.repro(source, **{name: value})


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_help_of_a_question_tells_each_argument(name):
    told = inspect.getdoc(QUESTIONS[name]) or ""
    for argument in arguments_of(name):
        assert f"\n    {argument}: " in told, argument


SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
STEP = {"model": "llama-tiny", "plan": "dp=2", "topology": SWITCH, "global_batch": 4, "seq": 16}
ASKED = [
    ("verify", ("all_reduce",), {"algorithm": "ring", "ranks": 4}),
    ("bench", ("all_reduce",), {"topology": SWITCH, "size": "1KiB", "algorithm": "ring", "timing_only": True}),
    ("estimate", (), STEP),
    ("faults", (), {"topology": "nvl:72", "tp": 32}),
    ("queue", (), {"topology": "nvl:72", "mix": "acme", "jobs": 5, "days": 1.0, "faultless": True}),
    ("cost", (), {"topology": "nvl:72", "prices": "infinitehbd"}),
    ("show topology", (SWITCH,), {}),
    ("show collective", ("all_reduce", "ring"), {"ranks": 4}),
    ("list models", (), {}),
]


@pytest.mark.parametrize(("name", "words", "named"), ASKED, ids=[name for name, *_ in ASKED])
def test_a_question_and_its_command_have_the_same_answer(name, words, named, emu):
    flags = [part for key, value in named.items() for part in flag(key, value)]
    done = emu(*name.split(), *words, *flags, "--json")
    answer = QUESTIONS[name](*words, **named)
    assert isinstance(answer, Result)
    assert done.code == 0
    assert without_wall(done.json) == without_wall(json.loads(json.dumps(answer.to_dict())))


def flag(key: str, value: object) -> list[str]:
    """The option of an argument."""
    name = f"--{key.replace('_', '-')}"
    return [name] if value is True else [name, str(value)]


@pytest.mark.parametrize(("name", "words", "named"), ASKED, ids=[name for name, *_ in ASKED])
def test_a_command_that_prints_text_makes_no_json(name, words, named, emu, monkeypatch):
    kinds = [Result, *Result.__subclasses__(), *(below for of in Result.__subclasses__() for below in of.__subclasses__())]
    for kind in kinds:
        monkeypatch.setattr(kind, "as_json", lambda _: pytest.fail("nobody asked for JSON"))
    flags = [part for key, value in named.items() for part in flag(key, value)]
    assert emu(*name.split(), *words, *flags).code == 0
