"""The loop where drafts are accepted: a head that is right most of the time, so that paths are long, cut and ended."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

import slow_decode  # noqa: E402

from castsim.live.decode.clock import Stopwatch  # noqa: E402
from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.decode.walk import RandomDice  # noqa: E402
from castsim.live.models.sampling import Sampling  # noqa: E402
from replay import load_policies  # noqa: E402
from replay.policies.chain import Chain  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402

PROMPT = [5, 100, 31, 77, 205, 9]
LENGTH = 40
POLICIES = load_policies()
KINDS = ["qwen3", "llama", "gemma3"]


def made_pair(folder, kind, positions=96, head_positions=None):
    """A pair whose target says many tokens, all of which its head can say."""
    torch.set_num_threads(1)
    config = {**tiny.DFLASH, "max_position_embeddings": head_positions or positions}
    # with tied weights the random gemma3 repeats its last token for ever
    more = {"sliding_window": 16, "tie_word_embeddings": False} if kind == "gemma3" else {}
    return tiny.loaded(tiny.saved_pair(folder, config, kind=kind, max_position_embeddings=positions, **more))


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """A drafter, and its target's greedy output by forwards that keep nothing."""
    drafter = made_pair(tmp_path_factory.mktemp(request.param), request.param)
    truth, _ = slow_decode.chain_rounds(drafter, PROMPT, LENGTH, ())
    assert len(set(truth)) > 12
    return drafter, truth


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    drafter = made_pair(tmp_path_factory.mktemp("plain"), "qwen3")
    return drafter, slow_decode.chain_rounds(drafter, PROMPT, LENGTH, ())[0]


def decoded(drafter, truth, policy, limit=LENGTH, prompt=PROMPT, dice=None, seed=0, **options):
    """Output, finish and rounds of a decode behind a head that knows the truth."""
    decoder = Decoder(tiny.HalfRight(drafter, [*prompt, *truth], seed), **options)
    sequence = decoder.begin(prompt, limit, policy, dice)
    rounds = list(decoder.rounds(sequence, policy, dice))
    assert sum(len(r.emitted) for r in rounds) == len(sequence.output) - 1
    return sequence.output, sequence.finish, rounds


def stream(*seed):
    return RandomDice(np.random.default_rng(seed))


@pytest.mark.parametrize("name", POLICIES)
def test_greedy_output_is_the_targets_whatever_is_accepted(pair, name):
    drafter, truth = pair
    for budget in (1, 7, 15, 31, 63):
        output, finish, rounds = decoded(drafter, truth, POLICIES[name](budget), seed=budget)
        assert output == truth and finish == "length", budget
        assert any(r.accepted for r in rounds) and len(rounds) < LENGTH - 1


@pytest.mark.parametrize("policy", [Chain(4), TopN(31)])
def test_a_round_accepts_as_much_of_the_truth_as_its_tree_holds(pair, policy):
    drafter, truth = pair
    decoder = Decoder(tiny.HalfRight(drafter, [*PROMPT, *truth]))
    sequence, lengths = decoder.begin(PROMPT, LENGTH, policy, None), set()
    while sequence.finish is None:
        done = len(sequence.output)
        with torch.inference_mode():
            tree = decoder.tree(sequence, policy, decoder.draft(sequence, policy))
        row, held_of_truth = 0, 0
        while (row := tree.child(row, [*truth, -1][done + held_of_truth])) is not None:
            held_of_truth += 1
        played = decoder.round(sequence, policy, None, Stopwatch(drafter.target.device))
        assert (played.accepted, played.packed, played.position) == (held_of_truth, len(tree), done - 1)
        assert list(played.emitted) == truth[done : done + held_of_truth + 1]
        lengths.add(held_of_truth)
    assert {0, drafter.depth_max} <= lengths


def test_an_end_of_sequence_may_fall_anywhere_in_a_round(pair):
    """Scenario 1: inside an accepted path, at its last node, as the token behind it; nothing behind it is emitted."""
    drafter, truth = pair
    where = set()
    for first, end in enumerate(truth[1:], start=1):
        if end in truth[:first]:
            continue
        output, finish, rounds = decoded(drafter, truth, TopN(31), eos_ids=(299, end))
        assert output == truth[: first + 1] and finish == "stop"
        last = rounds[-1]
        assert all(len(r.emitted) == r.accepted + 1 for r in rounds[:-1]) and last.emitted[-1] == end
        where.add(last.accepted + 1 - len(last.emitted))  # tokens of the round that were cut off
    assert {0, 1, 2} <= where


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 9, 14])
def test_limits_are_exact_and_no_tree_is_deeper_than_what_is_left(plain, limit):
    """Scenario 2: a whole block would fit into no output of 2."""
    drafter, truth = plain
    output, finish, rounds = decoded(drafter, truth, TopN(31), limit)
    assert output == truth[:limit] and finish == "length"
    assert all(len(r.emitted) == r.accepted + 1 for r in rounds)
    assert all(r.position + 1 + r.accepted < limit for r in rounds)


def test_an_end_of_sequence_at_the_limit_says_stop(plain):
    drafter, truth = plain
    first = next(i for i in range(8, LENGTH) if truth[i] not in truth[:i])
    assert decoded(drafter, truth, TopN(31), first + 1, eos_ids=(truth[first],))[:2] == (truth[: first + 1], "stop")


@pytest.mark.parametrize("length", [40, 47, 48, 63])
def test_the_end_of_both_contexts(tmp_path, length):
    """Scenario 42: the target takes 64 tokens, the head 48; paths are accepted up to both ends."""
    drafter = made_pair(tmp_path, "qwen3", 64, 48)
    prompt = [7 + i % 90 for i in range(length)]
    truth, _ = slow_decode.chain_rounds(drafter, prompt, 64 - length, ())
    deepest, real = [], drafter.target.model.forward

    def spied(*args, **more):
        deepest.append(int(more["position_ids"].max()))
        return real(*args, **more)

    decoder = Decoder(tiny.HalfRight(drafter, [*prompt, *truth]))
    drafter.target.model.forward = spied
    sequence = decoder.begin(prompt, 100, TopN(31), None)
    rounds = list(decoder.rounds(sequence, TopN(31), None))
    assert sequence.output == truth and sequence.finish == "length" and max(deepest) < 64
    assert all(r.packed == 1 for r in rounds if length + r.position + 1 >= 48)
    assert length > 46 or any(r.accepted for r in rounds)


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts(pair, length):
    """With one token both caches are empty at first."""
    drafter, _ = pair
    prompt = PROMPT[:length]
    truth, _ = slow_decode.chain_rounds(drafter, prompt, 20, ())
    output, _, rounds = decoded(drafter, truth, TopN(31), 20, prompt)
    assert output == truth and any(r.accepted for r in rounds)


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_k=20), Sampling(1.3, top_p=0.8)])
def test_direct_draws_are_ars_and_take_as_many_numbers(plain, sampling):
    drafter, _ = plain
    for seed in range(3):
        alone = np.random.default_rng(seed)
        expected, _, _ = decoded(drafter, [], None, dice=RandomDice(alone), sampling=sampling)
        for policy in (Chain(4), TopN(31)):
            beside = np.random.default_rng(seed)
            output, _, rounds = decoded(drafter, expected, policy, dice=RandomDice(beside), sampling=sampling)
            assert output == expected and sum(r.accepted for r in rounds) > 8
            assert beside.bit_generator.state == alone.bit_generator.state
