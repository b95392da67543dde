"""Programs of `tests/scripts/threaded.py` on gloo, a process a rank, and as threads of one process; each in its time."""

import atexit
import faulthandler
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from pathlib import Path

import torch

from emu.cluster.script_run import run_script
from emu.errors import RunError
from tests.forked import Fork, script

SCRIPT = Path(__file__).parents[1] / "scripts" / "threaded.py"
LONGEST_S = float(os.environ.get("LONGEST", "100"))  # for some twenty programs, on a busy machine


def on_gloo(folder, n, programs):
    """Return what each rank of gloo has found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    size = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [Fork(folder, {**size, "RANK": str(r), "LOCAL_RANK": str(r)}, _gloo, folder, programs) for r in range(n)]
    until_s = time.monotonic() + LONGEST_S
    ended = [rank.end(until_s - time.monotonic()) for rank in ranks]
    assert not any(each.code for each in ended), (where(folder, n), [each.err[-6000:] for each in ended])
    return found(folder, n)


def on_threads(folder, n, programs):
    """Return what each emulated rank has found, and the digest of the trace."""
    ended = Fork(folder, {"RANK": "0"}, _threads, folder, n, programs).end(LONGEST_S)
    assert not ended.code, (where(folder, n), ended.code, ended.err[-3000:])
    return found(folder, n), (folder / "trace").read_text()


def ends_of(folder, n, programs):
    """Return what is said of programs that cannot come to their end, by program."""
    ended = Fork(folder, {}, _faults, folder, n, programs).end(LONGEST_S)
    assert not ended.code, (where(folder, n), ended.code, ended.err[-3000:])
    return json.loads((folder / "said").read_text())


def found(folder, n):
    """Return the results that the ranks have left, and the order in which what they registered was called."""
    return [[json.loads((folder / f"{rank}.json").read_text()), (folder / f"{rank}.ends").read_text()] for rank in range(n)]


def where(folder, n):
    """Return at which program each rank was, and the errors of its lanes."""
    files = [*(folder / f"{rank}.at" for rank in range(n)), *folder.glob("*/*.error")]
    return [file.read_text() for file in files if file.exists()]


def differences(folder, n, seeds):
    """Return where results of the same programs on gloo and on threads differ, and whether the trace of a second run does."""
    folders = [
        folder / name for name in ("gloo", "once", "anew")
    ]  # traces hold how long the names are that ranks tell each other
    for each in folders:
        each.mkdir(parents=True)
    programs = [str(seed) for seed in seeds]
    gloo = on_gloo(folders[0], n, programs)
    (first, trace), (second, other) = (on_threads(each, n, programs) for each in folders[1:])
    unlike = [
        (rank, seed, lane, right, got[rank][0][seed].get(lane))
        for got in (first, second)
        for rank in range(n)
        for seed, lanes in gloo[rank][0].items()
        for lane, right in lanes.items()
        if right != got[rank][0][seed].get(lane)
    ]
    unlike += [("atexit", rank) for rank in range(n) if gloo[rank][1] != first[rank][1]]
    return unlike + [("trace", programs)] * (trace != other)


def _gloo(folder, programs):
    _begin()
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        script(str(SCRIPT), str(folder), *programs)
    finally:
        atexit._run_exitfuncs()  # as a process does that was not forked


def _threads(folder, n, programs):
    _begin()
    before = threading.active_count()
    trace, code = run_script(SCRIPT, [str(folder), *programs], n)
    assert code == 0
    assert threading.active_count() == before, threading.enumerate()
    (folder / "trace").write_text(trace.digest())


def _faults(folder, n, programs):
    _begin()
    said = {}
    for program in programs:
        try:
            run_script(SCRIPT, [str(folder), program], n)
        except RunError as error:
            said[program] = str(error)
        else:
            said[program] = "nothing"
    (folder / "said").write_text(json.dumps(said))


def _begin():
    """Let a process that takes too long say where it is, and let it start others."""
    faulthandler.dump_traceback_later(LONGEST_S - 5)
    multiprocessing.current_process()._config["daemon"] = False
    torch.set_num_threads(1)  # OpenMP's threads would not be there in a fork
    multiprocessing.set_start_method("fork", force=True)
