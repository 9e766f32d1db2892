"""What stays after a round: the rows of the committed path, in order, and nothing else."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.checks.exact import held  # noqa: E402
from castsim.decode.loop import Decoder  # noqa: E402
from castsim.decode.sequence import Sequence  # noqa: E402
from castsim.models.cache import KeyValueCache  # noqa: E402
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
