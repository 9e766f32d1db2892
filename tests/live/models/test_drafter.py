"""Drafters as the recorder sees them: what they are fed, what they need to fit, what they refuse."""

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.base.errors import ModelError  # noqa: E402
from castsim.live.models.checkpoint import check_table, load_drafter  # noqa: E402
from castsim.live.models.drafter import token_table  # noqa: E402
from castsim.live.models.target import Target, load_target  # noqa: E402


def altered(folder, **changes):
    """The head of a folder with another config.json; None removes a key."""
    config = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


@pytest.fixture
def pair(tmp_path):
    return tiny.saved_pair(tmp_path)


def refusal(pair):
    with pytest.raises(ModelError) as error:
        tiny.loaded(pair)
    return str(error.value)


def test_slot_0_holds_the_root_and_the_others_the_trained_mask(pairs):
    """Scenario 13."""
    drafter = tiny.loaded(pairs["dflash"])
    seen = []
    table = drafter.target.model.get_input_embeddings()

    class Spy(Target):
        def embed(self, ids):
            seen.append(ids)
            return torch.nn.functional.embedding(ids, table.weight)

    spied = replace(drafter, target=Spy(drafter.target.model, "spy"))
    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    features = torch.zeros(1, 4, 2 * tiny.HIDDEN)
    spied.logits(spied.context(features, tokens), tokens, torch.tensor([[2, 4]]))
    assert seen[0].tolist() == [[[7, 3, 3, 3, 3], [9, 3, 3, 3, 3]]]


def test_the_first_marginal_is_that_of_the_token_behind_the_root(pairs):
    """Scenario 13: row 1 of the block, whose head rows are the target's."""
    drafter = tiny.loaded(pairs["dflash"])
    tokens = torch.tensor([[5, 6, 7, 8]])
    features = torch.randn(1, 3, 2 * tiny.HIDDEN, generator=torch.Generator().manual_seed(0))
    context = drafter.context(features, tokens)
    rows = drafter.target.embed(torch.tensor([[[8, 3, 3, 3, 3]]]))
    hidden = drafter.head(rows, torch.tensor([[3]]), context)
    logits = drafter.logits(context, tokens, torch.tensor([[3]]))
    assert logits.shape == (1, 1, 4, tiny.VOCAB)
    assert torch.allclose(logits[0, 0, 0], drafter.target.head(hidden[0, 0, 1]), atol=1e-5)


def test_softcap_and_scales_of_the_config_are_used(pair):
    plain = tiny.loaded(pair)
    own = {**tiny.DFLASH["dflash_config"], "final_logit_softcapping": 2.0, "output_multiplier": 0.5}
    altered(pair[1], dflash_config=own)
    capped = tiny.loaded(pair)
    tokens, at = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[3]])
    features = torch.randn(1, 3, 2 * tiny.HIDDEN, generator=torch.Generator().manual_seed(0))
    before = plain.logits(plain.context(features, tokens), tokens, at)
    after = capped.logits(capped.context(features, tokens), tokens, at)
    assert torch.allclose(after, torch.tanh(before * 0.5 / 2.0) * 2.0, atol=1e-6)


def test_features_are_the_outputs_of_the_layers_that_are_named():
    """Scenario 11: a target whose layer l adds 10^l to a constant shows which layer a feature is from."""

    class Additive(torch.nn.Module):
        def forward(self, ids, use_cache, output_hidden_states):
            states = [torch.ones(*ids.shape, 1)]
            for layer in range(4):
                states.append(states[-1] + 10**layer)
            return type("Output", (), {"hidden_states": states, "logits": None})

    _, features = Target(Additive(), "additive").forward(torch.zeros(1, 3, dtype=torch.long), (0, 2, 3))
    assert features[0, 0].tolist() == [2.0, 112.0, 1112.0]


@pytest.mark.parametrize(
    "change, said",
    [
        ({"dflash_config": {"mask_token_id": 3}}, "dflash_config.target_layer_ids is None"),
        ({"dflash_config": {"mask_token_id": 3, "target_layer_ids": [-1, 2]}}, "target_layer_ids is [-1, 2]"),
        (
            {"dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 4]}},
            "has layer 4, the target has layers 0 to 3",
        ),
        ({"dflash_config": {"target_layer_ids": [0, 2]}}, "dflash_config.mask_token_id is None"),
        ({"dflash_config": {"mask_token_id": 300, "target_layer_ids": [0, 2]}}, "mask_token_id 300"),
        ({"dflash_config": [3]}, "dflash_config is [3], no object"),
        ({"vocab_size": 999}, "vocab_size is 999, the target's is 300"),
        ({"num_target_layers": 36}, "num_target_layers is 36, the target's is 4"),
        ({"head_dim": "8"}, "head_dim is 8"),
        ({"head_dim": 7}, "config.json"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"intermediate_size": -1}, "intermediate_size is -1"),
        ({"rms_norm_eps": "x"}, "config.json"),
        ({"layer_types": ["full_attention"]}, "config.json"),
        ({"layer_types": "full"}, "config.json"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "config.json"),
        ({"rope_theta": "x"}, "config.json"),
        (
            {"dflash_config": {**tiny.DFLASH["dflash_config"], "final_logit_softcapping": [1]}},
            "final_logit_softcapping",
        ),
        ({"block_size": 10**9}, "block_size is 1000000000"),
        ({"block_size": None}, "block_size is None"),
        ({"block_size": 1}, "block_size is 1"),
        ({"hidden_act": "gelu"}, "hidden_act gelu"),
        ({"hidden_size": 64}, "hidden_size is 64, the target's is 32"),
        ({"num_hidden_layers": 3}, "lacks tensor layers.2"),
        ({"num_hidden_layers": 1}, "unknown tensor layers.1"),
        ({"intermediate_size": 44}, "has shape"),
        ({"dflash_config": {**{"selector_rank": 4}, "mask_token_id": 3, "target_layer_ids": [0]}}, "DFlash2"),
    ],
)
def test_a_head_that_cannot_be_right_is_refused_by_name(pair, change, said):
    """Scenarios 11 and 13: nothing is guessed."""
    altered(pair[1], **change)
    text = refusal(pair)
    assert said in text and str(pair[1]) in text and "; " in text


