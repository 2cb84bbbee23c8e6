"""A unit's basis in two stages against the one matrix that it is, whose elements are multiples of a quarter.

Products with whole numbers are exact then, in whatever order they are added up.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cachegen.codecs.basis import Basis, block_channels
from cachegen.errors import FormatError

# widths and rows of each block, leads of each, rows of the joint basis
MIXED = ((8, 12, 6), (6, 9, 6), (3, 4, 1), 5)
NO_LEADS = ((8, 12, 6), (6, 9, 6), (0, 0, 0), 0)
ONE_BLOCK_LEADS = ((4, 6), (4, 5), (0, 5), 4)
ALL_LEAD = ((4, 2), (3, 2), (3, 2), 5)
ONE_BLOCK = ((14,), (9,), (0,), 0)
FORMS = [MIXED, NO_LEADS, ONE_BLOCK_LEADS, ALL_LEAD, ONE_BLOCK]


def quarters(rng, *shape):
    return (rng.integers(-4, 5, shape) / 4).astype(np.float16)


def make_basis(form=MIXED, halves=2):
    """Of random elements, with coefficients in any order."""
    widths, rows, leads, of_joint = form
    rng = np.random.default_rng(7)
    blocks = tuple(quarters(rng, *shape) for shape in zip(rows, widths, strict=True))
    others = np.repeat(np.arange(1, 1 + len(rows)), np.subtract(rows, leads))
    sources = rng.permutation([*others, *[0] * of_joint]).astype(np.uint8)
    joint = quarters(rng, of_joint, sum(leads))
    return Basis(blocks, np.array(leads, dtype=np.int32), joint, sources, halves)


def channels_of_block(widths, halves, block):
    """A block's part of the keys, then its part of the values."""
    before, width = sum(widths[:block]) // halves, widths[block] // halves
    return [half * sum(widths) // halves + before + i for half in range(halves) for i in range(width)]


def matrix_of(basis, form, halves):
    """Rows of the product of both stages, coefficient by coefficient."""
    widths, _, leads, _ = form
    lead_rows: list[np.ndarray] = []
    other_rows = []
    for index, block in enumerate(basis.blocks):
        wide = np.zeros((len(block), sum(widths)))
        wide[:, channels_of_block(widths, halves, index)] = block
        lead_rows.extend(wide[: leads[index]])
        other_rows.append(iter(wide[leads[index] :]))
    mixed = basis.joint.astype(np.float64) @ np.array(lead_rows).reshape(len(lead_rows), sum(widths))
    rows_of = [iter(mixed), *other_rows]
    return torch.from_numpy(np.array([next(rows_of[source]) for source in basis.sources])).float()


def whole_numbers(*shape):
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(1)).float()


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_coefficients_are_products_with_the_matrix_that_both_stages_make(form, halves):
    basis = make_basis(form, halves)
    x = whole_numbers(11, sum(form[0]))

    basis.check()
    assert torch.equal(basis.project(x), matrix_of(basis, form, halves) @ x.T)


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_restoring_multiplies_by_the_transposed_matrix(form, halves):
    basis = make_basis(form, halves)
    y = whole_numbers(basis.rank, 11)

    assert torch.equal(basis.restore(y), y.T @ matrix_of(basis, form, halves))


@pytest.mark.parametrize("form", FORMS)
def test_a_prefix_has_exactly_the_first_coefficients(form):
    basis = make_basis(form)
    x, y = whole_numbers(11, sum(form[0])), whole_numbers(basis.rank, 11)
    matrix = matrix_of(basis, form, 2)
    for rank in range(1, basis.rank + 1):
        prefix = basis.prefix(rank)

        prefix.check()
        assert prefix.rank == rank
        assert torch.equal(prefix.project(x), basis.project(x)[:rank])
        assert torch.equal(prefix.restore(y[:rank]), y[:rank].T @ matrix[:rank])


def test_a_prefix_of_all_coefficients_is_the_basis():
    basis = make_basis()
    same = basis.prefix(basis.rank)

    assert all(np.array_equal(a, b) for a, b in zip(basis.blocks, same.blocks, strict=True))
    assert all(np.array_equal(getattr(basis, name), getattr(same, name)) for name in ("leads", "joint", "sources"))


def test_a_prefix_without_a_joint_coefficient_keeps_no_lead():
    form = ((4, 6), (4, 5), (2, 1), 3)
    basis = replace(make_basis(form), sources=np.array([2, 1, 2, 0, 0, 2, 1, 2, 0], dtype=np.uint8))
    prefix, longer = basis.prefix(3), basis.prefix(4)

    assert prefix.leads.tolist() == [0, 0]
    assert prefix.joint.shape == (0, 0)
    assert [len(block) for block in prefix.blocks] == [1, 2]
    assert longer.leads.tolist() == [2, 1]
    assert longer.joint.shape == (1, 3)
    assert [len(block) for block in longer.blocks] == [3, 3]


