"""Both caches after rounds that accept nothing, everything, and paths with gaps between their rows."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.live.checks.exact import held  # noqa: E402
from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.decode.sequence import Sequence  # noqa: E402
from castsim.live.decode.walk import RandomDice  # noqa: E402
from castsim.live.models.sampling import Sampling  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402

PROMPT = [9, 8, 7, 60, 61]
POLICY = TopN(31)


@pytest.fixture(scope="module", params=["dflash", "dart", "sliding"])
def pair(request, tmp_path_factory):
    """A pair with room for fifty rounds, and the target's output."""
    torch.set_num_threads(1)
    config = {**(tiny.DART if request.param == "dart" else tiny.DFLASH), "max_position_embeddings": 400}
    more = {"kind": "gemma3", "sliding_window": 16, "tie_word_embeddings": False} if request.param == "sliding" else {}
    folder = tmp_path_factory.mktemp(request.param)
    drafter = tiny.loaded(tiny.saved_pair(folder, config, max_position_embeddings=400, **more))
    if drafter.token_of is not None:  # a target that keeps to the draft vocabulary
        mute = torch.ones(drafter.target.vocab_size, dtype=torch.bool)
        mute[drafter.token_of] = False
        drafter.target.model.lm_head.weight.data[mute] = 0.0
    decoder = Decoder(drafter)
    sequence = decoder.begin(PROMPT, 270, None, None)
    list(decoder.rounds(sequence, None, None))
    return drafter, sequence.output


def assert_as_if_read_at_once(decoder, sequence):
    fresh = Sequence(decoder.drafter, decoder.windows, sequence.tokens, 1, (), 2)
    fresh.prefill()
    drafted = decoder.drafter.length
    assert drafted == sequence.prefix == len(sequence.tokens) - 1
    for mine, whole in zip(held(sequence), held(fresh), strict=True):
        assert mine.shape == whole.shape and (mine - whole).abs().max() <= 1e-4 * whole.abs().max()
    ids, head = torch.tensor([sequence.tokens]), decoder.drafter.drafter  # and what the head says, by plain forwards
    _, features = head.target.forward(ids[:, :-1], head.layer_ids)
    whole = head.logits(head.context(features, ids), ids, torch.tensor([[drafted]]))[0, 0]
    assert (head.draft(sequence.context, ids) - whole).abs().max() <= 1e-4 * whole.abs().max()


@torch.inference_mode()
def test_caches_are_those_of_the_committed_tokens_after_rounds_of_every_kind(pair):
    """Scenarios 11 and 12; greedy output cannot show a stale feature."""
    drafter, truth = pair
    decoder = Decoder(tiny.HalfRight(drafter, [*PROMPT, *truth]))
    sequence = decoder.begin(PROMPT, len(truth), POLICY, None)
    kinds, paths, real = {}, [], sequence.cache.commit
    sequence.cache.commit = lambda rows: paths.append(list(rows)) or real(rows)
    for number, played in enumerate(decoder.rounds(sequence, POLICY, None), start=1):
        rows = paths[-1]
        gaps = rows != list(range(len(rows)))
        kind = "none" if not played.accepted else "gaps" if gaps else "whole" if len(rows) > 4 else "part"
        kinds[kind] = kinds.get(kind, 0) + 1
        if sequence.finish is None and (kinds[kind] == 1 or number in (1, 10, 50)):
            assert_as_if_read_at_once(decoder, sequence)
        if number == 50:
            break
    assert number == 50 and {"none", "gaps"} <= kinds.keys()
    assert max(map(len, paths)) == drafter.depth_max + 1


@torch.inference_mode()
@pytest.mark.parametrize("verifier", ["direct", "recursive"])
def test_sampled_rounds_keep_what_they_accepted(pair, verifier):
    drafter, truth = pair
    decoder = Decoder(tiny.HalfRight(drafter, [*PROMPT, *truth]), (), Sampling(0.05), verifier)
    dice = RandomDice(np.random.default_rng(5))
    sequence = decoder.begin(PROMPT, len(truth), POLICY, dice)
    accepted = []
    for played in decoder.rounds(sequence, POLICY, dice):
        accepted.append(played.accepted)
        if len(accepted) == 12:
            break
    assert any(accepted)
    assert_as_if_read_at_once(decoder, sequence)


@torch.inference_mode()
def test_a_pass_for_the_head_alone_leaves_both_caches_as_they_were(pair):
    """A draft writes its block behind the context, where the next round's rows will stand."""
    drafter, truth = pair
    decoder = Decoder(tiny.HalfRight(drafter, [*PROMPT, *truth]))
    sequence = decoder.begin(PROMPT, 20, POLICY, None)
    before = [rows.clone() for rows in held(sequence)]
    first, second = (decoder.draft(sequence, POLICY) for _ in range(2))
    assert np.array_equal(first.token, second.token) and np.array_equal(first.logq, second.logq)
    assert all(torch.equal(a, b) for a, b in zip(before, held(sequence), strict=True))
