"""Batched continuations against one token at a time, and the laws that they are drawn from."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.base.errors import OptionError  # noqa: E402
from castsim.live.models.continuations import continuations  # noqa: E402
from castsim.live.models.sampling import Sampling, draw, law  # noqa: E402
from castsim.live.models.target import load_target  # noqa: E402

PROMPTS = [[7], [9, 30, 31, 32, 33, 34, 35, 36, 37], [11, 12, 13]]


@pytest.fixture(scope="module", params=["qwen3", "llama", "gemma3"])
def target(request, tmp_path_factory):
    folder = tiny.save_target(tmp_path_factory.mktemp(request.param), request.param)
    return load_target(str(folder), torch.float32, "cpu")


@torch.inference_mode()
def slow(target, prompt, limit, eos_ids):
    """Greedy, one whole forward a token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit:
        tokens.append(int(target.model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
        if tokens[-1] in eos_ids:
            break
    return tokens[len(prompt) :]


def test_greedy_batches_equal_one_token_at_a_time(target):
    found = continuations(target, PROMPTS, [12] * 3, [0], Sampling(), [(0, i) for i in range(3)])
    assert found == [slow(target, prompt, 12, {0}) for prompt in PROMPTS]


def test_any_end_of_sequence_ends_an_output(target):
    """Scenario 37: chat models name several."""
    first = slow(target, PROMPTS[1], 12, set())
    found = continuations(target, PROMPTS, [12] * 3, [0, first[3]], Sampling(), [(0, i) for i in range(3)])
    assert found[1] == first[: first.index(first[3]) + 1]


def test_no_end_of_sequence_at_all_is_fine(target):
    assert [len(o) for o in continuations(target, PROMPTS, [5] * 3, [], Sampling(), [(0, 0)] * 3)] == [5, 5, 5]


def test_a_sampled_output_depends_on_its_own_seed_only(target):
    sampling, seeds = Sampling(0.8, top_k=50, top_p=0.9), [(5, 0), (5, 1), (5, 2)]
    together = continuations(target, PROMPTS, [10] * 3, [0], sampling, seeds)
    alone = [continuations(target, [p], [10], [0], sampling, [s])[0] for p, s in zip(PROMPTS, seeds, strict=True)]
    assert together == alone
    assert continuations(target, PROMPTS, [10] * 3, [0], sampling, [(6, 0), (6, 1), (6, 2)]) != together


def test_the_law_is_temperature_then_top_k_then_top_p():
    """Scenario 5: top-2 softmax at T = 0.5 of (2, 1, 0, -1, -2)."""
    chances = law(torch.tensor([2.0, 1, 0, -1, -2]), Sampling(0.5, top_k=2))
    both = np.exp([4.0, 2.0])
    assert np.allclose(chances, [*both / both.sum(), 0, 0, 0], atol=1e-6)
    nucleus = law(torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05])), Sampling(1.0, top_p=0.7))
    assert np.allclose(nucleus, [0.625, 0.375, 0, 0], atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 1e-3, 1e-7, 1e-30])
def test_a_law_is_a_law_at_every_temperature(temperature):
    """Nor does a temperature near 0 draw from anything but the largest logit."""
    chances = law(torch.tensor([[30.0, -40.0, 29.0], [0.0, 0.0, -1e4]]), Sampling(temperature))
    assert torch.allclose(chances.sum(-1), torch.ones(2))
    if temperature < 0.01:
        assert torch.allclose(chances, torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]]))


def test_draws_invert_the_distribution_function_and_stay_in_the_support():
    chances = torch.tensor([[0.25, 0.0, 0.75, 0.0]] * 5)
    uniform = torch.tensor([0.0, 0.2499, 0.2501, 0.9999, 1.0], dtype=torch.float64)
    assert draw(chances, uniform).tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    "wrong", [(-1.0, 0, 1.0), (float("nan"), 0, 1.0), (1.0, -1, 1.0), (1.0, 0, 0.0), (1.0, 0, 1.1)]
)
def test_laws_that_do_not_exist_are_refused(wrong):
    with pytest.raises(OptionError):
        Sampling(*wrong)
