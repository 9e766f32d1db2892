"""The loop against AR and a decoder that computes everything anew; ends, limits, and the law of whole outputs."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

import slow_decode  # noqa: E402

from castsim.base.errors import ModelError, OptionError  # noqa: E402
from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.decode.walk import RandomDice, direct, greedy, recursive, walk  # noqa: E402
from castsim.live.models.sampling import Sampling, law  # noqa: E402
from castsim.scoring.tree import Tree  # noqa: E402
from replay import load_policies  # noqa: E402
from replay.policies.chain import Chain  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402
from replay.verify import law_of, outcomes  # noqa: E402

PROMPT = [5, 100, 31, 77, 205, 9]
POLICIES = load_policies()


@pytest.fixture(scope="module", params=["qwen3", "llama", "gemma3", "dart"])
def drafter(request, tmp_path_factory):
    """A tiny pair; gemma3's sliding layers see 16 positions, fewer than the outputs are long."""
    torch.set_num_threads(1)
    kind, config = ("qwen3", tiny.DART) if request.param == "dart" else (request.param, tiny.DFLASH)
    more = {"sliding_window": 16} if kind == "gemma3" else {}
    return tiny.loaded(tiny.saved_pair(tmp_path_factory.mktemp(request.param), config, kind=kind, **more))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny.loaded(tiny.saved_pair(tmp_path_factory.mktemp("plain")))


def decoded(drafter, policy, limit=40, prompt=PROMPT, dice=None, **options):
    """Output, finish and rounds."""
    decoder = Decoder(drafter, **options)
    sequence = decoder.begin(prompt, limit, policy, dice)
    rounds = list(decoder.rounds(sequence, policy, dice))
    return sequence.output, sequence.finish, rounds


@pytest.mark.parametrize("name", POLICIES)
def test_greedy_output_is_ars_for_every_policy_and_budget(drafter, name):
    expected, _, _ = decoded(drafter, None)
    for budget in (1, 7, 31, 63):
        output, finish, rounds = decoded(drafter, POLICIES[name](budget))
        assert output == expected and finish == "length", budget
        assert sum(len(r.emitted) for r in rounds) == len(output) - 1


def test_ar_and_the_chain_are_those_of_a_decoder_that_computes_everything_anew(drafter):
    expected, committed = slow_decode.chain_rounds(drafter, PROMPT, 30, ())
    assert decoded(drafter, None, 30)[0] == expected
    output, _, rounds = decoded(drafter, Chain(drafter.depth_max), 30)
    assert output == expected and [len(r.emitted) for r in rounds] == committed


def made(tree_token, parent, chosen, vocabulary=12):
    """A tree, and logits whose first choice at each row is given."""
    depth = np.zeros(len(parent), np.int32)
    for row in range(1, len(parent)):
        depth[row] = depth[parent[row]] + 1
    tree = Tree(np.array(tree_token), np.array(parent, np.int32), depth, np.full(len(parent), 0.5))
    logits = torch.zeros(len(parent), vocabulary)
    logits[range(len(parent)), chosen] = 50.0
    return tree, logits


@pytest.mark.parametrize("verifier", [greedy, direct, recursive])
def test_the_next_root_comes_from_the_row_of_the_last_accepted_node(verifier):
    """Scenario 7: rows 0, 3, 7 are accepted; row 2, at the depth of the path's end, says something else."""
    parent = [-1, 0, 0, 0, 1, 2, 3, 3, 4]
    token = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    chosen = [4, 0, 10, 8, 0, 0, 0, 11, 0]
    tree, logits = made(token, parent, chosen)
    dice = RandomDice(np.random.default_rng(0))
    assert walk(tree, verifier(tree, logits, Sampling(1.0), dice)) == ([0, 3, 7], 11)


def test_a_leaf_at_full_depth_names_the_next_root_itself():
    tree, logits = made([1, 2, 3, 4], [-1, 0, 1, 2], [2, 3, 4, 9])
    assert walk(tree, greedy(tree, logits, Sampling(), None)) == ([0, 1, 2, 3], 9)


def test_equal_logits_choose_the_smaller_id():
    """Scenario 15c."""
    tree, logits = made([1, 2], [-1, 0], [5, 5])
    logits[:, 3] = logits[:, 5]
    assert walk(tree, greedy(tree, logits, Sampling(), None)) == ([0], 3)


