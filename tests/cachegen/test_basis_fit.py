"""Which bases a covariance gets where its unit has several blocks, and how near they come to one of all channels."""

import numpy as np
import pytest
import torch

from cachegen import basis_fit
from cachegen.basis_fit import SHRINK_TOKENS, channels_by_energy, fit_basis
from cachegen.codecs.basis import block_channels

HEAD_DIM, HEADS = 4, 6
# so many that nothing is drawn towards the diagonal
ENDLESS = 10**9


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Of two heads that have keys and values, or of four that have either."""
    monkeypatch.setattr(basis_fit, "BLOCK_CHANNELS", 4 * HEAD_DIM)


def random_covariance(channels, factors=8, seed=0):
    """Of channels that share a few factors, each has something of its own, and all differ in size."""
    rng = torch.Generator().manual_seed(seed)
    loadings = torch.randn((channels, factors), generator=rng)
    sizes = torch.exp(0.5 * torch.randn(channels, generator=rng))
    own = 0.1 + torch.rand(channels, generator=rng)
    return (loadings @ loadings.T + torch.diag(own)) * sizes[:, None] * sizes


def fitted(covariance, halves=2, num_tokens=ENDLESS, head_dim=HEAD_DIM):
    basis, energies = fit_basis(covariance, halves, head_dim, num_tokens)
    basis.check()
    return basis, energies


def widths_of(basis):
    return [rows.shape[1] for rows in basis.blocks]


def matrix_of(basis):
    """Rows of the product of both stages."""
    return basis.restore(torch.eye(basis.rank)).double()


def in_blocks(covariance, basis):
    """The covariance of each block's channels."""
    return [covariance[at][:, at] for at in block_channels(widths_of(basis), basis.halves)]


@pytest.mark.parametrize(
    ("heads", "halves", "room", "widths"),
    [
        (6, 2, 16, [16, 16, 16]),
        (7, 2, 24, [16, 16, 24]),
        (7, 2, 23, [8, 16, 16, 16]),
        (7, 1, 24, [12, 16]),
        (9, 1, 16, [12, 12, 12]),
        (3, 2, 24, [24]),
        (3, 2, 23, [8, 16]),
        # one head has no room
        (3, 2, 7, [8, 8, 8]),
        (1, 2, 1, [8]),
    ],
)
def test_blocks_are_whole_heads_as_equal_as_possible_and_as_few_as_have_room(monkeypatch, heads, halves, room, widths):
    monkeypatch.setattr(basis_fit, "BLOCK_CHANNELS", room)
    basis, energies = fitted(random_covariance(heads * halves * HEAD_DIM), halves)

    assert widths_of(basis) == widths
    assert basis.rank == len(energies) == sum(widths)
    assert basis.halves == halves


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("num_tokens", [1, 100, ENDLESS])
def test_rows_are_orthonormal_and_energies_are_the_falling_variances_of_what_they_give(halves, num_tokens):
    covariance = random_covariance(HEADS * HEAD_DIM * 2)
    basis, energies = fitted(covariance, halves, num_tokens)
    rows, share = matrix_of(basis), 1 / (1 + num_tokens / (SHRINK_TOKENS * len(covariance)))
    shrunk = (1 - share) * covariance + share * torch.diag(torch.diagonal(covariance))
    of_rows = rows @ shrunk.double() @ rows.T

    assert len(basis.blocks) == 3
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(covariance)).double(), atol=2e-3, rtol=0)
    assert energies.dtype == np.float64
    assert bool((np.diff(energies) <= 0).all())
    torch.testing.assert_close(
        torch.diagonal(of_rows), torch.from_numpy(energies), rtol=5e-3, atol=1e-5 * float(energies[0])
    )


@pytest.mark.parametrize("halves", [1, 2])
def test_the_joint_basis_leaves_nothing_that_its_coefficients_share(halves):
    covariance = random_covariance(HEADS * HEAD_DIM * 2)
    basis, energies = fitted(covariance, halves)
    mixed = matrix_of(basis)[torch.from_numpy(basis.sources) == 0]
    of_joint = mixed @ covariance.double() @ mixed.T

    assert len(of_joint) == len(covariance) // 2
    assert float((of_joint - torch.diag(torch.diagonal(of_joint))).abs().max()) < 1e-3 * energies[0]


def test_leads_are_the_half_of_all_blocks_coefficients_with_the_most_energy():
    covariance = random_covariance(HEADS * HEAD_DIM * 2)
    # the last block has a tenth of the energy
    quiet = block_channels([16, 16, 16], 2)[2]
    covariance[quiet] *= 0.1**0.5
    covariance[:, quiet] *= 0.1**0.5
    basis, _ = fitted(covariance)
    parts = zip(basis.blocks, in_blocks(covariance, basis), strict=True)
    energies = [
        torch.diagonal(torch.from_numpy(rows).float() @ own @ torch.from_numpy(rows).float().T) for rows, own in parts
    ]

    assert basis.leads.sum() == basis.joint.shape[0] == basis.joint.shape[1] == 24
    assert basis.leads[2] < basis.leads[:2].min()
    least = min(float(of_block[lead - 1]) for of_block, lead in zip(energies, basis.leads, strict=True) if lead)
    most = max(float(of_block[lead]) for of_block, lead in zip(energies, basis.leads, strict=True) if lead < 16)
    assert least >= 0.99 * most


