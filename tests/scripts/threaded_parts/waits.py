"""Steps in which threads of one rank wait for each other."""

import queue
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait


def pipeline(lane):
    """Numbers pass through queues, the last of which hold few."""
    kinds = [queue.Queue, queue.SimpleQueue, lambda: queue.Queue(1), queue.LifoQueue]
    first, last = lane.draw.choice(kinds[:3])(), lane.draw.choice(kinds[:3])()

    def work():
        while (got := first.get()) is not None:
            lane.nap()
            last.put(got * 2)
        last.put(None)

    worker = lane.thread(work, daemon=lane.draw.random() < 0.5)
    feeder = lane.thread(lambda numbers: [first.put(i) for i in numbers], (*range(lane.draw.choice([1, 5])), None))
    lane.note(list(iter(last.get, None)))
    feeder.join()
    worker.join()


def tasks(lane):
    """Workers that run for ever take what a queue has, until all is done."""
    todo, done = queue.Queue(), []

    def work():
        while True:
            done.append(todo.get() ** 2)
            todo.task_done()

    for _ in range(2):
        lane.thread(work, daemon=True)
    for i in range(5):
        todo.put(i)
    todo.join()
    lane.note(sorted(done), todo.qsize(), todo.empty())


def empty(lane):
    """Errors of a queue that has nothing, or no room."""
    none, full = queue.Queue(), queue.Queue(1)
    full.put(0)
    for ask in (
        lambda: none.get(timeout=0.005),
        none.get_nowait,
        lambda: full.put(1, timeout=0.005),
        lambda: full.put_nowait(1),
    ):
        try:
            ask()
        except (queue.Empty, queue.Full) as error:
            lane.note(type(error).__name__)


def turns(lane):
    """Two threads in turn, by a condition."""
    condition, said = threading.Condition(), []

    def speak(me):
        for _ in range(3):
            with condition:
                condition.wait_for(lambda: len(said) % 2 == me)
                said.append(me)
                condition.notify_all()

    threads = [lane.thread(speak, me) for me in lane.draw.choice([(0, 1), (1, 0)])]
    for thread in threads:
        thread.join()
    with condition:
        lane.note(said, condition.wait(0.002))


def few(lane):
    """No more than two at once."""
    room, lock, inside, most = threading.BoundedSemaphore(2), threading.Lock(), [], []

    def enter(i):
        with room:
            with lock:
                inside.append(i)
                most.append(len(inside))
            lane.nap()
            with lock:
                inside.remove(i)

    threads = [lane.thread(enter, i) for i in range(5)]
    for thread in threads:
        thread.join()
    lane.note(max(most) <= 2, len(most))


def together(lane):
    """Threads that meet, again and again."""
    meeting, met = threading.Barrier(3, action=lambda: met.append("all")), []

    def come():
        for _ in range(2):
            lane.nap()
            meeting.wait()

    threads = [lane.thread(come) for _ in range(2)]
    come()
    for thread in threads:
        thread.join()
    lane.note(met, meeting.broken)


def alive(lane):
    """A thread that waits is not awaited for long."""
    go, said, most_s = threading.Event(), [], lane.draw.choice([None, 60])
    thread = lane.thread(lambda: said.append(go.wait(most_s)))
    thread.join(lane.draw.choice([0, 0.003]))
    lane.note(thread.is_alive(), said, go.wait(0.002))
    go.set()
    thread.join(60)
    lane.note(thread.is_alive(), said)


def asked(lane):
    """Ask again and again what a thread has done."""
    said, thread = [], None
    thread = lane.thread(lambda: (lane.nap(), said.append(1)))
    way = lane.draw.choice(["alive", "list", "sleep"])
    while thread.is_alive() if way == "alive" else not said:
        if way != "list":
            time.sleep(0.0005)
        else:
            time.sleep(0)
    thread.join()
    lane.note(said)


def timers(lane):
    said = []
    on, off = threading.Timer(0.003, said.append, ["on"]), threading.Timer(60, said.append, ["off"])
    on.start()
    off.start()
    off.cancel()
    off.join()
    on.join()
    lane.note(said, off.finished.is_set())


def locks(lane):
    """Answers of a lock that another thread holds."""
    lock, held, go, said = lane.draw.choice([threading.Lock, threading.RLock])(), threading.Event(), threading.Event(), []

    def hold():
        with lock:
            held.set()
            go.wait()

    thread = lane.thread(hold)
    held.wait()
    said += [lock.acquire(blocking=False), lock.acquire(timeout=0.003)]
    go.set()
    with lock:
        said.append("mine")
    thread.join()
    lane.note(said)


def pool(lane):
    """Results of a pool, in each way in which they can be asked for."""

    def work(i):
        lane.nap()
        return i * i

    seen = []
    with ThreadPoolExecutor(lane.draw.choice([1, 2, 5])) as workers:
        asked = [workers.submit(work, i) for i in range(4)]
        asked[lane.draw.randrange(4)].add_done_callback(lambda done: seen.append(done.result()))
        way = lane.draw.choice(["as completed", "first", "map", "result"])
        if way == "as completed":
            lane.note(sorted(each.result() for each in as_completed(asked)))
        elif way == "first":
            lane.note(len(wait(asked, return_when=FIRST_COMPLETED).done) >= 1, sorted(f.result() for f in wait(asked).done))
        elif way == "map":
            lane.note(list(workers.map(work, range(5))))
        else:
            lane.note([each.result(60) for each in asked])
    lane.note(seen)


def cancelled(lane):
    """Work that was not begun when it was cancelled is not done."""
    go = threading.Event()
    workers = ThreadPoolExecutor(1)
    first, second, third = workers.submit(go.wait), workers.submit(int), workers.submit(int, 7)
    while not first.running():
        time.sleep(0.0005)
    lane.note(second.cancel(), first.cancel(), third.done())
    go.set()
    workers.shutdown(wait=True)
    lane.note(first.result(), second.cancelled(), third.result())


STEPS = (pipeline, tasks, empty, turns, few, together, alive, asked, timers, locks, pool, cancelled)
