"""The digest of the code that results follow from: whatever users' code is changed, in whichever way it is reached."""

import subprocess
import sys
from pathlib import Path

import pytest

OWN = 'from emu.registry import Registry\nRegistry("fruit", "no-such-package").file("apple", 1)\n'
ASKED = "from emu.sources import code_digest\nprint(code_digest())\n"
IMPORTED = f"from pathlib import Path\nfrom emu.registry import import_file\nimport_file(Path('own.py'))\n{ASKED}"
BESIDE = "import sys\nsys.path.insert(0, 'beside')\n"
WAYS = {
    "at the top": "import helper\n",
    "by its name": "from inner.deep import helper\n",
    "in a function": "def build():\n    from inner.deep.helper import sizes\n",
    "by another module": "import through\n",
    "by a module that a function imports": "def build():\n    import through\n",
    "beside another module": "import inner.beside\n",
    "by words": "import importlib\nimportlib.import_module('hel' + 'per')\n",
}


def run(folder: Path, code: str) -> str:
    """Return what a process prints that Python starts in a folder."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def helpers(size: int) -> dict[str, str]:
    """Modules, of which all come to the one whose text has the size."""
    return {
        "beside/helper.py": f"sizes = {size}\n",
        "beside/through.py": "import helper\n",
        "beside/inner/deep/helper.py": f"sizes = {size}\n",  # of a package without __init__.py
        "beside/inner/beside.py": "from . import deep\nfrom .deep import helper\n",
    }


def test_a_file_of_a_users_own_changes_the_digest_and_is_known_again(tmp_path: Path) -> None:
    write(tmp_path, {"own.py": OWN})
    first = run(tmp_path, IMPORTED)
    assert run(tmp_path, IMPORTED) == first
    assert run(tmp_path, ASKED) != first
    write(tmp_path, {"own.py": OWN + "# changed\n"})
    changed = run(tmp_path, IMPORTED)
    assert changed != first
    write(tmp_path / "elsewhere", {"own.py": OWN})
    assert run(tmp_path / "elsewhere", IMPORTED) == first


@pytest.mark.parametrize("way", WAYS)
def test_a_module_that_it_imports_changes_the_digest(tmp_path: Path, way: str) -> None:
    write(tmp_path, {"own.py": BESIDE + WAYS[way] + OWN, **helpers(1)})
    first = run(tmp_path, IMPORTED)
    assert run(tmp_path, IMPORTED) == first
    write(tmp_path, helpers(2))
    assert run(tmp_path, IMPORTED) != first


@pytest.mark.parametrize("folder", ["site-packages", "of-any-name"])
def test_what_it_does_not_import_and_what_is_installed_do_not_change_the_digest(tmp_path: Path, folder: str) -> None:
    installed = f"import sys\nsys.path.insert(0, 'lib/{folder}')\nimport installed\n"
    record = {f"lib/{folder}/it-1.0.dist-info/RECORD": "installed.py,,\n"}
    write(tmp_path, {"own.py": installed + OWN, f"lib/{folder}/installed.py": "a = 1\n", "other.py": "a = 1\n", **record})
    first = run(tmp_path, IMPORTED)
    write(tmp_path, {f"lib/{folder}/installed.py": "a = 2\n", "other.py": "a = 2\n"})
    assert run(tmp_path, IMPORTED) == first


def test_a_script_that_files_something_changes_the_digest(tmp_path: Path) -> None:
    script = "import runpy\nrunpy.run_path('script.py', run_name='__main__')\n"
    write(tmp_path, {"script.py": OWN + ASKED})
    first = run(tmp_path, script)
    assert run(tmp_path, script) == first
    write(tmp_path, {"script.py": "# changed\n" + OWN + ASKED})
    assert run(tmp_path, script) != first


def test_code_that_is_in_no_file_is_never_known_again(tmp_path: Path) -> None:
    assert run(tmp_path, OWN + ASKED) != run(tmp_path, OWN + ASKED)


def test_a_folder_of_data_changes_the_digest(tmp_path: Path) -> None:
    code = "from pathlib import Path\nfrom emu.sources import code_digest\nprint(code_digest(Path('data')))\n"
    write(tmp_path, {"data/prices.toml": "a = 1\n", "data/README.md": "one\n"})
    first = run(tmp_path, code)
    write(tmp_path, {"data/README.md": "two\n"})
    assert run(tmp_path, code) == first
    write(tmp_path, {"data/prices.toml": "a = 2\n"})
    assert run(tmp_path, code) != first
