"""Tokens that have one step and one set of tables are coded together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cachegen.codecs.token_groups import TokenGroup, TokenGroups


def groups_of(places, table_places=None):
    places = np.array(places)
    return TokenGroups(places, places if table_places is None else np.array(table_places))


def test_groups_hold_every_token_once_finest_first():
    groups = groups_of([10, 8, 7, 8, 10, 7, 8])

    assert groups.order.tolist() == [2, 5, 1, 3, 6, 0, 4]
    assert groups.groups == [
        TokenGroup(7, 7, slice(0, 2)),
        TokenGroup(8, 8, slice(2, 5)),
        TokenGroup(10, 10, slice(5, 7)),
    ]


def test_tokens_of_one_step_are_apart_where_their_tables_are():
    groups = groups_of([8, 8, 7, 8, 8], [8, 9, 8, 7, 9])

    assert groups.order.tolist() == [2, 3, 0, 1, 4]
    assert groups.groups == [
        TokenGroup(7, 8, slice(0, 1)),
        TokenGroup(8, 7, slice(1, 2)),
        TokenGroup(8, 8, slice(2, 3)),
        TokenGroup(8, 9, slice(3, 5)),
    ]
    assert [group.num_tokens for group in groups.groups] == [1, 1, 1, 2]


def test_one_token_is_one_group():
    assert groups_of([3]).groups == [TokenGroup(3, 3, slice(0, 1))]


@given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=60))
def test_whatever_the_tokens_each_is_found_in_its_group_and_those_of_a_group_keep_their_order(pairs):
    places, offsets = np.array(pairs).T
    groups = groups_of(places, places + offsets)

    assert groups.columns[groups.order].tolist() == list(range(len(pairs)))
    seen = []
    for group in groups.groups:
        tokens = groups.order[group.tokens]
        assert (np.diff(tokens) > 0).all()
        assert set(zip(places[tokens].tolist(), (places + offsets)[tokens].tolist(), strict=True)) == {
            (group.place, group.table_place)
        }
        seen += tokens.tolist()
    assert sorted(seen) == list(range(len(pairs)))
    kinds = [(group.place, group.table_place) for group in groups.groups]
    assert kinds == sorted(set(kinds))