def test_pickled_weights_are_not_read(pair):
    (pair[1] / "model.safetensors").unlink()
    (pair[1] / "pytorch_model.bin").write_bytes(b"\x80\x04")
    assert "holds no .safetensors file" in refusal(pair)


def test_damaged_weights_are_refused(pair):
    file = pair[1] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    assert "is no safetensors file" in refusal(pair)


@pytest.mark.parametrize("kind", ["target", "head"])
def test_code_that_comes_with_a_checkpoint_is_not_run(pair, tmp_path, kind):
    trace = tmp_path / "trace"
    folder = pair[kind == "head"]
    (folder / "evil.py").write_text(f"open({str(trace)!r}, 'w')\nclass Evil: pass\n")
    altered(folder, model_type="evil", auto_map={"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"})
    if kind == "target":
        with pytest.raises(ModelError, match="cannot be loaded"):
            tiny.loaded(pair)
    else:
        tiny.loaded(pair)
    assert not trace.exists()


@pytest.mark.parametrize("text", ["", "[1]", "{", "\xff"])
def test_a_config_that_is_no_object_is_refused(pair, text):
    (pair[1] / "config.json").write_text(text, encoding="latin-1")
    assert "config.json" in refusal(pair)


@pytest.mark.parametrize("name", ["no-such-folder", "no/such-model", "/nowhere/at/all"])
def test_unknown_names_say_so_without_a_network(pairs, name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    target = load_target(str(pairs["dflash"][0]), torch.float32, "cpu")
    for load in (lambda: load_drafter(name, target), lambda: load_target(name, torch.float32, "cpu")):
        with pytest.raises(ModelError) as error:
            load()
        assert name in str(error.value) and "\n" not in str(error.value)


def test_a_draft_vocabulary_table_holds_offsets():
    """Scenario 35."""
    assert token_table(torch.tensor([5, 7, 7])).tolist() == [5, 8, 9]
    assert token_table(torch.zeros(3, dtype=torch.long)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "offsets, said", [([5, 4, 3], "one target id to two"), ([5, 7, 300], "outside"), ([-1, 5, 7], "outside")]
)
def test_a_table_with_doubles_or_strange_ids_is_refused(tmp_path, offsets, said):
    """Scenario 35."""
    with pytest.raises(ModelError, match=said):
        check_table(tmp_path / "config.json", token_table(torch.tensor(offsets)), 300)


def test_dart_without_named_layers_reads_those_of_the_public_code(tmp_path):
    config = {k: v for k, v in tiny.DART.items() if k != "eagle_aux_hidden_state_layer_ids"}
    drafter = tiny.loaded(tiny.saved_pair(tmp_path, config, num_hidden_layers=12))
    assert drafter.layer_ids == (1, 5, 8)  # the inputs of layers 2, 6 and 9


@pytest.mark.parametrize(
    "change, said",
    [
        ({"eagle_aux_hidden_state_layer_ids": 2}, "eagle_aux_hidden_state_layer_ids is 2"),
        ({"eagle_aux_hidden_state_layer_ids": []}, "eagle_aux_hidden_state_layer_ids is []"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1]}, "not three layers"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1, 9]}, "the feature layers has layer 9"),
        ({"num_key_value_heads": "2"}, "num_key_value_heads is 2"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"head_dim": -8}, "head_dim is -8"),
        ({"max_position_embeddings": "96"}, "max_position_embeddings is 96"),
        ({"max_position_embeddings": None}, "max_position_embeddings is None"),
        ({"vocab_size": 7}, "vocab_size is 7, the target's is 300"),
        ({"hidden_act": "gelu"}, "hidden_act gelu"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1"),
        ({"draft_length": 0}, "draft_length is 0"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope scaling"),
    ],
)
def test_a_dart_head_that_cannot_be_right_is_refused_by_name(tmp_path, change, said):
    pair = tiny.saved_pair(tmp_path, tiny.DART)
    altered(pair[1], **change)
    assert said in refusal(pair)