@pytest.mark.parametrize("halves", [1, 2])
def test_a_direction_that_all_blocks_share_ends_in_one_joint_coefficient(halves):
    channels = HEADS * HEAD_DIM * 2
    own = torch.linspace(0.5, 1.0, channels)
    direction = torch.randn(channels, generator=torch.Generator().manual_seed(3))
    direction /= direction.norm()
    basis, energies = fitted(torch.diag(own) + 100 * torch.outer(direction, direction), halves)

    assert len(basis.blocks) == 3
    assert basis.sources[0] == 0
    assert abs(float(matrix_of(basis)[0] @ direction.double())) > 0.999
    assert energies[0] == pytest.approx(100.75, rel=0.005)
    # the blocks have a third of it each
    assert energies[1] < 1.1


@pytest.mark.parametrize("halves", [1, 2])
def test_blocks_that_share_nothing_are_not_mixed(halves):
    channels = HEADS * HEAD_DIM * 2
    covariance = torch.zeros(channels, channels)
    at_of = block_channels([16, 16, 16], halves)
    for seed, at in enumerate(at_of):
        covariance[at[:, None], at] = random_covariance(16, seed=seed)
    basis, energies = fitted(covariance, halves)
    shares = torch.stack([matrix_of(basis)[:, at].square().sum(dim=1) for at in at_of])

    assert float(shares.max(dim=0).values.min()) > 0.99
    of_all = torch.linalg.eigvalsh(covariance).flip(0)
    assert energies == pytest.approx(of_all.numpy(), rel=1e-3, abs=1e-5 * energies[0])


def test_a_block_has_keys_and_values_of_the_same_heads():
    channels = HEADS * HEAD_DIM * 2
    direction = torch.zeros(channels)
    # a key's element, and the same of its head's value
    direction[[1, channels // 2 + 1]] = 0.5**0.5
    covariance = 0.1 * torch.eye(channels) + torch.outer(direction, direction)
    (joint, _), (apart, _) = fitted(covariance, 2), fitted(covariance, 1)

    # behind 8 of keys
    assert np.abs(joint.blocks[0][0, [1, 9]]) == pytest.approx(0.5**0.5, abs=1e-3)
    # of keys alone
    assert np.abs(apart.blocks[0][0, 1]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("halves", [1, 2])
def test_channels_that_never_change_have_a_basis_and_no_energy(halves):
    channels = HEADS * HEAD_DIM * 2
    basis, energies = fitted(torch.zeros(channels, channels), halves, num_tokens=5)

    assert len(basis.blocks) == 3
    assert not energies.any()
    torch.testing.assert_close(matrix_of(basis) @ matrix_of(basis).T, torch.eye(channels).double(), atol=2e-3, rtol=0)


def test_what_rounding_leaves_below_zero_is_no_energy():
    direction = torch.randn(HEADS * HEAD_DIM * 2, generator=torch.Generator().manual_seed(4))
    _, energies = fitted(torch.outer(direction, direction))

    assert energies[0] == pytest.approx(float(direction.square().sum()), rel=1e-3)
    assert bool((energies >= 0).all())
    assert float(energies[1]) < 1e-4 * energies[0]


def test_two_stages_gain_more_than_blocks_alone_and_nearly_what_one_basis_of_all_does():
    covariance = random_covariance(HEADS * HEAD_DIM * 2)
    basis, energies = fitted(covariance)
    alone = sum(torch.linalg.slogdet(own.double()).logabsdet for own in in_blocks(covariance, basis))
    of_all = torch.linalg.slogdet(covariance.double()).logabsdet
    in_stages = np.log(energies).sum()

    assert float(of_all) < in_stages < float(alone)
    assert in_stages - float(of_all) < 0.3 * float(alone - of_all)


def test_a_unit_with_room_for_all_heads_has_the_basis_of_all(monkeypatch):
    monkeypatch.setattr(basis_fit, "BLOCK_CHANNELS", 48)
    covariance = random_covariance(HEADS * HEAD_DIM * 2)
    basis, energies = fitted(covariance)
    rows = matrix_of(basis)

    assert len(basis.blocks) == 1
    assert basis.joint.shape == (0, 0)
    assert energies == pytest.approx(torch.linalg.eigvalsh(covariance).flip(0).numpy(), rel=1e-3)
    of_rows = rows @ covariance.double() @ rows.T
    torch.testing.assert_close(
        torch.diagonal(of_rows), torch.from_numpy(energies), rtol=5e-3, atol=1e-5 * float(energies[0])
    )


def test_channels_by_energy_are_one_block_of_the_channels_themselves():
    covariance = random_covariance(16)
    basis, energies = channels_by_energy(covariance, 2)
    x = torch.randn((3, 16), generator=torch.Generator().manual_seed(1))
    order = torch.diagonal(covariance).argsort(descending=True)

    basis.check()
    assert torch.equal(basis.project(x), x[:, order].T)
    assert energies == pytest.approx(torch.diagonal(covariance)[order].numpy())
