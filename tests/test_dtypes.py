"""Facts about element types that are known without torch are those that torch tells."""

import pytest
import torch

from emu import dtypes
from emu.backend.executor.reductions import FOLDS, check_reduces
from emu.dtypes import DTYPES, REDUCE_OPERATIONS, item_bytes, reductions_of
from emu.errors import InputError


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_has_the_bytes_and_the_reductions_that_torch_gives_it(name: str) -> None:
    found = getattr(torch, name)
    assert item_bytes(name) == torch.zeros(1).to(found).element_size()
    for reduce in REDUCE_OPERATIONS:
        refusals = [refusal(check_reduces, found, reduce), refusal(dtypes.check_reduces, name, reduce, reductions_of(name))]
        assert refusals[0] == refusals[1]
        assert (reduce in reductions_of(name)) == (not refusals[0])


def refusal(check, *args) -> str:
    try:
        check("here", *args)
    except InputError as error:
        return str(error)
    return ""


def test_the_reduce_operations_are_those_that_the_executor_folds_by() -> None:
    assert tuple(FOLDS) == REDUCE_OPERATIONS


def test_another_dtype_is_refused() -> None:
    with pytest.raises(InputError, match="no dtype is called 'float23'; did you mean float32"):
        item_bytes("float23")
