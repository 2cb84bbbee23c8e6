import numpy as np
import pytest
import torch

from cachegen.codecs.rotary import Rotary, no_rotary
from cachegen.errors import FormatError


def rotary(of_layer=(0, 1), frequencies=((-1, -0.5, 1, 0.5, 0), (0, 0, 0, 0, 0)), partners=((2, 3, 0, 1, 4), range(5))):
    return Rotary(
        np.array(of_layer, np.uint8),
        np.array(frequencies, np.float32),
        np.array([list(p) for p in partners], np.uint16),
    )


def test_turning_is_that_of_the_pairs_and_is_undone_by_the_opposite_position():
    keys = torch.randn(2, 3, 2, 5, generator=torch.Generator().manual_seed(0))
    positions = np.array([0, 3, 50_000])
    turned = rotary().apply(keys, positions)

    angle = torch.tensor(3.0)
    expected = keys[0, 1, :, 0] * angle.cos() - keys[0, 1, :, 2] * angle.sin()
    torch.testing.assert_close(turned[0, 1, :, 0], expected)
    torch.testing.assert_close(rotary().apply(turned, -positions), keys)
    assert torch.equal(turned[1], keys[1])
    assert torch.equal(turned[..., 4], keys[..., 4])


def test_no_rotary_changes_nothing():
    keys = torch.randn(2, 3, 1, 4)

    assert torch.equal(no_rotary(2, 4).apply(keys, np.arange(3)), keys)


@pytest.mark.parametrize(
    "change",
    [
        {"of_layer": (0, 2)},
        {"of_layer": ()},
        {"partners": ((2, 3, 0, 1, 5), range(5))},
        {"partners": ((2, 3, 1, 0, 4), range(5))},
        {"frequencies": ((-1, -0.5, 1, 0.5, 0.1), (0, 0, 0, 0, 0))},
        {"frequencies": ((-1, float("nan"), 1, 0.5, 0), (0, 0, 0, 0, 0))},
        {"frequencies": ((-1, -0.5, 1, 0.5), (0, 0, 0, 0))},
    ],
)
def test_what_is_no_rotation_is_refused(change):
    with pytest.raises(FormatError, match="rotary"):
        rotary(**change)
