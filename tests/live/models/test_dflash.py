"""Our DFlash forward against the reference package and against its own definition, one root at a time."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.live.models.config import dflash_config  # noqa: E402
from castsim.live.models.dflash import DFlash  # noqa: E402

VARIANTS = {
    "plain": {},
    "windowed layer": {
        "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3, "use_sliding_window": True,
    },
    "windows both ways": {
        "layer_types": ["sliding_attention"] * 2, "sliding_window": 3, "use_sliding_window": True, "is_causal": False,
    },
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
    "llama3 rope": {
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    "bias": {"attention_bias": True},
}  # fmt: skip


def head_of(variant):
    config = {**tiny.DFLASH, **VARIANTS[variant]}
    return config, tiny.randomised(DFlash(dflash_config(Path("config.json"), config))).eval()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_reference_package_gives_the_same_hidden_states(variant):
    reference = pytest.importorskip("dflash.model")
    from transformers import Qwen3Config

    config, head = head_of(variant)
    other = reference.DFlashDraftModel(Qwen3Config(**{**config, "num_target_layers": 4})).eval()
    other.load_state_dict(head.state_dict())
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(1, 30, 2 * tiny.HIDDEN, generator=generator)
    anchors = torch.tensor([[1, 6, 17, 30]])
    rows = torch.randn(1, 4, 5, tiny.HIDDEN, generator=generator)
    with torch.inference_mode():
        ours = head(rows, anchors, head.context(features))
        for block, anchor in enumerate(anchors[0].tolist()):
            theirs = other(
                position_ids=torch.arange(anchor + 5)[None],
                noise_embedding=rows[:, block],
                target_hidden=features[:, :anchor],
            )
            assert torch.allclose(ours[:, block], theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_block_does_not_see_other_blocks_or_what_lies_ahead(variant):
    _, head = head_of(variant)
    features = torch.randn(1, 20, 2 * tiny.HIDDEN, generator=torch.Generator().manual_seed(4))
    rows = torch.randn(1, 3, 5, tiny.HIDDEN, generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        anchors = torch.tensor([[4, 9, 20]])
        together = head(rows, anchors, head.context(features))
        for block, anchor in enumerate(anchors[0].tolist()):
            alone = head(rows[:, [block]], anchors[:, [block]], head.context(features[:, :anchor]))
            assert torch.allclose(together[:, [block]], alone, atol=1e-5)


def test_context_can_be_made_in_pieces():
    _, head = head_of("plain")
    features = torch.randn(1, 20, 2 * tiny.HIDDEN, generator=torch.Generator().manual_seed(4))
    whole, pieces = head.context(features), [head.context(features[:, :13]), head.context(features[:, 13:], begin=13)]
    for layer, first, second in zip(whole, *pieces, strict=True):
        assert torch.allclose(layer.k, torch.cat([first.k, second.k], dim=1), atol=1e-6)
        assert torch.allclose(layer.v, torch.cat([first.v, second.v], dim=1), atol=1e-6)
