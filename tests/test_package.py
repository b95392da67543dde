"""An installed package is whole: every file that is no module is named as data of its package."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
PACKAGES = [pattern.rstrip("*") for pattern in SETTINGS["packages"]["find"]["include"]]


def test_files_that_the_program_reads_are_installed_with_it():
    there = {f for p in PACKAGES for f in (ROOT / p).rglob("*.*") if f.is_file() and f.suffix not in (".py", ".pyc")}
    installed = {
        file
        for package, patterns in SETTINGS["package-data"].items()
        for pattern in patterns
        for file in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    assert there
    assert not there - installed
