import subprocess
import sys
import textwrap

import pytest

from emu.errors import InputError
from emu.registry import Registry, check_settings, parse_call, unknown


@pytest.fixture
def fruit():
    """A registry of things that no catalogue package files."""
    registry = Registry("fruit", "no-such-package")
    for name in ("apple", "banana", "cherry"):
        registry.file(name, name.upper())
    return registry


def test_what_is_filed_is_found_by_name(fruit):
    assert fruit.find("banana") == "BANANA"


def test_things_come_in_order_of_their_names(fruit):
    fruit.file("apricot", "APRICOT")
    assert [name for name, _ in fruit] == ["apple", "apricot", "banana", "cherry"]


def test_a_name_filed_twice_is_refused(fruit):
    with pytest.raises(InputError, match="fruit 'apple' is defined twice; give one of them another name"):
        fruit.file("apple", "other")
    assert fruit.find("apple") == "APPLE"


def test_a_name_that_is_nearly_right_is_told_which_one_is_meant(fruit):
    with pytest.raises(InputError, match=r"no fruit is called 'banan'; did you mean banana\?"):
        fruit.find("banan")


def test_a_name_like_nothing_is_told_all_there_are(fruit):
    with pytest.raises(InputError, match="no fruit is called 'xyz'; known: apple, banana, cherry"):
        fruit.find("xyz")
    assert str(unknown("fruit", "aple", ["apple", "maple"])).endswith("did you mean maple or apple?")


def test_a_long_list_of_a_catalogue_is_cut_and_says_which_command_prints_it():
    known = [f"machine-{number:02}" for number in range(40)]
    told = str(unknown("topology", "xyz", known))
    assert told.endswith(", machine-11, ...; `emu list topologies` prints all 40")
    assert "machine-12" not in told
    assert "did you mean machine-" in str(unknown("topology", "machine-4", known))
    assert "machine-39" in str(unknown("key of a file", "xyz", known))


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("ring", ("ring", "", {})),
        ("rack:large", ("rack", "large", {})),
        ("ring:n=8", ("ring", "", {"n": "8"})),
        ("rack:large:n=8,latency=1us", ("rack", "large", {"n": "8", "latency": "1us"})),
        ("ring:n=8:latency=1us", ("ring", "", {"n": "8", "latency": "1us"})),
        ("ring:expression=a=b", ("ring", "", {"expression": "a=b"})),
    ],
)
def test_a_call_has_a_name_a_variant_and_settings(text, call):
    assert parse_call(text, "topology") == call


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ring:a:b", "topology: 'ring:a:b' is not NAME.*; 'b' is out of place"),
        ("ring:n=8:a", "'a' is out of place"),
        ("ring:", "'' is out of place"),
        ("ring:n=8,", "has a setting '' that is not one new key=value"),
        ("ring:n=", "has a setting 'n=' that"),
        ("ring:=8", "has a setting '=8' that"),
        ("ring:n=8,n=9", "has a setting 'n=9' that"),
        ("ring:n=8:n=9", "has a setting 'n=9' that"),
        ("ring:n=8,large", "has a setting 'large' that"),
    ],
)
def test_a_call_that_cannot_be_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        parse_call(text, "topology")


def build(n: int, latency: str, rate: float = 1.0) -> None:
    """Take three settings, one of which has a default."""


def test_settings_that_are_taken_are_let_through():
    check_settings("ring", build, {"n": "8", "latency": "1us"})
    check_settings("ring", build, {"n": "8", "latency": "1us", "rate": "2"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"n": "8", "latncy": "1us"}, "ring: unknown setting 'latncy'; did you mean latency[?]"),
        ({"zzz": "1"}, "ring: unknown setting 'zzz'; it takes n, latency, rate"),
        ({}, "ring: settings missing: n, latency; write ring:n=[.]{3},latency=[.]{3}$"),
        ({"n": "8"}, "ring: settings missing: latency; write ring:n=8,latency=[.]{3}$"),
        ({"rate": "2", "latency": "1us"}, "ring: settings missing: n; write ring:n=[.]{3},latency=1us,rate=2$"),
    ],
)
def test_settings_that_are_not_taken_or_missing_are_named(given, says):
    with pytest.raises(InputError, match=says):
        check_settings("ring", build, given)


def run_beside_folders_of_the_same_names(folder, script: str) -> str:
    for name in ("collectives", "topologies"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("mine = True\n")
        (folder / name / "own.py").write_text("mine = True\n")
    (folder / "script.py").write_text(textwrap.dedent(script))
    return subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_catalogue_is_found_though_the_users_folder_has_its_name(tmp_path):
    out = run_beside_folders_of_the_same_names(
        tmp_path,
        """
        from emu.collective.algorithm import ALGORITHMS
        print(len(list(ALGORITHMS)) > 0)
        """,
    )
    assert out == "True\n"


def test_the_catalogue_is_found_after_the_users_folder_was_imported_and_leaves_it_there(tmp_path):
    out = run_beside_folders_of_the_same_names(
        tmp_path,
        """
        import collectives.own
        own = collectives.own
        from emu.collective.algorithm import schedule
        print(schedule("all_reduce", "ring", 4).n_rows)
        import collectives.own
        print(collectives.own is own, collectives.mine)
        """,
    )
    assert out == "24\nTrue True\n"


def test_each_catalogue_package_is_loaded_alone():
    """`import emu` and a registry of one kind load neither torch nor the other kinds."""
    script = """if True:
        import sys
        from emu.collective.algorithm import ALGORITHMS
        list(ALGORITHMS)
        print("collectives" in sys.modules, {"torch", "ray", "topologies", "models", "numba"} & set(sys.modules))
    """
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out == "True set()\n"
