"""The mode for fake tensors remembers what PyTorch's own mode makes, the first time and every later one."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from emu.cluster.fake.fake_mode import CachedFakeMode

OPERATORS = {
    "list of views": lambda x: x.unbind(),
    "views of unlike sizes": lambda x: x.split([1, 3]),
    "a part of a view": lambda x: x.t()[1:, ::2],
    "an unsafe view": lambda x: torch.ops.aten._unsafe_view(x, [2, 12]),
    "new": lambda x: x.t().contiguous(),
    "strides kept": lambda x: torch.add(x.t(), 1),
    "in place": lambda x: x.add_(1),
    "the shape changed in place": lambda x: x.unsqueeze_(0),
    "resized": lambda x: x.resize_(2, 2),
    "expanded": lambda x: x[:1].expand(5, 6),
    "several": lambda x: torch.ops.aten.native_layer_norm(x, [6], None, None, 1e-5),
    "of a whole number": lambda x: x.int() + 1,
    "of a fraction": lambda x: x.int() + 1.0,
    "to another dtype": lambda x: x.to(torch.bfloat16),
    "as an output that is given": lambda x: torch.mul(x, x, out=torch.empty(4, 6)),
    "complex": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj(),
}


def made(mode, operator):
    """Return all that can be told of what comes of an operator, and of its input after it."""
    with mode:
        x = torch.empty(4, 6)
        out = operator(x)
    several = [*out] if isinstance(out, (list, tuple)) else [out]
    return type(out), [told(each, x) for each in (*several, x)]


def told(tensor, x):
    storage = tensor.untyped_storage()
    which = (tensor is x, storage._cdata == x.untyped_storage()._cdata, storage.nbytes())
    return which, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device, tensor.is_conj()


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_makes_what_pytorch_makes_each_time(name):
    wanted = made(FakeTensorMode(allow_non_fake_inputs=True), OPERATORS[name])
    assert [made(CachedFakeMode(), OPERATORS[name]) for _ in range(3)] == [wanted] * 3


def test_what_comes_of_inputs_that_share_storage_is_not_what_comes_of_others():
    with CachedFakeMode():
        x, y = torch.empty(4), torch.empty(4)
        for other in (y, x, y):
            out = torch.add(x, 1, out=other)
            assert out is other
