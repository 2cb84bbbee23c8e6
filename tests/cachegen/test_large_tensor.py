"""Memory of large tensors: a tensor as any other, whatever the shape, type and device."""

import pytest
import torch

from cachegen.large_tensor import new_tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int16])
@pytest.mark.parametrize("shape", [(2, 3, 5), (7,), (), (0, 3), (1 << 20, 3)])
def test_it_is_contiguous_and_holds_what_is_written(shape, dtype):
    tensor = new_tensor(shape, dtype, "cpu")
    assert (tuple(tensor.shape), tensor.dtype, tensor.device.type) == (shape, dtype, "cpu")
    assert tensor.is_contiguous()
    assert tensor.stride() == torch.empty(shape, dtype=dtype).stride()
    tensor.fill_(3)
    assert bool((tensor == 3).all())


def test_it_is_on_the_device_that_is_asked_for_whatever_the_default_one():
    assert new_tensor((2, 3), torch.float32, "meta").device.type == "meta"
    with torch.device("meta"):
        assert new_tensor((2, 3), torch.float32, torch.device("cpu")).device.type == "cpu"


def test_what_was_made_without_gradients_takes_part_in_them_later():
    with torch.no_grad():
        tensor = new_tensor((2, 3), torch.float32, "cpu")
    weight = torch.ones(3, requires_grad=True)
    # which a view that was made so refuses
    tensor[0] = weight
    tensor.sum().backward()
    assert weight.grad.tolist() == [1, 1, 1]


def test_it_lives_as_long_as_something_refers_to_it():
    row = new_tensor((1 << 18, 4), torch.float32, "cpu").fill_(1)[-1]
    for _ in range(4):
        new_tensor((1 << 18, 4), torch.float32, "cpu").fill_(2)
    assert row.tolist() == [1, 1, 1, 1]
