"""`.ci/setup` says in one line what a machine lacks, and leaves nothing half done."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[1] / ".ci" / "setup"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    shutil.copy(SETUP, tmp_path / "setup")
    return tmp_path


def fake(clone: Path, name: str, script: str) -> None:
    path = clone / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def set_up(clone: Path, python: str) -> subprocess.CompletedProcess[str]:
    path = f"{clone / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "setup", python], cwd=clone, env={"PATH": path}, capture_output=True, text=True, check=False, timeout=30
    )


def refusal(clone: Path, python: str) -> str:
    done = set_up(clone, python)
    assert done.returncode == 2
    assert not (clone / ".venv").exists()
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_no_python_is_one_line(clone: Path) -> None:
    assert "no python-of-nobody here; install Python 3.11 or above" in refusal(clone, "python-of-nobody")


def test_an_old_python_is_one_line(clone: Path) -> None:
    fake(clone, "oldpython", '[ "$1" = --version ] && echo Python 3.9.2 && exit 0; exit 1')
    assert "oldpython is Python 3.9.2, Emu needs Python 3.11 or above" in refusal(clone, "oldpython")


def test_a_python_without_venv_is_one_line(clone: Path) -> None:
    fake(clone, "bare", 'case "$2" in *venv*) exit 1;; esac; exit 0')
    assert "bare has no venv module; install it (Debian, Ubuntu: apt install python3-venv)" in refusal(clone, "bare")


def test_a_full_disk_is_one_line(clone: Path) -> None:
    fake(clone, "good", "exit 0")
    fake(clone, "df", 'echo header; echo "/dev/x 9999 9000 17 99% /"')
    assert "needs 4096 MiB of disk here, 17 are free" in refusal(clone, "good")


def test_a_failed_installation_names_pips_error_and_its_log_and_leaves_no_mark_of_success(clone: Path) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True)
    fake(clone, "good", "exit 0")
    fake(clone, "df", 'echo header; echo "/dev/x 9999 9000 99999 9% /"')
    pip = clone / ".venv" / "bin" / "python"
    pip.write_text("#!/bin/sh\necho ERROR: No matching distribution; exit 1\n")
    pip.chmod(0o755)
    done = set_up(clone, "good")
    assert done.returncode == 2
    assert "pip failed: ERROR: No matching distribution; the whole story is in .venv/setup.log" in done.stderr
    assert not (clone / ".venv" / "ready").exists()
