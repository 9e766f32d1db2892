"""Packed trees: positions by depth, masks of paths, and rows that are those of standalone forwards (Lemma 1)."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.base.errors import ModelError  # noqa: E402
from castsim.live.decode.pack import chain, pack  # noqa: E402
from castsim.live.decode.trial import require_trees  # noqa: E402
from castsim.live.models.attention import windows_of  # noqa: E402
from castsim.live.models.cache import KeyValueCache  # noqa: E402
from castsim.live.models.target import load_target  # noqa: E402
from castsim.scoring.tree import Tree  # noqa: E402

CPU = torch.device("cpu")
FULL = {"full_attention": None}
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def tree_of(parent, rng=None):
    depth = [0]
    for up in parent[1:]:
        depth.append(depth[up] + 1)
    token = np.arange(len(parent)) if rng is None else rng.integers(5, tiny.VOCAB, len(parent))
    return Tree(token, np.array(parent, np.int32), np.array(depth, np.int32), np.ones(len(parent)))


def random_tree(rng, nodes):
    """Branches at every depth, and a long path among them."""
    parent = [-1]
    for row in range(1, nodes + 1):
        parent.append(row - 1 if rng.random() < 0.5 else int(rng.integers(0, row)))
    return tree_of(parent, rng)


SMALL = tree_of([-1, 0, 0, 1, 2])


def read(target, trees, prefixes, cache):
    packed = pack(trees, prefixes, windows_of(target.model, "target"), target.dtype, CPU)
    return target.read(packed.ids, packed.positions, packed.mask, cache, ())[0]


@torch.inference_mode()
def filled(target, prefix, more):
    """A cache that holds a prefix."""
    cache = KeyValueCache(target.layers, len(prefix) + more)
    read(target, [chain(prefix)], [0], cache)
    cache.commit(range(len(prefix)))
    return cache


ALTERNATE = {"layer_types": ["sliding_attention", "full_attention"] * 2}  # four tiny layers of gemma3 all slide
TARGETS = {
    "qwen3": ("qwen3", {}),
    "llama": ("llama", {}),
    "gemma3": ("gemma3", {"sliding_window": 16}),
    "mixed": ("gemma3", {"sliding_window": 16, **ALTERNATE}),
}


@pytest.fixture(scope="module", params=TARGETS)
def folder(request, tmp_path_factory):
    torch.set_num_threads(1)
    kind, more = TARGETS[request.param]
    return tiny.save_target(tmp_path_factory.mktemp(request.param), kind, max_position_embeddings=200, **more)


def test_positions_go_by_depth():
    """Scenario 8."""
    assert pack([SMALL], [7], FULL, torch.float32, CPU).positions.tolist() == [[7, 8, 8, 9, 9]]
    both = pack([SMALL, SMALL], [7, 12], FULL, torch.float32, CPU)
    assert both.positions.tolist() == [[7, 8, 8, 9, 9], [12, 13, 13, 14, 14]]


@pytest.mark.parametrize("dtype", [torch.float64, *TYPES])
def test_masks_add_nothing_or_minus_infinity(dtype):
    mask = pack([SMALL], [7], {**FULL, "sliding_attention": 4}, dtype, CPU).mask
    for kind in mask.values():
        assert kind.dtype == dtype and kind.shape == (1, 1, 5, 12) and bool(((kind == 0) | (kind == -torch.inf)).all())
    assert (mask["full_attention"][0, 0, :, :7] == 0).all()
    seen = mask["sliding_attention"][0, 0, :, :7] == 0
    assert seen.sum(dim=1).tolist() == [3, 2, 2, 1, 1]  # positions 4, 5, 6 of a root at 7 that sees 4


@pytest.mark.parametrize("total", [33, 65, 97, 129])
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@torch.inference_mode()
def test_lemma_1_packed_rows_equal_standalone_forwards(folder, dtype, limit, total):
    """P + 1 + N crosses the edges of tiles; gemma3's window lies inside the prefix."""
    target, rng = load_target(str(folder), dtype, "cpu"), np.random.default_rng(total)
    prefix = rng.integers(5, tiny.VOCAB, total // 2).tolist()
    tree = random_tree(rng, total - 1 - len(prefix))
    logits = read(target, [tree], [len(prefix)], filled(target, prefix, len(tree)))[0]
    for leaf in set(range(len(tree))) - set(tree.parent.tolist()):
        path = np.flatnonzero(tree.sight[leaf] == 0)
        alone = target.model(torch.tensor([[*prefix, *tree.token[path].tolist()]]), use_cache=False).logits[0]
        expected = alone[-len(path) :]
        assert (logits[path] - expected).abs().max() <= limit * expected.abs().max()


class Padded:
    """Batch-1 caches side by side, padded on the left."""

    def __init__(self, caches):
        self.length = max(cache.length for cache in caches)
        self.caches = caches

    def get_seq_length(self, layer_idx=0):
        return self.length

    def update(self, keys, values, layer_idx, *_, **__):
        found = []
        for place, new in zip((0, 1), (keys, values), strict=True):
            pads = [(0, 0, self.length - c.length, 0) for c in self.caches]
            held = [c.rows(layer_idx)[place] for c in self.caches]
            old = torch.cat([torch.nn.functional.pad(h, p) for h, p in zip(held, pads, strict=True)])
            found.append(torch.cat([old, new], dim=2))
        return tuple(found)


@pytest.mark.parametrize("dtype", TYPES)
@torch.inference_mode()
def test_rows_of_a_padded_batch_are_those_of_a_batch_of_one(folder, dtype):
    """Scenario 26: no row that sees nothing, and a longer neighbour changes nothing."""
    target, rng = load_target(str(folder), dtype, "cpu"), np.random.default_rng(0)
    prefixes = [rng.integers(5, tiny.VOCAB, length).tolist() for length in (3, 9, 40, 60)]
    trees = [random_tree(rng, width) for width in (0, 7, 48, 60)]
    alone = [read(target, [t], [len(p)], filled(target, p, len(t)))[0] for t, p in zip(trees, prefixes, strict=True)]
    for count in (3, 4):
        cache = Padded([filled(target, p, 1) for p in prefixes[:count]])
        found = read(target, trees[:count], [len(p) for p in prefixes[:count]], cache)
        assert torch.isfinite(found).all()
        for rows, expected in zip(found, alone, strict=False):
            if dtype == torch.float32:
                assert (rows[: len(expected)] - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("code", ["sdpa", "eager"])
@torch.inference_mode()
def test_a_sibling_cannot_be_seen(folder, code):
    """Scenario 23: bit for bit, whatever attention code adds the mask."""
    target = load_target(str(folder), torch.float32, "cpu")
    target.model.set_attn_implementation(code)
    prefix = [5, 6, 7, 8]
    before = read(target, [SMALL], [4], filled(target, prefix, 5))[0]
    SMALL_OTHER = Tree(np.array([0, 1, 99, 3, 4]), SMALL.parent, SMALL.depth, SMALL.proposal)  # noqa: N806
    after = read(target, [SMALL_OTHER], [4], filled(target, prefix, 5))[0]
    assert torch.equal(before[[0, 1, 3]], after[[0, 1, 3]]) and not torch.equal(before[[2, 4]], after[[2, 4]])


def test_attention_that_takes_no_mask_is_refused(folder):
    target = load_target(str(folder), torch.float32, "cpu")
    target.model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ModelError, match="runs flash_attention_2, which leaves out the mask of a tree"):
        windows_of(target.model, "target")


def test_recurrent_layers_are_refused_by_name(folder):
    target = load_target(str(folder), torch.float32, "cpu")
    target.model.config.layer_types = ["linear_attention", *["full_attention"] * 3]
    with pytest.raises(ModelError, match="has layers of the kind linear_attention"):
        windows_of(target.model, "target")


def test_a_model_with_a_recurrent_state_is_refused(folder, monkeypatch):
    target = load_target(str(folder), torch.float32, "cpu")
    monkeypatch.setattr(type(target.model), "_is_stateful", True)
    with pytest.raises(ModelError, match="keeps a recurrent state"):
        windows_of(target.model, "target")


@pytest.mark.parametrize(
    "broken, said",
    [
        (lambda kwargs: {**kwargs, "position_ids": None}, "off a standalone forward"),
        (lambda kwargs: {**kwargs, "attention_mask": None, "cache": None}, "keep no keys and values"),
        (lambda kwargs: 1 / 0, "cannot verify a tree"),
    ],
)
def test_a_target_that_leaves_out_what_it_is_told_is_refused(folder, broken, said):
    """Positions, mask or cache: a small tree tries them before anything is decoded."""
    target = load_target(str(folder), torch.float32, "cpu")
    require_trees(target, windows_of(target.model, "target"))
    real = target.model.forward
    target.model.forward = lambda ids, **kwargs: real(ids, **(broken(kwargs) if "position_ids" in kwargs else kwargs))
    with pytest.raises(ModelError, match=said):
        require_trees(target, windows_of(target.model, "target"))


def test_layers_of_two_kinds_get_a_mask_each(tmp_path):
    kind, more = TARGETS["mixed"]
    target = load_target(str(tiny.save_target(tmp_path, kind, **more)), torch.float32, "cpu")
    windows = windows_of(target.model, "target")
    assert windows == {"full_attention": None, "sliding_attention": 16}
    masks = pack([SMALL], [20], windows, torch.float32, CPU).mask
    assert [int((masks[kind][0, 0, 0, :20] == 0).sum()) for kind in windows] == [20, 15]  # the row itself is the 16th


@torch.inference_mode()
def test_a_window_may_end_inside_the_tree(folder):
    """Paths longer than the window, with siblings along them: distance goes by position, not by packed row."""
    target, rng = load_target(str(folder), torch.float64, "cpu"), np.random.default_rng(7)
    parent = [-1]
    for _ in range(24):  # at each depth two siblings, of which the second goes on
        parent += [len(parent) - 1] * 2
    prefix, tree = [5, 6, 7], tree_of(parent, rng)
    logits = read(target, [tree], [3], filled(target, prefix, len(tree)))[0]
    for leaf in set(range(len(tree))) - set(parent):
        path = np.flatnonzero(tree.sight[leaf] == 0)
        alone = target.model(torch.tensor([[*prefix, *tree.token[path].tolist()]]), use_cache=False).logits[0, -1]
        assert (logits[leaf] - alone).abs().max() <= 1e-9 * alone.abs().max()


@pytest.mark.parametrize("code", ["sdpa", "eager"])
@torch.inference_mode()
def test_another_token_changes_only_the_rows_below_it(folder, code):
    """Scenario 23 in a larger tree behind a prefix past the window; both siblings have the same child token."""
    target, rng = load_target(str(folder), torch.float32, "cpu"), np.random.default_rng(11)
    target.model.set_attn_implementation(code)
    prefix = rng.integers(5, tiny.VOCAB, 30).tolist()
    twins = tree_of([-1, 0, 0, 1, 2], rng)
    twins.token[4] = twins.token[3]
    for tree, row in ((twins, 2), *((random_tree(rng, 40), row) for row in (1, 9, 33))):
        before = read(target, [tree], [30], filled(target, prefix, len(tree)))[0]
        tree.token[row] += 1 if tree.token[row] + 1 < tiny.VOCAB else -1
        after = read(target, [tree], [30], filled(target, prefix, len(tree)))[0]
        below = torch.from_numpy(tree.sight[:, row] == 0)
        assert torch.equal(before[~below], after[~below])
        assert (before[below] != after[below]).any(dim=1).all()


@torch.inference_mode()
def test_what_a_cache_holds_in_its_padding_does_not_matter(folder):
    """Scenario 26: columns left of a short prefix are masked, whatever finite numbers stand there."""
    target, rng = load_target(str(folder), torch.float32, "cpu"), np.random.default_rng(3)
    prefixes = [rng.integers(5, tiny.VOCAB, length).tolist() for length in (3, 40)]
    trees = [random_tree(rng, width) for width in (7, 12)]

    class Littered(Padded):
        """The same, with numbers in the padding."""

        def update(self, keys, values, layer_idx, *_, **__):
            found = super().update(keys, values, layer_idx)
            for place in found:
                place[0, :, : self.length - 3] = 50.0
            return found

    clean, littered = (
        read(target, trees, [3, 40], kind([filled(target, p, 1) for p in prefixes])) for kind in (Padded, Littered)
    )
    assert torch.equal(clean, littered)


def test_a_kind_of_layer_that_nobody_knows_is_refused_by_name(folder):
    target = load_target(str(folder), torch.float32, "cpu")
    target.model.config.layer_types = ["full_attention", "made_up_attention"]
    with pytest.raises(ModelError, match=r"target.*has layers of the kind made_up_attention"):
        windows_of(target.model, "target")
