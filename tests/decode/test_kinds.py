"""Targets of other families decode as AR does, or are refused by name before anything is decoded."""

import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")
transformers = pytest.importorskip("transformers")

from castsim.decode.loop import Decoder  # noqa: E402
from castsim.errors import ModelError  # noqa: E402
from castsim.models.config import dflash_config  # noqa: E402
from castsim.models.dflash import DFlash  # noqa: E402
from castsim.models.drafter import DFlashDrafter  # noqa: E402
from castsim.models.target import Target  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402

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
EXACT = {  # learned positions, a window in every layer, experts
    "GPT2": (
        "LMHeadModel",
        {"vocab_size": tiny.VOCAB, "n_embd": 32, "n_layer": 4, "n_head": 4, "initializer_range": 0.3},
    ),
    "Mistral": ("ForCausalLM", {**SHAPE, "sliding_window": 16}),
    "Qwen3Moe": ("ForCausalLM", {**SHAPE, **EXPERTS, "head_dim": 8}),
    "Gemma2": ("ForCausalLM", {**SHAPE, "head_dim": 8, "sliding_window": 16}),  # capped scores, so eager attention
}
REFUSED = {
    "Mamba": ({**SMALL, "num_hidden_layers": 4}, "linear_attention"),
    "Qwen3Next": ({**SHAPE, **EXPERTS, **LINEAR, "head_dim": 8}, "linear_attention"),
    "Lfm2": ({**SHAPE, "layer_types": ["conv", "full_attention"] * 2}, "the kind conv"),
    "Bloom": ({**SMALL, "n_layer": 4, "n_head": 4}, "BloomForCausalLM cannot verify a tree"),
}


def drafter(kind, name, config):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = getattr(transformers, kind + name)(getattr(transformers, f"{kind}Config")(**config)).eval()
    head = tiny.randomised(DFlash(dflash_config(kind, tiny.DFLASH)).eval())
    return DFlashDrafter(head, Target(model, kind), "head")


@pytest.mark.parametrize("kind", EXACT)
@torch.inference_mode()
def test_other_targets_decode_as_plain_forwards_do(kind):
    bound = drafter(kind, *EXACT[kind])
    decoder, policy = Decoder(bound, rank_kept=50), TopN(60, rank_cap=40)
    sequence = decoder.begin([5, 6, 7, 100, 31], 40, policy, None)
    rounds = list(decoder.rounds(sequence, policy, None))
    ids = torch.tensor([[5, 6, 7, 100, 31]])
    for _ in range(40):
        ids = torch.cat([ids, bound.target.model(ids, use_cache=False).logits[:, -1:].argmax(dim=-1)], dim=1)
    assert sequence.output == ids[0, 5:].tolist() and any(r.accepted for r in rounds)


@pytest.mark.parametrize("kind", REFUSED)
def test_targets_that_no_tree_mask_reaches_are_refused(kind):
    config, said = REFUSED[kind]
    with pytest.raises(ModelError, match=said):
        Decoder(drafter(kind, "ForCausalLM", config))