def test_the_rotary_base_of_a_dart_head_is_its_own(tmp_path):
    pair = tiny.saved_pair(tmp_path, {**tiny.DART, "rope_theta": 500.0})
    assert tiny.loaded(pair).head.midlayer.self_attn.base == 500.0


def test_rotary_frequencies_stay_single_precision_in_half_precision(pair):
    """Rounded to bfloat16 they would turn far positions by half a radian, and only acceptance would tell."""
    half, single = tiny.loaded(pair, torch.bfloat16), tiny.loaded(pair)
    assert half.head.fc.weight.dtype == torch.bfloat16
    assert torch.equal(half.head.rotary_emb.inv_freq, single.head.rotary_emb.inv_freq)


def test_a_target_that_lacks_a_tensor_is_not_filled_with_noise(pair):
    from safetensors.torch import load_file, save_file

    file = pair[0] / "model.safetensors"
    kept = {k: v for k, v in load_file(file).items() if "layers.2.mlp" not in k}
    save_file(kept, file, metadata={"format": "pt"})
    assert "lacks tensor model.layers.2.mlp" in refusal(pair)


def test_a_damaged_target_is_refused(pair):
    file = pair[0] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    assert "cannot be loaded" in refusal(pair)


@pytest.mark.parametrize(
    "change", [{"hidden_size": "x"}, {"hidden_size": -1}, {"num_hidden_layers": None}, {"vocab_size": 7}]
)
def test_a_target_with_a_strange_config_is_refused(pair, change):
    config = {**json.loads((pair[0] / "config.json").read_text()), **change}
    (pair[0] / "config.json").write_text(json.dumps(config))
    assert str(pair[0]) in refusal(pair)


def test_dart_with_scaled_positions_is_refused(tmp_path):
    pair = tiny.saved_pair(tmp_path, tiny.DART)
    altered(pair[1], rope_scaling={"type": "linear", "factor": 2.0})
    assert "rope scaling" in refusal(pair)


@pytest.mark.parametrize("kind", ["dflash", "dart"])
def test_many_roots_in_one_pass_are_what_each_is_alone(pairs, kind):
    drafter = tiny.loaded(pairs[kind])
    tokens = torch.randint(5, 200, (1, 30), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        _, features = drafter.target.forward(tokens[:, :-1], drafter.layer_ids)
        anchors = torch.tensor([[1, 2, 7, 18, 29]])
        together = drafter.logits(drafter.context(features, tokens), tokens, anchors)
        for m, anchor in enumerate(anchors[0].tolist()):
            context = drafter.context(features[:, :anchor], tokens[:, : anchor + 1])
            alone = drafter.logits(context, tokens, torch.tensor([[anchor]]))
            assert torch.allclose(together[:, [m]], alone, atol=1e-4)


def test_dart_equals_the_layer_written_out_row_by_row(pairs):
    """The public inference in plain loops: join, pad with the mask, one causal layer, the norm twice."""
    drafter = tiny.loaded(pairs["dart"])
    head, anchor = drafter.head, 6
    tokens = torch.randint(5, 200, (1, 9), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        _, features = drafter.target.forward(tokens[:, :-1], drafter.layer_ids)
        ours = drafter.logits(drafter.context(features, tokens), tokens, torch.tensor([[anchor]]))[0, 0]
        assert torch.allclose(ours, slow_dart(head, features[0, :anchor], tokens[0, : anchor + 1], drafter), atol=1e-4)


def slow_dart(head, features, tokens, drafter):
    layer, config = head.midlayer, head.config
    residual = head.fc(features)
    joined = torch.cat([layer.input_layernorm(drafter.target.embed(tokens[1:])), layer.hidden_norm(residual)], dim=-1)
    slots = config.draft_length
    x = torch.cat([joined, layer.mask_rep.expand(slots, -1)])
    skip = torch.cat([residual, layer.mask_rep[: config.hidden_size].expand(slots, -1)])
    attention, length = layer.self_attn, len(x)
    q, k, v = (p(x).view(length, -1, config.head_dim) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    rate = 10000.0 ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)

    def turned(row, place):
        half, angle = config.head_dim // 2, place * rate
        a, b = row[:, :half], row[:, half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)

    q, k = (torch.stack([turned(row, place) for place, row in enumerate(rows)]) for rows in (q, k))
    shared = config.heads // config.kv_heads
    rows = []
    for i in range(length):
        mixed = []
        for h in range(config.heads):
            scores = torch.stack([q[i, h] @ k[j, h // shared] for j in range(i + 1)]) / config.head_dim**0.5
            mixed.append(scores.softmax(dim=0) @ v[: i + 1, h // shared])
        rows.append(torch.cat(mixed))
    x = skip + attention.o_proj(torch.stack(rows))
    x = x[-slots - 1 :]
    x = x + layer.mlp(layer.post_attention_layernorm(x))
    return head.lm_head(head.norm(head.norm(x)))
