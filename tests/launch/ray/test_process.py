import socket

import pytest

from emu.errors import InputError, RunError
from launch.ray import process
from launch.ray.process import RayProcess


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere", "--ray-address: the address must be HOST:PORT, got 'nowhere'; e.g. 127.0.0.1:6379"),
        ("1.2.3.4:port", "the address must be HOST:PORT, got '1.2.3.4:port'"),
        ("127.0.0.1:99999", "the address must be that of a Ray that runs, got '127.0.0.1:99999'"),
    ],
)
def test_what_is_no_address_is_refused(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RayProcess(address)


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as freed:
        address = f"127.0.0.1:{freed.getsockname()[1]}"
    with pytest.raises(InputError, match=f"that of a Ray that runs, got '{address}'; .*Connection refused"):
        RayProcess(address)


@pytest.mark.ray
def test_an_address_where_something_else_listens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_START_S", 1.0)
    monkeypatch.setattr(process, "_LEAVE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(InputError, match=f"that of a Ray that runs, got '{address}'; Ray: no answer within 1 s"):
            RayProcess(address)


def test_a_process_that_ends_before_ray_is_up_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    script = tmp_path / "actors.py"
    script.write_text("import sys\nsys.exit('no such ray')")
    monkeypatch.setattr(process, "__file__", str(tmp_path / "process.py"))
    with pytest.raises(RunError, match=r"^ray: its process has ended with code 1; log: \S+$") as error:
        RayProcess()
    log = process.Path(str(error.value).partition("log: ")[2])
    assert log.read_text().startswith("no such ray")
    log.unlink()


def test_a_ray_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    script = tmp_path / "actors.py"
    script.write_text(
        "import sys\nfrom multiprocessing.connection import Connection\n"
        "pipe = Connection(int(sys.argv[1]))\npipe.recv()\npipe.send('OSError: no space\\nleft')"
    )
    monkeypatch.setattr(process, "__file__", str(tmp_path / "process.py"))
    with pytest.raises(RunError, match=r"^ray: does not start: OSError: no space left; log: \S+$") as error:
        RayProcess()
    process.Path(str(error.value).partition("log: ")[2]).unlink()
