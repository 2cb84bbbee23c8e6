"""The section of references: its round trip, and all that its reader refuses, before anything large is allocated."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachegen.codecs.token_references import (
    MODE_WEIGHTS,
    MODES,
    TABLE_OFFSETS,
    TokenReferences,
    join_references,
    no_references,
    read_references,
    step_ratios,
    write_references,
)
from cachegen.errors import FormatError
from cachegen.kernels.prediction import WEIGHT_BITS
from cachegen.kernels.uniform import GRID_STEPS, LEVEL_PLACES, TOKEN_REACH

GRID = len(GRID_STEPS)
# Numbers of 16 bits up to here.
MOST_OF_16_BITS = 1 << 16
FIELDS = ("first", "second", "modes", "table_offsets")
# A mode with either reference alone, and one with both.
NONE, ONE_TAP, BOTH = 0, 1, 5


def read(body, places, num_tokens=None, units=1):
    return read_references(memoryview(body), num_tokens or len(places), units, np.asarray(places), GRID)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in FIELDS)


def body_of(first, second, modes, offsets, num_tokens=None):
    """The section of one unit."""
    parts = (np.array(part) for part in (first, second, [modes], [offsets]))
    return write_references(TokenReferences(*parts), num_tokens or len(first))


@st.composite
def references(draw):
    units, count = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    places = rng.integers(1, GRID - 1, count)
    modes = rng.integers(0, len(MODES), (units, count))
    modes[:, 0] = 0
    first, second = (np.array([rng.integers(0, max(1, at)) for at in range(count)]) for _ in range(2))
    return TokenReferences(first, second, modes, rng.integers(-1, 2, (units, count))), places


@settings(max_examples=100, deadline=None)
@given(made=references(), num_tokens=st.sampled_from([30, MOST_OF_16_BITS, MOST_OF_16_BITS + 1, 1 << 20]))
def test_references_come_back_whatever_the_size_of_their_numbers(made, num_tokens):
    wanted, places = made
    units, count = wanted.modes.shape
    body = write_references(wanted, num_tokens)

    assert len(body) == count * ((4 if num_tokens <= MOST_OF_16_BITS else 8) + units)
    assert same(read(body, places, num_tokens, units), wanted)


def test_numbers_of_32_bits_name_tokens_beyond_16():
    count = MOST_OF_16_BITS + 10
    first, places = np.arange(count), np.full(count, 5, dtype=np.int8)
    first[-1] = count - 2
    modes = np.zeros((1, count), dtype=np.int64)
    modes[0, -1] = 4
    wanted = TokenReferences(first, np.arange(count), modes, np.zeros_like(modes))

    assert same(read(write_references(wanted, count), places), wanted)
    # coded tokens fewer than 2^16 in a chunk of more have numbers of 32 bits too
    part = TokenReferences(np.arange(9), np.arange(9), modes[:, :9], modes[:, :9])
    assert len(write_references(part, count)) == 9 * 9
    with pytest.raises(FormatError, match="81 bytes for 9 coded tokens and 1 units, must be 45"):
        read(write_references(part, count), places[:9], 9)


def test_where_no_token_refers_to_another_every_token_names_itself():
    nothing = no_references(2, 5)
    body = write_references(nothing, 5)

    assert body == np.tile(np.arange(5, dtype="<u2"), 2).tobytes() + bytes([1] * 10)
    assert same(read(body, [3] * 5, units=2), nothing)
    assert len(nothing.predictions(1, np.array([3] * 5), np.arange(5), np.full(5, 7)).ranks) == 0


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("change", [-1, 1, None])
def test_a_section_of_another_length_is_refused(units, change):
    body = write_references(no_references(units, 5), 5)
    edited = b"" if change is None else (body + b"\1" if change > 0 else body[:-1])
    with pytest.raises(FormatError, match=f"{len(edited)} bytes for 5 coded tokens and {units} units, must be"):
        read(edited, [3] * 5, units=units)


@pytest.mark.parametrize("choice", [3 * len(MODES), 3 * len(MODES) + 2, 255])
@pytest.mark.parametrize("unit", [0, 1])
def test_a_mode_that_there_is_not_is_refused(choice, unit):
    body = bytearray(write_references(no_references(2, 5), 5))
    body[20 + 5 * unit + 3] = choice
    with pytest.raises(FormatError, match="coded token 3 is predicted in a way that there is not"):
        read(body, [3] * 5, units=2)


@pytest.mark.parametrize(("place", "offset", "sound"), [(0, -1, False), (0, 0, True), (0, 1, True)])
@pytest.mark.parametrize("end", ["finest", "coarsest"])
def test_tables_outside_the_grid_are_refused(place, offset, sound, end):
    if end == "coarsest":
        place, offset = GRID - 1 - place, -offset
    places = [5, 5, place]
    body = body_of([0, 1, 2], [0, 1, 2], [0, 0, 0], [0, 0, offset])
    if sound:
        assert read(body, places).table_offsets.tolist() == [[0, 0, offset]]
        return
    with pytest.raises(FormatError, match="coded token 2 has tables outside the grid"):
        read(body, places)


@pytest.mark.parametrize("reference", [2, 3, 4, 65535])
@pytest.mark.parametrize("tap", [0, 1])
@pytest.mark.parametrize("mode", [NONE, ONE_TAP, BOTH])
def test_a_reference_that_is_not_before_its_token_is_refused_unless_it_is_the_token_and_not_used(reference, tap, mode):
    named = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    named[tap][2] = reference
    body = body_of(*named, [0, 0, mode, 0, 0], [0] * 5)
    used = MODES[mode][tap] > 0
    if reference == 2 and not used:
        assert (read(body, [3] * 5).first, read(body, [3] * 5).second)[tap][2] == 2
        return
    with pytest.raises(FormatError, match="coded token 2 refers to one that is not before it"):
        read(body, [3] * 5)


def test_a_token_that_names_itself_is_refused_if_any_unit_uses_it():
    own = np.arange(3)
    modes = np.array([[0, 0, 0], [0, 0, 0], [0, 4, 0]])
    body = write_references(TokenReferences(own, own, modes, np.zeros_like(modes)), 3)
    with pytest.raises(FormatError, match="coded token 1 refers to one that is not before it"):
        read(body, [3] * 3, units=3)


def test_the_first_token_refers_to_none():
    with pytest.raises(FormatError, match="coded token 0 refers to one that is not before it"):
        read(body_of([0, 0], [0, 0], [1, 0], [0, 0]), [3, 3])


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_bytes_end_in_an_error_or_in_references_that_lie_before_their_tokens(data):
    count, units = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    places = np.array(data.draw(st.lists(st.integers(0, GRID - 1), min_size=count, max_size=count)))
    body = bytearray(write_references(no_references(units, count), count))
    edits = st.tuples(st.integers(0, len(body) - 1), st.integers(0, 30) | st.integers(0, 255))
    for at, value in data.draw(st.lists(edits, max_size=6)):
        body[at] = value
    try:
        found = read(body, places, units=units)
    except FormatError:
        return

    assert same(read(write_references(found, count), places, units=units), found)
    for unit in range(units):
        predictions = found.predictions(unit, places, np.arange(count), np.full(count, 3))
        own, *taps = predictions.columns.T
        for tap, reference in enumerate(taps):
            assert ((reference < own) | (predictions.weights[:, tap] == 0)).all()
    for groups in found.groups(places):
        assert all(0 <= group.table_place < GRID for group in groups.groups)


def test_weights_are_those_of_the_mode_over_the_ratio_of_steps():
    places = np.array([5, 3, 7, 5], dtype=np.int8)
    weights = step_ratios(places, np.array([[3, 0, 2], [3, 1, 2]]))[:, None] * MODE_WEIGHTS

    assert weights.shape == (2, len(MODES), 2)
    one = 1 << WEIGHT_BITS
    assert weights[0, 4].tolist() == [one, 0]
    # half the step, so half the weight; twice the step, so twice
    assert weights[1, 8].tolist() == [one * 38 // 128, one * 38 // 32]
    for mode, (first, second) in enumerate(MODES):
        assert weights[0, mode].tolist() == [first * one // 64, second * one // 32]


def test_no_two_tokens_of_a_chunk_are_further_apart_than_weights_reach():
    reach = 2 * TOKEN_REACH
    places = np.array([LEVEL_PLACES[-1] - TOKEN_REACH, LEVEL_PLACES[-1] + TOKEN_REACH], dtype=np.int8)
    weights = step_ratios(places, np.array([[0, 1, 1], [1, 0, 0]]))[:, None] * MODE_WEIGHTS

    assert places[1] - places[0] == reach
    # steps of half octaves
    assert weights[:, 4, 0].tolist() == [(1 << WEIGHT_BITS) * 4, (1 << WEIGHT_BITS) // 4]
    assert weights.max() <= 1 << 17
    assert weights.min() >= 0


def test_references_of_a_unit_are_those_of_tokens_that_take_something_by_their_columns():
    wanted = TokenReferences(
        np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([[0, 4, 0], [0, 0, 5]]), np.zeros((2, 3), dtype=np.int64)
    )
    places, columns, ranks = np.full(3, 4, dtype=np.int8), np.array([2, 0, 1]), np.array([9, 8, 7], dtype=np.int32)
    of_units = [wanted.predictions(unit, places, columns, ranks) for unit in (0, 1)]

    assert [each.columns.tolist() for each in of_units] == [[[0, 2, 0]], [[1, 0, 2]]]
    assert [each.ranks.tolist() for each in of_units] == [[8], [7]]
    assert of_units[0].weights.tolist() == [[1 << WEIGHT_BITS, 0]]
    assert all(part.dtype == np.int32 for part in (of_units[0].columns, of_units[0].weights, of_units[0].ranks))


def test_a_section_that_lies_about_its_length_costs_nothing():
    places = np.full(1 << 20, 5, dtype=np.int8)
    tracemalloc.start()
    with pytest.raises(FormatError, match="9 bytes for 1048576 coded tokens and 500 units"):
        read(bytes(9), places, units=500)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1 << 16


def test_reading_takes_a_few_times_what_references_take_themselves():
    count, units = 20_000, 4
    body = write_references(no_references(units, count), count)
    places = np.full(count, 5, dtype=np.int8)
    tracemalloc.start()
    found = read(body, places, units=units)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    kept = sum(getattr(found, name).nbytes for name in FIELDS)
    # what is kept is a byte or two each; comparing takes masks of a few bytes
    assert kept < 3 * len(body)
    assert peak < 8 * len(body)


def test_offsets_are_by_one_place_as_profiles_have_tables_for():
    assert TABLE_OFFSETS == (-1, 0, 1)


def test_parts_refer_to_their_own_tokens_and_join_to_what_they_were():
    first, second = np.array([0, 0, 0, 2, 1, 2]), np.array([0, 1, 2, 3, 4, 0])
    modes = np.array([[0, ONE_TAP, 0, ONE_TAP, ONE_TAP, BOTH]])
    whole = TokenReferences(first, second, modes, np.array([[0, 1, -1, 0, 1, 0]]))
    parts = [np.array([0, 2, 3, 5]), np.array([1, 4])]
    own = TokenReferences(np.array([0, 0]), np.array([0, 1]), modes[:, [1, 4]] * [0, 1], whole.table_offsets[:, [1, 4]])
    # token 1 takes of token 0, which is in the other part
    with pytest.raises(FormatError, match="coded token 1 refers to one that is not coded with it"):
        whole.of(parts[1])
    modes[0, 1] = NONE

    assert same(
        whole.of(parts[0]),
        TokenReferences(
            np.array([0, 0, 1, 1]), np.array([0, 1, 2, 0]), modes[:, [0, 2, 3, 5]], whole.table_offsets[:, [0, 2, 3, 5]]
        ),
    )
    assert same(whole.of(parts[1]), own)
    joined = join_references([(part, whole.of(part)) for part in parts])
    # but for the reference that nothing is taken of
    assert joined.first.tolist() == [0, 1, 0, 2, 1, 2]
    assert joined.second.tolist() == second.tolist()
    assert np.array_equal(joined.modes, modes)
    assert np.array_equal(joined.table_offsets, whole.table_offsets)
