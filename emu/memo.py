"""Results of methods that are kept with their object, so that none is worked out twice."""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def kept_by(key: Callable[..., Hashable]) -> Callable[[F], F]:
    """Return a decorator that keeps the results of a method with its object.

    Args:
        key: A function of the object and the arguments; where it gives equal values, the results are equal.
    """

    def keeping(method: F) -> F:
        @wraps(method)
        def kept(self: object, *args: Any) -> Any:
            known, asked = vars(self).setdefault(f"kept results of {method.__name__}", {}), key(self, *args)
            if asked not in known:
                known[asked] = method(self, *args)
            return known[asked]

        return cast("F", kept)

    return keeping
