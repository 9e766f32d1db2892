"""The head as a decoder runs it beside `DFlash.forward`, which reads everything anew."""

import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.live.models.config import dflash_config  # noqa: E402
from castsim.live.models.dflash import DFlash  # noqa: E402
from castsim.live.models.fused import fused  # noqa: E402

KINDS = {
    "plain": {},
    "bias": {"attention_bias": True},
    "causal": {"is_causal": True},
    "sliding": {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 6,
        "use_sliding_window": True,
    },
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
}


@pytest.fixture(params=KINDS)
def head(request, tmp_path):
    config = dflash_config(tmp_path / "config.json", {**tiny.DFLASH, **KINDS[request.param]})
    return tiny.randomised(DFlash(config).double().eval())


@torch.inference_mode()
def test_blocks_behind_a_growing_context_equal_blocks_behind_a_whole_one(head):
    """Prefixes shorter and longer than the window, and one append of several rows."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, 40, head.fc.in_features, generator=generator, dtype=torch.float64)
    rows = torch.randn(1, 1, 5, tiny.HIDDEN, generator=generator, dtype=torch.float64)
    expected = {p: head(rows, torch.tensor([[p]]), head.context(features[:, :p])) for p in (3, 4, 9, 40)}
    quick = fused(head)
    context = quick.growing(40 + 5)
    for end in (3, 4, 9, 40):
        quick.extend(context, features[0, context.grown.length : end])
        found = quick(rows[0, 0], context)
        assert (found - expected[end][0, 0]).abs().max() < 1e-6


def test_fused_weights_are_kept_once(head):
    before = {name: value.clone() for name, value in head.state_dict().items()}
    quick = fused(head)
    layer = head.layers[0]
    assert layer.self_attn.q_proj.weight.data_ptr() == quick.layers[0].qkv.data_ptr()
    assert layer.mlp.gate_proj.weight.data_ptr() == quick.layers[0].gate_up.data_ptr()
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
