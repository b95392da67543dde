"""Axis by axis, schedules for what others leave are taken where the step gets shorter: by steps of known times."""

from types import SimpleNamespace
from typing import Any

import pytest

from emu.collective.choice import Choice, Request
from emu.study.training.step_choice import beside

# The seconds of a step by the axes whose schedules are made for what others leave: alone `cp` saves nothing, and after it `dp`.
TIMES_S = {
    "": 10.0,
    "cp": 10.0,
    "dp": 9.0,
    "cp dp": 1.0,
    "dp ep": 9.5,
    "dp tp": 8.0,
    "cp dp tp": 1.0,
    "ep": 1.0,
    "dp ep tp": 1.0,
}


def step(monkeypatch: pytest.MonkeyPatch, own: Any, *, may_be: bool = True, times_s: dict[str, float] = TIMES_S) -> Any:
    """Return a step with requests on four axes, and on one for which no schedule is made, and what it was composed with."""
    monkeypatch.setattr(beside, "made_beside", lambda *_: (lambda request: request.axis != "tp" and "left") if may_be else None)
    monkeypatch.setattr(beside, "LinksLeft", lambda _: SimpleNamespace(of=None))
    monkeypatch.setattr(beside, "is_made", lambda each, _: each.axis_name != "pp")
    composed = list[str]()

    def by(choice: Choice) -> Any:
        served = [
            axis for axis in ("cp", "dp", "ep", "pp", "tp") if asked(choice, axis) == "left" or axis in choice.chooser.axes
        ]
        composed.append(" ".join(served))
        return SimpleNamespace(coarse_report=lambda: SimpleNamespace(step_time_s=times_s[" ".join(served)]))

    requests = [SimpleNamespace(axis_name=axis) for axis in ("tp", "dp", "pp", "ep", "cp", "dp")]
    report = SimpleNamespace(step_time_s=times_s[""])
    return SimpleNamespace(
        choice=Choice(chooser=own),
        by=by,
        asked=SimpleNamespace(requests=requests),
        coarse_report=lambda: report,
        composed=composed,
    )


def asked(choice: Choice, axis: str) -> Any:
    """Return what serves a request of an axis."""
    assert choice.chooser is not None
    return choice.chooser(Request("all_gather", (0, 1), axis=axis))


class Asking:
    """A chooser in place of `_by_axis`, which knows its axes."""

    def __init__(self, own: Any, beside_: Any, axes: Any) -> None:
        self.own, self.beside, self.axes = own, beside_, frozenset(axes)

    def __call__(self, request: Request) -> Any:
        """Return what serves a request."""
        return self.own(request)


@pytest.mark.parametrize(
    ("times_s", "composed", "taken"),
    [
        (TIMES_S, ["cp", "dp", "dp ep", "dp tp"], {"dp", "tp"}),
        (dict.fromkeys(TIMES_S, 10.0), ["cp", "dp", "ep", "tp"], None),
        ({**dict.fromkeys(("", "dp", "ep"), 10.0), "cp": 9.0, "cp dp": 9.0, "cp ep": 9.5, "cp tp": 8.0}, None, {"cp", "tp"}),
    ],
)
def test_an_axis_is_taken_if_the_step_gets_shorter_with_it_and_with_those_taken_before(
    times_s: dict[str, float], composed: list[str] | None, taken: set[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_by_axis", Asking)
    own = step(monkeypatch, lambda _: "own", times_s={"tp": 10.0, **times_s})
    choice: Any = beside._choice_beside(own)
    assert choice is None if taken is None else choice.chooser.axes == taken
    assert own.composed == (composed or ["cp", "cp dp", "cp ep", "cp tp"])


def test_where_no_schedule_may_be_made_nothing_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = step(monkeypatch, lambda _: "own", may_be=False)
    assert (beside._choice_beside(own), own.composed) == (None, [])


def test_requests_of_other_axes_and_those_for_which_none_is_made_keep_what_serves_them() -> None:
    def left(request: Request) -> Any:
        return "left" if request.operation == "all_gather" else None

    for own, otherwise in ((lambda _: "own", "own"), (None, None)):
        choose: Any = beside._by_axis(own, left, {"dp"})  # type: ignore[arg-type]
        served = [choose(Request(name, (0, 1), axis=axis)) for axis in ("dp", "tp") for name in ("all_gather", "gather")]
        assert served == ["left", otherwise, otherwise, otherwise]