def test_the_block_is_the_root_and_masks(plain, monkeypatch):
    """Scenario 13."""
    seen = []
    real = type(plain.target).embed
    monkeypatch.setattr(type(plain.target), "embed", lambda self, ids: seen.append(ids.tolist()) or real(self, ids))
    decoder = Decoder(plain)
    sequence = decoder.begin(PROMPT, 20, Chain(4), None)
    root = sequence.root
    with torch.inference_mode():
        decoder.draft(sequence, Chain(4))
    assert seen[-1] == [root, 3, 3, 3, 3]


def test_an_end_of_sequence_inside_an_accepted_path_ends_the_output_there(drafter):
    """Scenario 1: whatever place of a round it takes, and several ids of which any ends."""
    endless, _, _ = decoded(drafter, TopN(31))
    for place in range(1, len(endless)):
        end = endless[place]
        output, finish, played = decoded(drafter, TopN(31), eos_ids=(end, 299))
        first = endless.index(end)
        assert output == endless[: first + 1] and finish == "stop"
        assert sum(len(r.emitted) for r in played) == first


def test_an_end_of_sequence_as_the_first_token_needs_no_round(plain):
    endless, _, _ = decoded(plain, TopN(31))
    assert decoded(plain, TopN(31), eos_ids=(endless[0],)) == (endless[:1], "stop", [])


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_limits_are_exact(drafter, limit):
    """Scenario 2."""
    expected, _, _ = decoded(drafter, None)
    output, finish, rounds = decoded(drafter, TopN(31), limit)
    assert output == expected[:limit] and finish == "length" and len(rounds) <= limit - 1


@pytest.mark.parametrize("length", [40, 47, 48, 62, 63])
def test_the_end_of_the_context(tmp_path, length):
    """Scenario 42: the target takes 64 tokens, the head 48; behind its end the decoder goes on alone."""
    torch.set_num_threads(1)
    config = {**tiny.DFLASH, "max_position_embeddings": 48}
    drafter = tiny.loaded(tiny.saved_pair(tmp_path, config, max_position_embeddings=64))
    prompt = [7 + i % 90 for i in range(length)]
    deepest = []
    real = drafter.target.model.forward
    none = torch.zeros(1)  # of a plain forward
    drafter.target.model.forward = lambda *a, **k: (
        deepest.append(int(k.get("position_ids", none).max())) or real(*a, **k)
    )
    expected, finish, _ = decoded(drafter, None, 100, prompt)
    output, _, rounds = decoded(drafter, TopN(31), 100, prompt)
    assert output == expected and finish == "length" and len(prompt) + len(output) == 64
    assert max(deepest) < 64
    assert all(r.packed == 1 for r in rounds if length + r.position + 1 >= 48)


def test_a_prompt_longer_than_one_prefill_pass(tmp_path, monkeypatch):
    monkeypatch.setattr("castsim.live.decode.sequence.PREFILL_ROWS", 7)
    torch.set_num_threads(1)
    drafter = tiny.loaded(tiny.saved_pair(tmp_path, kind="gemma3", sliding_window=16))
    prompt = [7 + i % 90 for i in range(30)]
    expected, committed = slow_decode.chain_rounds(drafter, prompt, 20, ())
    output, _, rounds = decoded(drafter, Chain(4), 20, prompt)
    assert output == expected and [len(r.emitted) for r in rounds] == committed


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_k=20), Sampling(1.3, top_p=0.8)])
def test_direct_draws_are_ars_from_the_same_stream(drafter, sampling):
    outputs = []
    for policy in (None, Chain(4), TopN(31)):
        dice = RandomDice(np.random.default_rng([3, 1]))
        outputs.append(decoded(drafter, policy, 24, dice=dice, sampling=sampling)[0])
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("verifier", ["direct", "recursive"])
def test_a_request_has_a_stream_of_its_own(plain, verifier):
    """The order of requests does not matter."""

    def run(seed):
        dice = RandomDice(np.random.default_rng([seed]))
        return decoded(plain, TopN(31), 20, dice=dice, sampling=Sampling(1.0), verifier=verifier)[0]

    assert [run(1), run(2)] == [run(2), run(1)][::-1] and run(1) != run(2)


