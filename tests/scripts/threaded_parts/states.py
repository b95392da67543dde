"""Steps that ask what a thread finds of its process, and what is its own."""

import asyncio
import contextvars
import multiprocessing
import os
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

_VARIABLE = contextvars.ContextVar("variable", default="nothing")
_local = threading.local()


def process(lane):
    """Threads find the environment, the folder, the arguments and the streams of their rank."""

    def look():
        said = [os.environ["RANK"], os.environ.get(name), os.getenv("WORLD_SIZE"), len(sys.argv), bool(Path.cwd())]
        print(f"{lane.name} {lane.rank}: {said}")  # noqa: T201 - what a script does
        os.environ[name] = "of the thread"
        lane.note(said)

    name = lane.new("VARIABLE")
    os.environ[name] = f"of rank {lane.rank}"
    lane.thread(look).join()
    lane.note(os.environ.pop(name))


def own(lane):
    """Values that are a thread's own, and values that it is handed."""
    said = []
    _local.value = lane.name
    token = _VARIABLE.set(lane.name)

    def look():
        said.extend(
            [getattr(_local, "value", None), _VARIABLE.get(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
        )
        _local.value = "other"
        _VARIABLE.set("other")

    with torch.no_grad():
        lane.thread(look).join()
        lane.thread(contextvars.copy_context().run, look).join()
    lane.note(said, _local.value, _VARIABLE.get())
    _VARIABLE.reset(token)


def names(lane):
    """Names, numbers and states that `threading` gives of a thread."""
    said = []
    thread = threading.Thread(target=lambda: said.append(threading.current_thread().name), name=f"of {lane.name}")
    lane.note(thread.is_alive(), thread.ident)
    thread.start()
    thread.join()
    lane.note(said, thread.daemon, thread.ident != threading.get_ident(), thread in threading.enumerate())
    lane.note(threading.current_thread() is threading.main_thread())


def fails(lane):
    """An exception in a thread is told, and ends that thread alone."""

    def fail():
        raise ValueError(f"drawn in {lane.name}")

    thread = lane.thread(fail)
    thread.join()
    with ThreadPoolExecutor(1) as workers:
        lane.note(workers.submit(fail).exception(), workers.submit(int, "7").result())
        try:
            workers.submit(fail).result()
        except ValueError as error:
            lane.note(error)


def leaves(lane):
    """A thread that leaves ends itself alone, without a word."""
    lane.thread(sys.exit, 3).join()
    lane.note("goes on")


def loop(lane):
    """A loop of events, with threads."""

    async def work(i):
        await asyncio.sleep(0.001)
        return await asyncio.to_thread(lambda: (lane.nap(), i * 2)[1])

    async def all_of():
        return await asyncio.gather(*(work(i) for i in range(3)))

    lane.note(asyncio.run(all_of()))


def pipe(lane):
    """A thread that waits for a pipe."""
    here, there, got = *multiprocessing.Pipe(), []
    thread = lane.thread(lambda: got.append(there.recv()))
    lane.nap()
    here.send(["said", lane.rank])
    thread.join()
    lane.note(got, here.poll(0.001))


def futures(lane):
    """A future of PyTorch's that another thread settles."""
    future, seen = torch.futures.Future(), []
    after = future.then(lambda done: seen.append(1) or done.value() + 1)
    thread = lane.thread(lambda: (lane.nap(), future.set_result(lane.rank)))
    lane.note(future.wait(), after.wait(), seen)
    thread.join()


def gradients(lane):
    """A backward in a thread, with a hook."""
    weight, seen = torch.full((3,), 0.5, requires_grad=True), []
    weight.register_hook(lambda gradient: seen.append(gradient.tolist()))

    def learn():
        (weight * torch.arange(3.0) * (lane.rank + 1)).sum().backward()

    lane.thread(learn).join()
    lane.note(weight.grad, seen)


STEPS = (process, own, names, fails, leaves, loop, pipe, futures, gradients)


def numbers(lane):
    """Random numbers of the process, drawn by one thread after the other; only where no other thread runs."""
    seed = lane.draw.randrange(100)
    torch.manual_seed(seed + lane.rank)
    random.seed(seed + lane.rank)
    np.random.seed(seed + lane.rank)  # noqa: NPY002 - what a process has once is what is asked for

    def draws():
        lane.note(torch.rand(2), random.random(), float(np.random.rand()))  # noqa: NPY002

    draws()
    lane.thread(draws).join()
    draws()
