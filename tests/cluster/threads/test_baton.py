"""The baton: who may run next, also where a strand is ended from outside while it is ready or waits."""

import pytest

from emu.cluster.strands.strand import Wait
from emu.cluster.threads.baton import Baton
from emu.cluster.threads.wait_table import WaitTable


def stuck() -> None:
    pytest.fail("a strand is ready")


@pytest.mark.parametrize("before", ["wake", "rest until a time"])
def test_a_strand_that_has_left_never_gets_the_baton(before):
    baton = Baton(range(3), (), stuck)
    baton.start()
    if before == "wake":
        baton.wake(1)
    else:
        baton._timed[1] = 0.0, 0.0
    baton.leave(1)  # as it is ended from outside
    baton.wake(1)
    baton.leave(0)
    assert baton.running == 2
    baton.leave(2)
    assert baton.await_end(1.0)


def test_a_strand_that_is_ended_where_it_waits_waits_for_nothing(monkeypatch):
    baton = Baton(range(2), (), lambda: None)
    wait_table = WaitTable(baton, None)
    baton.start()

    def ended(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(baton, "hand_on_and_wait", ended)
    with pytest.raises(SystemExit):
        wait_table.park(0, Wait("a request"))
    assert not wait_table.waits
    assert not wait_table.wake("a request")
