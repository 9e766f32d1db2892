"""Targets of other families decode as AR does, or are refused by name before anything is decoded."""

import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")
transformers = pytest.importorskip("transformers")

import slow_decode  # noqa: E402

from castsim.base.errors import ModelError  # noqa: E402
from castsim.live.checks.exact import cast, packed_rows, siblings  # noqa: E402
from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.decode.sequence import Sequence as Decoding  # noqa: E402
from castsim.live.models.config import dflash_config  # noqa: E402
from castsim.live.models.dflash import DFlash  # noqa: E402
from castsim.live.models.drafter import DFlashDrafter  # noqa: E402
from castsim.live.models.target import Target  # noqa: E402
from replay.policies.chain import Chain  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402

PROMPT, LENGTH = [5, 6, 7, 100, 31], 24

ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
SHAPE = {key: value for key, value in tiny.SHAPE.items() if key != "head_dim"} | {"eos_token_id": None}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "shared_expert_intermediate_size": 32,
}
SMALL = {"vocab_size": tiny.VOCAB, "hidden_size": tiny.HIDDEN}
HEADS = {**SHAPE, "head_dim": 8}
FAMILIES = {  # learned positions, windows, capped scores, sinks, scaled residuals, experts of all kinds
    "GPT2": {"vocab_size": tiny.VOCAB, "n_embd": 32, "n_layer": 4, "n_head": 4, "initializer_range": 0.3},
    "Llama": HEADS,
    "Mistral": {**SHAPE, "sliding_window": 16},
    "Qwen2": SHAPE,
    "Qwen3": HEADS,
    "Phi3": {**SHAPE, "sliding_window": 16},
    "Gemma2": {**HEADS, "sliding_window": 16, "tie_word_embeddings": False},
    "Gemma3": {**HEADS, "sliding_window": 16, "query_pre_attn_scalar": 8, "tie_word_embeddings": False},
    "Olmo2": SHAPE,
    "Granite": SHAPE,
    "Starcoder2": {**SHAPE, "sliding_window": 16},
    "Mixtral": {**HEADS, **EXPERTS, "num_local_experts": 4},
    "Qwen2Moe": {**SHAPE, **EXPERTS, "shared_expert_intermediate_size": 32},
    "Qwen3Moe": {**HEADS, **EXPERTS},
    "GptOss": {**HEADS, **EXPERTS, "num_local_experts": 4, "sliding_window": 16, "rope_parameters": ROTARY},
    "GraniteMoe": {**SHAPE, **EXPERTS, "num_local_experts": 4},
    "Olmoe": {**SHAPE, **EXPERTS},
}
MODELS = {"GPT2": "GPT2LMHeadModel"}
CONFIGS = {"Gemma3": "Gemma3TextConfig"}
REFUSED = {
    "Mamba": ({**SMALL, "num_hidden_layers": 4}, "linear_attention"),
    "Qwen3Next": ({**SHAPE, **EXPERTS, **LINEAR, "head_dim": 8}, "linear_attention"),
    "Lfm2": ({**SHAPE, "layer_types": ["conv", "full_attention"] * 2}, "the kind conv"),
    "Bloom": ({**SMALL, "n_layer": 4, "n_head": 4}, "BloomForCausalLM cannot verify a tree"),
}


def drafter(kind, config):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, made = MODELS.get(kind, f"{kind}ForCausalLM"), CONFIGS.get(kind, f"{kind}Config")
    target = getattr(transformers, model)(getattr(transformers, made)(**config)).eval()
    head = tiny.randomised(DFlash(dflash_config(kind, tiny.DFLASH)).eval())
    return DFlashDrafter(head, Target(target, kind), "head")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    """A drafter, and its target's greedy output by forwards that keep nothing."""
    bound = drafter(request.param, FAMILIES[request.param])
    return bound, slow_decode.chain_rounds(bound, PROMPT, LENGTH, ())[0]


@torch.inference_mode()
def test_ar_chain_and_tree_say_the_same(family):
    """Behind a head that knows what comes, so that chains and trees are accepted in part."""
    bound, truth = family
    for policy in (None, Chain(4), TopN(31)):
        decoder = Decoder(tiny.HalfRight(bound, [*PROMPT, *truth]))
        sequence = decoder.begin(PROMPT, LENGTH, policy, None)
        rounds = list(decoder.rounds(sequence, policy, None))
        assert sequence.output == truth, policy
        assert policy is None or len(rounds) < LENGTH - 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_checks_pass_and_a_broken_mask_fails_them(family, dtype, monkeypatch):
    """The mutation lets a row see a sibling; no family's own noise excuses it."""
    bound, _ = family
    decoder = Decoder(cast(bound, dtype))
    for check in (packed_rows, siblings):
        assert (found := check(decoder, [PROMPT])).passed, found
    real = Decoding.packed

    def broken(self, tree):
        packed = real(self, tree)
        for mask in packed.mask.values():
            mask[..., -1, self.prefix + 1 : -1] = 0  # the last row sees all rows of the tree
        return packed

    monkeypatch.setattr(Decoding, "packed", broken)
    assert not packed_rows(decoder, [PROMPT]).passed
    assert not siblings(decoder, [PROMPT]).passed


@pytest.mark.parametrize("kind", REFUSED)
def test_targets_that_no_tree_mask_reaches_are_refused(kind):
    config, said = REFUSED[kind]
    with pytest.raises(ModelError, match=said):
        Decoder(drafter(kind, config))
