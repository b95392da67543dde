import pytest
import torch
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from emu.backend.rank.request_work import RequestWork


def failed():
    work = RequestWork([torch.ones(1)], lambda w, _: w.finish(ValueError("peer died")), lambda _: None)
    assert not work.done
    return work


def done():
    return RequestWork([torch.ones(1)], lambda w, _: w.finish(), lambda _: None)


def test_pytorch_s_own_work_of_a_failed_future_does_not_raise():
    """If this fails, PyTorch has mended it, and ours may become simpler."""
    future = Future()
    future.set_exception(ValueError("peer died"))
    assert _create_work_from_future(future).wait()


def test_wait_raises_what_the_request_failed_of():
    with pytest.raises(ValueError, match="peer died"):
        failed().wait()


def test_synchronize_raises_too():
    with pytest.raises(ValueError, match="peer died"):
        failed().synchronize()


def test_the_future_raises_in_python():
    with pytest.raises(RuntimeError, match="ValueError: peer died"):
        failed().get_future().wait()


def test_a_callback_on_the_future_of_a_failed_request_fails():
    with pytest.raises(RuntimeError, match="peer died"):
        failed().get_future().then(lambda f: f.value()).wait()


def test_the_future_of_a_request_that_went_well_holds_its_tensors():
    work = done()
    assert work.get_future().wait() == work.result() == [torch.ones(1)]
    assert work.wait()
    assert work.is_success()
    assert work.is_completed()
    assert work.exception() is None


def test_a_failed_request_says_so():
    work = failed()
    work.get_future()
    assert work.is_completed()
    assert not work.is_success()
    assert isinstance(work.exception(), ValueError)


def test_a_program_that_asks_lets_others_go_on():
    asked = []
    work = RequestWork([], lambda *_: None, asked.append)
    assert not work.is_completed()
    assert asked == [work]


class TestRecorded:
    class Log:
        def __init__(self):
            self.said = []

        def depend_on(self, event):
            self.said.append(("joined", event))

        def defer(self, event):
            self.said.append(("taken", event))

    def test_a_wait_is_told_and_a_future_taken(self):
        work = done()
        work.recorder, work.event = self.Log(), 7
        work.get_future()
        work.wait()
        assert work.recorder.said == [("taken", 7), ("joined", 7)]