def test_a_basis_of_one_block_is_its_matrix():
    rows = quarters(np.random.default_rng(2), 5, 8)
    basis = Basis.of_one_block(rows, halves=2)
    x = whole_numbers(3, 8)

    basis.check()
    assert basis.rank == 5
    assert torch.equal(basis.project(x), torch.from_numpy(rows).float() @ x.T)
    assert np.array_equal(basis.prefix(2).blocks[0], rows[:2])


@pytest.mark.parametrize(
    ("halves", "expected"),
    [(1, [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]), (2, [[0, 1, 5, 6], [2, 3, 4, 7, 8, 9]])],
)
def test_a_block_has_its_part_of_each_half(halves, expected):
    assert [channels.tolist() for channels in block_channels([4, 6], halves)] == expected


def with_element(array, value):
    array = array.copy()
    array.flat[len(array.flat) // 2] = value
    return array


def with_block(basis, edit, index=1):
    blocks = list(basis.blocks)
    blocks[index] = edit(blocks[index])
    return replace(basis, blocks=tuple(blocks))


def with_leads(*leads):
    return lambda basis: replace(basis, leads=np.array(leads, dtype=np.int32))


def with_sources(edit):
    return lambda basis: replace(basis, sources=edit(basis.sources))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda basis: replace(basis, joint=basis.joint.astype(np.float32)), r"^joint is float32 \(5, 8\)$"),
        (lambda basis: replace(basis, joint=basis.joint.ravel()), r"^joint is float16 \(40,\)$"),
        (lambda basis: replace(basis, joint=with_element(basis.joint, np.nan)), "^joint is not orthonormal$"),
        (lambda basis: replace(basis, joint=with_element(basis.joint, 1.02)), "^joint is not orthonormal$"),
        (lambda basis: with_block(basis, lambda rows: rows.astype(np.float64)), r"^block 1 is float64 \(9, 12\)$"),
        (lambda basis: with_block(basis, lambda rows: rows[None]), r"^block 1 is float16 \(1, 9, 12\)$"),
        (lambda basis: with_block(basis, lambda rows: with_element(rows, np.nan)), "^block 1 is not orthonormal$"),
        (lambda basis: with_block(basis, lambda rows: with_element(rows, -1.02), 2), "^block 2 is not orthonormal$"),
        (lambda basis: with_block(basis, lambda rows: with_element(rows, np.inf), 0), "^block 0 is not orthonormal$"),
        (with_leads(-1, 8, 1), "^block 0 has -1 leads"),
        (with_leads(3, 5), r"^leads are int32 \(2,\), of 3 blocks"),
        (with_leads([3, 4, 1]), r"^leads are int32 \(1, 3\), of 3 blocks"),
        (lambda basis: replace(basis, leads=basis.leads.astype(np.int64)), "^leads are int64"),
        # more leads than a block has rows, all of them together as many as there are
        (with_leads(7, 0, 1), "^block 0 has 7 leads of 6 rows"),
        # 8 in all, in 32 bits
        (with_leads(2**31 - 1, 2**31 - 1, 10), "^block 0 has 2147483647 leads of 6 rows$"),
        (with_leads(3, 4, 0), r"^joint is \(5, 8\), of 7 leads$"),
        (with_leads(0, 0, 0), r"^joint is \(5, 8\), of 0 leads$"),
        (lambda basis: replace(basis, joint=basis.joint[:0]), r"^joint is \(0, 8\), of 8 leads$"),
        (
            lambda basis: with_leads(0, 0, 0)(replace(basis, joint=basis.joint[:, :0])),
            "^joint has 5 rows of 0 elements$",
        ),
        (lambda basis: with_block(basis, lambda rows: np.tile(rows, (2, 1)), 0), "^block 0 has 12 rows of 8 elements$"),
        (with_sources(lambda sources: sources.astype(np.int64)), "^sources are int64"),
        (with_sources(lambda sources: sources[None]), r"^sources are uint8 \(1, 18\)$"),
        (with_sources(lambda sources: sources[:-1]), "^sources occur .* times, there are"),
        (with_sources(lambda sources: np.append(sources, np.uint8(2))), "^sources occur .* times, there are"),
        (
            with_sources(lambda sources: np.where(sources == 3, np.uint8(0), sources)),
            r"^sources occur \[10, 3, 5, 0\] ",
        ),
        (
            with_sources(lambda sources: np.where(sources == 3, np.uint8(4), sources)),
            r"^sources occur .*, 0, 5\] times",
        ),
        (with_sources(lambda sources: np.append(sources, np.uint8(255))), "^sources occur .* times, there are"),
        (lambda basis: with_block(basis, lambda rows: rows[:-1]), r"there are \[5, 3, 4, 5\] rows"),
    ],
)
def test_arrays_that_are_no_basis_are_refused_by_what_is_wrong_with_them(edit, message):
    basis = make_basis()

    basis.check()
    with pytest.raises(FormatError, match=message):
        edit(basis).check()


def test_elements_that_rounding_may_leave_above_one_are_accepted():
    basis = make_basis()
    replace(basis, joint=with_element(basis.joint, -1.009)).check()
