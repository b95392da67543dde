"""Options are what the signature and the docstring of a question say of its arguments."""

from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from launch.cli.options.question_options import QuestionOptions
from launch.front.inputs import Words


def ask(
    *,
    size: int | str,
    dims: str = "",
    ranks: int | Sequence[int] = (),
    beside: Words = (),
    share: float | str = 0.1,
    root: int = 0,
    log: str | Path | None = None,
    prove_all: bool = False,
) -> None:
    """Ask.

    Args:
        size: The bytes of a buffer, as a number or such as `64MiB`.
        dims: The shape of the grid, such as `4x4`. A part of it is given, too, for
            `size`; empty: every shape.
        ranks: The number of ranks, for `auto`; or several.
        beside: A plan of your own.
        share: A share.
        root: The root.
        log: A log; None: the published one.
        prove_all: Prove all; False: the first.

    Raises:
        InputError: never.
    """


def option(*names: str, **more: object) -> click.Option:
    command = click.command()(QuestionOptions(ask)(*names, **more)(lambda: None))
    (made,) = command.params
    assert isinstance(made, click.Option)
    return made


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("size", "The bytes of a buffer."),
        ("dims", "The shape of the grid. A part of it is given, too, for --size. [default: every shape]"),
        ("ranks", "The number of ranks, for `auto`; repeat it."),
        ("log", "A log. [default: the published one]"),
        ("prove_all --all", "Prove all. [default: the first]"),
    ],
)
def test_the_help_is_what_the_docstring_says_in_the_words_of_the_shell(name, told):
    assert option(name).help == told


def test_a_value_has_the_type_the_default_and_the_form_of_its_argument():
    size, dims, share, root = map(option, ("size", "dims", "share", "root"))
    assert (size.required, size.metavar) == (True, "64MiB")
    assert (dims.default, dims.metavar, dims.show_default) == ("", "4x4", False)
    assert (share.default, share.type, share.show_default) == ("0.1", click.STRING, True)
    assert (root.default, root.type, root.show_default) == (0, click.INT, True)
    assert isinstance(option("log").type, click.Path)
    assert [(of.multiple, of.type) for of in map(option, ("ranks", "beside"))] == [(True, click.INT), (True, click.STRING)]


def test_flags_and_words_of_the_shell_take_the_place_of_the_arguments_own():
    assert (option("prove_all --all").opts, option("prove_all --all").name) == (["--all"], "prove_all")
    assert option("size -s").opts == ["-s", "--size"]
    assert (option("size", metavar="SIZE").metavar, option("size", help="Bytes.").help) == ("SIZE", "Bytes.")
    assert option("prove_all").is_flag
