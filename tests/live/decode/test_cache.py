"""What stays after a round: the rows of the committed path, in order, and nothing else."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.live.checks.exact import held  # noqa: E402
from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.decode.sequence import Sequence  # noqa: E402
from castsim.live.models.cache import KeyValueCache  # noqa: E402
from castsim.scoring.tree import Tree  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402

GROUPS, WIDTH, LAYERS = 2, 4, 3


def written(cache, rows, start=0, width=WIDTH):
    """Write rows whose values say which they are."""
    for layer in range(LAYERS):
        keys = torch.arange(start, start + rows, dtype=torch.float32).view(1, 1, -1, 1).expand(1, GROUPS, rows, width)
        cache.update(keys + 1000 * layer, -keys - 1000 * layer, layer)


def numbers(cache, layer=0):
    """Which rows a layer holds."""
    keys, values = cache.rows(layer)
    assert torch.equal(keys, -values) and (keys == keys[:, :1, :, :1]).all()
    return (keys[0, 0, :, 0] - 1000 * layer).int().tolist()


@pytest.mark.parametrize("path", [[0], [0, 1, 2], [0, 3, 7], [0, 2, 3, 12], list(range(13))])
def test_a_commit_keeps_the_path_in_order(path):
    """Scenario 12: A=0, a path that needs no move, one with gaps, and a full accept, from a pass of 13 rows."""
    cache = KeyValueCache(LAYERS, 40)
    written(cache, 5)
    cache.commit(range(5))
    written(cache, 13, start=5)
    cache.commit(path)
    assert cache.length == 5 + len(path)
    assert all(numbers(cache, layer) == [*range(5), *(5 + row for row in path)] for layer in range(LAYERS))


def test_rows_that_were_not_committed_are_written_over():
    cache = KeyValueCache(LAYERS, 20)
    written(cache, 9)
    cache.commit([0, 4])
    written(cache, 3, start=50)
    cache.commit([0, 2])
    assert numbers(cache, 2) == [0, 4, 50, 52]


def test_layers_of_another_shape_have_places_of_their_own():
    cache = KeyValueCache(2, 20)
    for layer, width in ((0, 4), (1, 6)):
        cache.update(torch.ones(1, 2, 5, width), torch.ones(1, 2, 5, width), layer)
    cache.commit([0, 4])
    assert [cache.rows(layer)[0].shape for layer in (0, 1)] == [(1, 2, 2, 4), (1, 2, 2, 6)]
    assert cache.layers_filled == 2 and cache.get_seq_length() == 2


@pytest.fixture(scope="module", params=["dflash", "dart", "sliding"])
def drafter(request, tmp_path_factory):
    """Pairs with room for fifty rounds."""
    torch.set_num_threads(1)
    config = {**(tiny.DART if request.param == "dart" else tiny.DFLASH), "max_position_embeddings": 400}
    more = {"kind": "gemma3", "sliding_window": 16} if request.param == "sliding" else {}
    folder = tmp_path_factory.mktemp(request.param)
    return tiny.loaded(tiny.saved_pair(folder, config, max_position_embeddings=400, **more))


@torch.inference_mode()
def test_caches_equal_a_recomputation_after_rounds_1_10_and_50(drafter):
    """Scenarios 11 and 12: greedy parity cannot see a stale feature; acceptance would only drop."""
    decoder, policy = Decoder(drafter, rank_kept=50), TopN(150, rank_cap=50)  # wide enough for a random head to hit
    sequence = decoder.begin([9, 8, 7, 60, 61], 380, policy, None)
    accepted, moved = set(), []
    real = sequence.cache.commit
    sequence.cache.commit = lambda rows: moved.append(rows[-1] >= len(rows)) or real(rows)
    for number, played in enumerate(decoder.rounds(sequence, policy, None), start=1):
        accepted.add(played.accepted)
        if number in (1, 10, 50):
            fresh = Sequence(drafter, decoder.windows, sequence.tokens, 1, (), 2)
            fresh.prefill()
            for mine, whole in zip(held(sequence), held(fresh), strict=True):
                assert mine.shape == whole.shape and (mine - whole).abs().max() <= 1e-4 * whole.abs().max()
        if number == 50:
            break
    assert number == 50 and {0, 1} <= accepted and True in moved


@torch.inference_mode()
def test_a_context_that_grows_is_the_context_of_the_whole(drafter):
    ids = torch.from_numpy(np.random.default_rng(0).integers(5, 90, (1, 31)))
    _, features = drafter.target.forward(ids[:, :-1], drafter.layer_ids)
    grown = drafter.growing(30)
    for begin, end in ((0, 12), (12, 13), (13, 30)):
        drafter.extend(grown, features[:, begin:end], ids[:, begin + 1 : end + 1])
    whole = drafter.logits(drafter.context(features, ids), ids, torch.tensor([[30]]))[0, 0]
    assert (drafter.draft(grown, ids) - whole).abs().max() < 1e-4 * whole.abs().max()


def test_a_drafter_that_is_the_target_is_always_right(drafter):
    """Scenario 12: a self-draft accepts L in the first round and in the hundredth."""

    class Oracle:
        """Says at each position what the target will say."""

        def __getattr__(self, name):
            return getattr(drafter, name)

        def draft(self, context, tokens):
            sequence = tokens[0, : self.target_length()].tolist()
            logits = torch.full((drafter.depth_max, drafter.target.vocab_size), -50.0)
            for depth in range(drafter.depth_max):
                found = drafter.target.model(torch.tensor([sequence]), use_cache=False).logits[0, -1]
                sequence.append(int(found.argmax()))
                logits[depth, sequence[-1]] = 0.0
            return logits

        token_of = None

    oracle = Oracle()
    decoder = Decoder(drafter)
    object.__setattr__(decoder, "drafter", oracle)
    sequence = decoder.begin([9, 8, 7], 60, TopN(7), None)
    oracle.target_length = lambda: sequence.prefix + 1
    rounds = list(decoder.rounds(sequence, TopN(7), None))
    assert {r.accepted for r in rounds[:-1]} == {drafter.depth_max}


def test_layers_of_another_shape_move_their_own_rows():
    cache = KeyValueCache(2, 20)
    for layer, width in ((0, 4), (1, 6)):
        rows = torch.arange(8.0).view(1, 1, 8, 1).expand(1, 2, 8, width) + 100 * layer
        cache.update(rows, -rows, layer)
    cache.commit([0, 3, 7])
    assert numbers(cache, 0) == [0, 3, 7]
    keys, values = cache.rows(1)
    assert keys[0, 1, :, 5].tolist() == [100, 103, 107] and torch.equal(keys, -values)


@pytest.mark.parametrize("path, writes", [([0], 0), (list(range(13)), 0), ([0, 1, 2], 0), ([0, 3, 7], 1)])
def test_rows_that_stand_where_they_belong_are_not_moved(path, writes):
    """Scenario 12: a full accept of a chain and A=0 are no special cases of a crop."""
    cache = KeyValueCache(LAYERS, 40)
    written(cache, 13)
    block = cache.update(*[torch.zeros(1, GROUPS, 0, WIDTH)] * 2, 0)[0]  # a view of the block, which counts its writes
    before = block._version
    cache.commit(path)
    assert block._version - before == writes and numbers(cache) == path


def begun(drafter, prompt):
    sequence = Sequence(drafter, Decoder(drafter).windows, prompt, 60, (), 20)
    sequence.prefill()
    return sequence


@torch.inference_mode()
@pytest.mark.parametrize("rows", [[0], [0, 3, 7]])
def test_a_packed_pass_leaves_the_rows_of_its_path_and_they_are_a_fresh_prefills(drafter, rows):
    """Scenario 12 with a real pass: rows P, P+3, P+7 of N=12 nodes, in that order."""
    prompt = np.random.default_rng(2).integers(5, 90, 21).tolist()  # past the sliding window
    parent = np.array([-1, 0, 0, 0, 1, 2, 3, 3, 7, 7, 8, 4, 6], np.int32)
    depth = np.array([0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 3, 3], np.int32)
    tree = Tree(np.array([prompt[-1], *range(30, 42)]), parent, depth, np.ones(13))
    sequence = begun(drafter, prompt)
    start = sequence.prefix
    _, features = sequence.read(sequence.packed(tree))
    sequence.cache.length += len(tree)  # a look at the provisional rows
    packed = [[x.clone() for x in sequence.cache.rows(layer)] for layer in range(drafter.target.layers)]
    sequence.cache.length = start
    sequence.commit(tree, rows, 77, features)

    places = [*range(start), *(start + row for row in rows)]
    assert sequence.prefix == start + len(rows) == len(sequence.tokens) - 1
    for layer, both in enumerate(packed):
        assert all(torch.equal(a, b[:, :, places]) for a, b in zip(sequence.cache.rows(layer), both, strict=True))
    for mine, whole in zip(held(sequence), held(begun(drafter, sequence.tokens)), strict=True):
        assert mine.shape == whole.shape and (mine - whole).abs().max() <= 1e-4 * whole.abs().max()


def layered(context):
    """Keys and values (layers, 2, P, G, D) and what else a context of one sequence holds, grown or whole."""
    if hasattr(context, "grown"):
        return [context.grown.rows()]
    if isinstance(context, list):
        return [torch.stack([torch.stack([layer.k[0], layer.v[0]]) for layer in context])]
    return [context.joined, context.residual, *context.keys_values]


@torch.inference_mode()
def test_a_growing_context_holds_what_the_whole_one_holds(drafter):
    """Scenario 11 without a head in between, which could hide a difference."""
    ids = torch.from_numpy(np.random.default_rng(1).integers(5, 90, (1, 61)))
    _, features = drafter.target.forward(ids[:, :-1], drafter.layer_ids)
    grown = drafter.growing(60)
    for begin, end in ((0, 12), (12, 13), (13, 13 + 7), (20, 60)):
        drafter.extend(grown, features[:, begin:end], ids[:, begin + 1 : end + 1])
    for mine, whole in zip(layered(grown), layered(drafter.context(features, ids)), strict=True):
        assert mine.shape == whole.shape and (mine - whole).abs().max() < 1e-5 * max(1, whole.abs().max())
