import pytest

from emu.errors import InputError
from launch.ray.process import RayOptions, read_options


def test_no_file_leaves_the_placing_to_ray():
    assert read_options(None) == RayOptions()
    assert RayOptions().placement is None


def test_a_file_says_where_actors_are_placed_and_in_which_environment(tmp_path):
    file = tmp_path / "ray.toml"
    file.write_text('strategy = "SPREAD"\nwait_s = 5\nresources = { CPU = 2, npu = 1 }\n[runtime_env]\npip = ["x"]\n')
    found = read_options(file)
    assert found.placement == ("SPREAD", {"CPU": 2, "npu": 1}, 5.0)
    assert found.runtime_env == {"pip": ["x"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('strategy = "SPRAED"', "no strategy is called 'SPRAED'; did you mean SPREAD"),
        ("stratgy = 1", "unknown key 'stratgy'; did you mean strategy"),
        ("resources = { CPU = 0 }", r"ray.toml: resources must be amounts above 0 by name, got \{'CPU': 0\}"),
        ("wait_s = -1", "ray.toml: wait_s must be seconds above 0, got -1"),
        ("runtime_env = 3", "ray.toml: runtime_env must be a table as Ray takes it, got 3"),
        ("a = ", "no TOML"),
    ],
)
def test_what_is_no_option_is_refused(tmp_path, text, message):
    file = tmp_path / "ray.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_options(file)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="--ray-options: cannot read"):
        read_options(tmp_path / "none.toml")
