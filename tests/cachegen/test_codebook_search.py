"""The search for the codebook's entries that explain a chunk's tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_codebook import CHANNELS, RANKS, codebook_of

from cachegen.codecs.basis import Basis
from cachegen.codecs.codebook_search import CodebookSearch


def bases_of(ranks=RANKS):
    """Orthonormal rows for each unit."""
    rng = torch.Generator().manual_seed(1)
    rows = [torch.linalg.qr(torch.randn((CHANNELS, CHANNELS), generator=rng))[0][:r].half().numpy() for r in ranks]
    return [Basis.of_one_block(each, halves=2) for each in rows]


def units_of(codebook, entries, noise=0.0):
    """Channels of each unit that follow from the entries of a chunk's tokens."""
    rng = torch.Generator().manual_seed(2)
    own = torch.from_numpy(codebook.own[entries]).float()
    made = [own @ torch.from_numpy(predictor[: own.shape[1]]).float() for predictor in codebook.predictors]
    return [x + noise * torch.randn(x.shape, generator=rng) for x in made]


# with 100 features, those that tell entries apart are looked at first
@pytest.mark.parametrize(("own", "noise"), [(6, 0.0), (6, 5.0), (100, 5.0)])
def test_entries_that_made_the_channels_are_found_wherever_they_stand(own, noise):
    codebook = codebook_of(20_000, own)
    # they are compared 8,192 at a time
    entries = np.array([0, 8191, 8192, 8193, 16_383, 16_384, 19_999, 5, 8191])

    chosen = CodebookSearch(codebook, bases_of()).entries(units_of(codebook, entries, noise))
    assert chosen.dtype == np.int64
    assert chosen.tolist() == entries.tolist()


def test_the_unit_whose_coefficients_are_small_otherwise_decides():
    for energies, wanted in (((1e-3, 1e6), 3), ((1e6, 1e-3), 30)):
        codebook = codebook_of(energies=energies)
        first, second = (units_of(codebook, np.array([entry])) for entry in (3, 30))
        assert CodebookSearch(codebook, bases_of()).entries([first[0], second[1]]).tolist() == [wanted]


def test_directions_that_no_coefficient_describes_are_not_looked_at():
    codebook = replace(codebook_of(), energies=tuple(np.full(1, 1.0, np.float32) for _ in RANKS))
    bases = bases_of((1, 1))
    units = units_of(codebook, np.arange(40))
    search = CodebookSearch(codebook, bases)
    unseen = [torch.randn(x.shape) for x in units]
    unseen = [x - basis.restore(basis.project(x)) for x, basis in zip(unseen, bases, strict=True)]

    assert np.array_equal(search.entries(units), search.entries([x + u for x, u in zip(units, unseen, strict=True)]))


def test_values_beyond_all_numbers_still_have_an_entry_and_leave_other_tokens_theirs():
    codebook = codebook_of()
    units = units_of(codebook, np.array([4, 5, 6, 7]))
    units[0][1], units[1][2] = 3e38, torch.nan
    chosen = CodebookSearch(codebook, bases_of()).entries(units)

    assert (chosen[0], chosen[3]) == (4, 7)
    assert bool((chosen >= 0).all())
    assert bool((chosen < 40).all())
