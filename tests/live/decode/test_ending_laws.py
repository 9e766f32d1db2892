"""Laws of whole sampled outputs that end by themselves, behind a head that is often right; every draw enumerated."""

import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.models.sampling import Sampling, law  # noqa: E402
from replay.policies.chain import Chain  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402
from replay.verify import law_of  # noqa: E402

PROMPT, END, LIMIT = [1, 4, 2], 5, 3


@pytest.fixture(scope="module")
def smallest(tmp_path_factory):
    """Six tokens, double precision."""
    torch.set_num_threads(1)
    config = {**tiny.DFLASH, "vocab_size": 6, "block_size": 4}
    return tiny.loaded(tiny.saved_pair(tmp_path_factory.mktemp("six"), config, vocab_size=6), torch.float64)


@torch.inference_mode()
def expected_law(drafter, sampling):
    """By forwards that keep nothing: a draw for each token, to the end of sequence or the limit."""
    ended, open_ = {}, {(): 1.0}
    while open_:
        output, chance = open_.popitem()
        logits = drafter.target.model(torch.tensor([[*PROMPT, *output]]), use_cache=False).logits[0, -1]
        for token, p in enumerate(law(logits, sampling).tolist()):
            if p:
                longer = (*output, token)
                place = ended if token == END or len(longer) == LIMIT else open_
                place[longer] = chance * p
    return ended


@pytest.mark.parametrize("verifier", ["direct", "recursive"])
@pytest.mark.parametrize("policy", [Chain(3), TopN(4, rank_cap=2)], ids=["chain", "tree"])
@pytest.mark.parametrize("sampling", [Sampling(2.0, top_k=3), Sampling(1.5, top_p=0.8)], ids=["top-k", "top-p"])
def test_theorem_3_outputs_that_end_have_the_law_of_autoregressive_sampling(smallest, sampling, policy, verifier):
    expected = expected_law(smallest, sampling)
    assert any(len(output) < LIMIT for output in expected) and sum(expected.values()) == pytest.approx(1, abs=1e-12)
    likely = max((output for output in expected if len(output) == LIMIT), key=expected.get)
    decoder = Decoder(tiny.HalfRight(smallest, [*PROMPT, *likely], ranks=(0,)), (END,), sampling, verifier, 3)
    accepted = set()

    def run(dice):
        sequence = decoder.begin(PROMPT, LIMIT, policy, dice)
        accepted.update(r.accepted for r in decoder.rounds(sequence, policy, dice))
        assert sequence.finish == ("stop" if sequence.output[-1] == END else "length")
        return tuple(sequence.output)

    found = law_of(run)
    assert max(abs(found.get(o, 0.0) - expected.get(o, 0.0)) for o in found.keys() | expected.keys()) < 1e-12
    assert {0, 1} <= accepted
