"""Interception of the moment at which a thread returns from native code to Python, from another thread.

Python calls back before the next instruction of the thread that was blocked: by `sys.monitoring`, or, before Python 3.12, by a
trace function that one thread may give another. Nothing is paid for it where no thread is blocked.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_python: Any = ctypes.pythonapi
_python.PyThreadState_Get.restype = ctypes.c_void_p


class _TraceCatcher:
    """A means, for Python 3.11, to have another thread call a function before its next instruction.

    It sets a trace function in the state of that thread.
    """

    _Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)

    def __init__(self) -> None:
        self._calls: dict[int, tuple[FrameType, Callable[[], object]]] = {}  # by the identity of the thread
        self._function = self._Function(self._goes_on)
        _python._PyEval_SetTrace.argtypes = ctypes.c_void_p, self._Function, ctypes.py_object

    def catch(self, thread: int, state: int, frame: FrameType, call: Callable[[], object]) -> None:
        """Arrange that `call` is called once on another thread before its next Python instruction."""
        self._calls[thread] = frame, call
        frame.f_trace_opcodes = True
        _python._PyEval_SetTrace(state, self._function, None)

    def _goes_on(self, _given: int, _frame: FrameType, _what: int, _value: int) -> int:
        """Call the function of the calling thread, and end its tracing."""
        sys.settrace(threading.gettrace())  # as a thread has it that nobody has caught
        frame, call = self._calls.pop(threading.get_ident())
        frame.f_trace_opcodes = False
        call()
        return 0


class _MonitoringCatcher:
    """The means to call a function on another thread by `sys.monitoring`, for Python 3.12 and later."""

    _EVENTS = ("INSTRUCTION", "PY_START", "PY_RESUME", "PY_THROW", "PY_UNWIND", "RAISE")

    def __init__(self) -> None:
        monitoring: Any = vars(sys)["monitoring"]  # which Python 3.11 lacks
        self._calls: dict[int, tuple[CodeType, Callable[[], object]]] = {}  # by the identity of the thread
        self._monitoring, self._tool = monitoring, next(each for each in range(5, -1, -1) if not monitoring.get_tool(each))
        monitoring.use_tool_id(self._tool, __name__)
        here, *elsewhere = (getattr(monitoring.events, name) for name in self._EVENTS)
        self._here, self._elsewhere = here, sum(elsewhere)
        for event in (here, *elsewhere):
            monitoring.register_callback(self._tool, event, self._goes_on)

    def catch(self, thread: int, _state: int, frame: FrameType, call: Callable[[], object]) -> None:
        """Arrange that `call` is called once on another thread before its next Python instruction."""
        self._calls[thread] = frame.f_code, call
        self._monitoring.set_local_events(self._tool, frame.f_code, self._here)
        self._monitoring.set_events(self._tool, self._elsewhere)

    def _goes_on(self, *_: object) -> None:
        """Call the function of the calling thread, and end the monitoring if no other thread needs it."""
        code, call = self._calls.pop(threading.get_ident(), (None, None))
        if code is None or call is None:
            return
        if all(each is not code for each, _ in self._calls.values()):
            self._monitoring.set_local_events(self._tool, code, 0)
        if not self._calls:
            self._monitoring.set_events(self._tool, 0)
        call()


_way: _TraceCatcher | _MonitoringCatcher | None = None


def thread_state() -> int:
    """Return the address at which Python keeps the state of the calling thread."""
    found: int = _python.PyThreadState_Get()
    return found


def at_next_instruction(thread: threading.Thread, state: int, call: Callable[[], object]) -> bool:
    """Arrange that a function is called once on another thread before its next Python instruction.

    Args:
        thread: The other thread, which must not end meanwhile.
        state: The result of `thread_state` on it.
        call: The function; it must not raise.

    Returns:
        Whether the thread has any instruction of Python left to run.
    """
    global _way  # noqa: PLW0603 - there is one a process
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or thread.ident is None:
        return False
    if _way is None:
        _way = _MonitoringCatcher() if sys.version_info >= (3, 12) else _TraceCatcher()
    _way.catch(thread.ident, state, frame, call)
    return True