@pytest.fixture(scope="module")
def smallest(tmp_path_factory):
    """Six tokens, float64."""
    torch.set_num_threads(1)
    config = {**tiny.DFLASH, "vocab_size": 6, "block_size": 3}
    pair = tiny.saved_pair(tmp_path_factory.mktemp("smallest"), config, vocab_size=6)
    return tiny.loaded(pair, torch.float64)


@torch.inference_mode()
def sequence_law(drafter, prompt, sampling, length):
    """The law of outputs by plain forwards."""
    laws = {(): 1.0}
    for _ in range(length):
        longer = {}
        for output, chance in laws.items():
            logits = drafter.target.model(torch.tensor([[*prompt, *output]]), use_cache=False).logits[0, -1]
            chances = law(logits, sampling).tolist()
            longer |= {(*output, token): chance * p for token, p in enumerate(chances) if p}
        laws = longer
    return laws


@pytest.mark.parametrize("verifier", ["direct", "recursive"])
@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.8, top_k=3), Sampling(1.2, top_p=0.7)])
def test_theorem_3_whole_outputs_have_the_law_of_autoregressive_sampling(smallest, verifier, sampling):
    """All continuations of length 3, by enumeration of every draw and coin of the decoder itself."""
    prompt, policy = [1, 4, 2], TopN(3, rank_cap=2)
    decoder = Decoder(smallest, (), sampling, verifier, rank_kept=3)

    def run(dice):
        sequence = decoder.begin(prompt, 3, policy, dice)
        for _ in decoder.rounds(sequence, policy, dice):
            pass
        return tuple(sequence.output)

    found, expected = law_of(run), sequence_law(smallest, prompt, sampling, 3)
    assert found.keys() == expected.keys()
    assert max(abs(found[output] - chance) for output, chance in expected.items()) < 1e-12


@pytest.mark.parametrize("verifier", [direct, recursive])
def test_the_processors_are_applied_to_the_target_once_and_the_drafter_changes_nothing(verifier):
    """Scenario 5."""
    sampling, logits = Sampling(0.5, top_k=2), torch.tensor([[2.0, 1.0, 0.0, -1.0, -2.0]], dtype=torch.float64)
    expected = np.exp([4.0, 2.0]) / np.exp([4.0, 2.0]).sum()
    for proposal in ([0.2, 0.7, 0.1], [0.01, 0.01, 0.98]):
        tree = Tree(np.arange(4) - 1, np.array([-1, 0, 0, 0]), np.array([0, 1, 1, 1]), np.array([1.0, *proposal]))
        rows = logits.expand(4, -1)
        found = law_of(lambda dice, t=tree, r=rows: verifier(t, r, sampling, dice)(0))
        assert [found[0], found[1]] == pytest.approx(expected, abs=1e-12) and set(found) == {0, 1}


def test_nodes_without_a_proposal_are_no_siblings_of_the_recursive_verifier():
    """Scenario 6d: they may stand in a greedy tree."""
    tree = Tree(np.array([0, 1, 2]), np.array([-1, 0, 0]), np.array([0, 1, 1]), np.array([1.0, 0.5, 0.0]))
    logits = torch.zeros(3, 4, dtype=torch.float64)
    found = law_of(lambda dice: recursive(tree, logits, Sampling(1.0), dice)(0))
    assert list(found.values()) == pytest.approx([0.25] * 4)
    assert all(chance <= 1 for chance, _ in outcomes(lambda dice: recursive(tree, logits, Sampling(1.0), dice)(0)))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0)])
def test_logits_that_are_not_finite_are_an_error_and_no_token(plain, monkeypatch, sampling):
    real = type(plain.target).read
    broken = lambda self, *a: (real(self, *a)[0] * torch.nan, real(self, *a)[1])  # noqa: E731
    monkeypatch.setattr(type(plain.target), "read", broken)
    with pytest.raises(ModelError, match="returns NaN or infinity in float32"):
        decoded(plain, TopN(7), dice=RandomDice(np.random.default_rng(0)), sampling=sampling)


def test_a_drafter_that_returns_nan_is_named(plain, monkeypatch):
    real = type(plain).draft
    monkeypatch.setattr(type(plain), "draft", lambda self, *a: real(self, *a) * torch.nan)
    with pytest.raises(ModelError, match="head: returns NaN or infinity in float32"):
        decoded(plain, TopN(7))


def test_an_unknown_verifier_is_refused(plain):
    with pytest.raises(OptionError, match="--verifier oracle: there are direct, recursive"):
        Decoder(plain, verifier="oracle")
