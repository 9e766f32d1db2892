"""Forests: the shape of a tree, and that `check` catches each way to break it."""

import dataclasses

import numpy as np
import pytest

from replay import Marginals
from replay.forest import gather, level_order

MARGINALS = Marginals(np.array([[[1, 2], [3, 4], [5, 6]]]), np.log(np.array([[[0.5, 0.25], [0.8, 0.1], [0.9, 0.05]]])))
# b -> {1, 2}, 1 -> {3, 4}, 2 -> 3, in level order
TREE = gather(MARGINALS, np.array([0, 0, 1, 1, 2]), np.array([1, 1, 2, 2, 2]), np.array([0, 1, 0, 1, 0]))


def test_the_hand_tree():
    assert TREE.token.tolist() == [[-1, 1, 2, 3, 4, 3]]
    assert TREE.parent.tolist() == [[-1, 0, 0, 1, 1, 2]]
    assert TREE.depth.tolist() == [[0, 1, 1, 2, 2, 2]]
    np.testing.assert_allclose(np.exp(TREE.score), [[1, 0.5, 0.25, 0.4, 0.05, 0.2]])
    assert TREE.check().width.tolist() == [5]
    assert TREE.head(2).token.tolist() == [[-1, 1, 2]]
    assert TREE.head(2).check().width.tolist() == [2]


@pytest.mark.parametrize(
    ("field", "column", "value", "rule"),
    [
        ("parent", 3, 4, "a parent does not stand before its child"),
        ("parent", 3, 3, "a parent does not stand before its child"),
        ("parent", 1, -1, "a parent does not stand before its child"),
        ("depth", 3, 3, "a depth is not the parent's plus one"),
        ("score", 3, 0.0, "a child scores above its parent"),
        ("score", 3, np.nan, "a child scores above its parent"),
        ("token", 3, -1, "a node has no token"),
        ("token", 4, 3, "two siblings carry one token"),
    ],
)
def test_check_names_the_broken_rule(field, column, value, rule):
    array = getattr(TREE, field).copy()
    array[0, column] = value
    with pytest.raises(ValueError, match=f"tree 0: {rule}"):
        dataclasses.replace(TREE, **{field: array}).check()


def test_equal_tokens_below_different_parents_are_no_siblings():
    far = Marginals(np.array([[[1, 2], [7, 256 + 7]]]), MARGINALS.logq[:, :2])
    gather(far, np.array([0, 0, 1, 2, 1]), np.array([1, 1, 2, 2, 2]), np.array([0, 1, 1, 1, 0])).check()


def test_check_sees_a_node_behind_the_width():
    with pytest.raises(ValueError, match="behind the width"):
        dataclasses.replace(TREE, width=np.array([4], np.int32)).check()


def test_empty_places_stand_behind_the_real_ones():
    tree = gather(MARGINALS, np.array([[0, 0]]), np.array([[1, 0]]), np.array([[1, 0]])).check()
    assert tree.width.tolist() == [1]
    assert tree.token.tolist() == [[-1, 2, -1]]
    assert tree.score[0, 2] == -np.inf


@pytest.mark.parametrize(
    ("branching", "budget", "depths"),
    [
        ((2,), 5, [1, 1, 2, 2, 2]),
        ((2, 1), 5, [1, 1, 2, 2, 3]),
        ((8,), 99, [1] * 2 + [2] * 4 + [3] * 8),
        ((1,), 2, [1, 2]),
    ],
)
def test_level_order_goes_level_by_level(branching, budget, depths):
    tree = level_order(MARGINALS, branching, budget).check()
    assert tree.depth[0, 1:].tolist() == depths
