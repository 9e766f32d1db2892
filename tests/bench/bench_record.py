"""Positions a second: the recorder beside the same pair recorded one chain round at a time, in one run.

`pytest tests/bench/bench_record.py -s` prints both and their ratio; nothing is asserted about time. The slow way is a
fair one: caches for the target and for the drafter's context, one drafter pass and one target pass a round, and what is
logged of a round is ranked by the same code. It logs one position a round, the recorder every position.
"""

import time

import pytest

torch = pytest.importorskip("torch")

from castsim.live.models.blocks import KeysValues  # noqa: E402
from castsim.live.models.cache import cache_argument  # noqa: E402
from castsim.live.models.load import load_pair  # noqa: E402
from castsim.live.models.marginals import _ranked  # noqa: E402
from castsim.live.pair import PROMPTS  # noqa: E402
from castsim.live.record import Recorder, RecordOptions  # noqa: E402
from castsim.runs.prompts import read_prompts  # noqa: E402

PROMPTS_TIMED, NEW_TOKENS, RANKS = 30, 128, 16


def read(target, ids, cache, layer_ids):
    """Choices and features of some tokens behind the cache."""
    found = target.model(torch.tensor([ids]), use_cache=True, output_hidden_states=True, **cache)
    return found.logits[0].argmax(dim=-1).tolist(), torch.cat([found.hidden_states[i + 1] for i in layer_ids], dim=-1)


@torch.inference_mode()
def chain_recorded(drafter, prompt, eos_ids):
    """Output of a chain decode that logs each of its rounds; returns the output and the number of rounds."""
    from transformers import DynamicCache

    kept = DynamicCache(config=drafter.target.model.config)
    cache = {cache_argument(type(drafter.target.model)): kept}
    chosen, features = read(drafter.target, prompt, cache, drafter.layer_ids)
    tokens, rounds, context = [*prompt, chosen[-1]], 0, drafter.head.context(features)
    limit = len(prompt) + NEW_TOKENS
    while tokens[-1] not in eos_ids and len(tokens) < limit:
        anchor = len(tokens) - 1
        logits = drafter.logits(context, torch.tensor([tokens]), torch.tensor([[anchor]]))[0]
        _ranked(drafter, logits, torch.full((1, drafter.depth_max), -1), RANKS)
        drafted = logits[0].argmax(dim=-1).tolist()
        chosen, features = read(drafter.target, [tokens[-1], *drafted], cache, drafter.layer_ids)
        right = next((i for i, (a, b) in enumerate(zip(drafted, chosen, strict=False)) if a != b), len(drafted))
        new = drafter.head.context(features[:, : right + 1], begin=anchor)
        context = [
            KeysValues(*map(torch.cat, zip(a, b, strict=True), [1, 1])) for a, b in zip(context, new, strict=True)
        ]
        if right < len(drafted):
            kept.crop(right - len(drafted))
        end = next((i + 1 for i, t in enumerate(chosen[: right + 1]) if t in eos_ids), right + 1)
        tokens, rounds = [*tokens, *chosen[:end]][:limit], rounds + 1
    return tokens[len(prompt) :], rounds


def test_positions_a_second():
    drafter, chat = load_pair("pair", None, "float32", "cpu", raw=False, thinking=False)
    recorder = Recorder(drafter, chat, RecordOptions(new_tokens=NEW_TOKENS, rank_kept=RANKS))
    talk = read_prompts(str(PROMPTS))[:: 60 // PROMPTS_TIMED][:PROMPTS_TIMED]
    prompts = [recorder.first_prompt(c) for c in talk]
    recorder.batch(talk[:1])  # warm
    begun = time.perf_counter()
    sequences, rounds = recorder.batch(talk)
    dense = time.perf_counter() - begun
    begun = time.perf_counter()
    slow = [chain_recorded(drafter, prompt, set(recorder.eos_ids)) for prompt in prompts]
    chain = time.perf_counter() - begun
    assert [output for output, _ in slow] == sequences["output_tokens"].to_list()
    logged = sum(count for _, count in slow)
    fast, plain = len(rounds) / dense, logged / chain
    every = f"every position, {len(rounds)} in {dense:.1f} s = {fast:.0f} a second"
    print(f"\n{len(talk)} prompts, {torch.get_num_threads()} threads: {every};")
    print(f"chain rounds {logged} in {chain:.1f} s = {plain:.0f} a second; {fast / plain:.1f} times as many")
