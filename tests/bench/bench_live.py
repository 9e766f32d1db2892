"""The live decoder's speed, each figure beside what it is measured against in the same run; nothing is asserted about
time.

`pytest tests/bench/bench_live.py -s` prints the chain beside the reference decoder of the package `dflash`, the host's
share of a tree round, tree and mask of one round, and the commit at growing prefixes.
"""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from castsim.live.decode.clock import Stopwatch  # noqa: E402
from castsim.live.decode.loop import Decoder  # noqa: E402
from castsim.live.decode.pack import pack  # noqa: E402
from castsim.live.decode.walk import RandomDice  # noqa: E402
from castsim.live.models.cache import KeyValueCache  # noqa: E402
from castsim.live.models.chat import end_ids  # noqa: E402
from castsim.live.models.load import load_pair  # noqa: E402
from castsim.live.pair import resolved  # noqa: E402
from castsim.runs.reading import open_run  # noqa: E402
from castsim.scoring.tree import Tree, build, tree_of  # noqa: E402
from replay.policies.chain import Chain  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402

REPEATS, NEW_TOKENS = 3, 96


@pytest.fixture(scope="module")
def decoder():
    drafter, chat = load_pair("pair", None, "float32", "cpu", raw=False, thinking=False)
    return Decoder(drafter, end_ids(drafter.target.model, chat.tokenizer))


@pytest.fixture(scope="module")
def prompts(request):
    from castsim.runs.sample import sample_run

    return [row["prompt_tokens"] for row in open_run(sample_run()).sequences().iter_rows(named=True)][::6]


def ours(decoder, prompt, policy, by_part=False):
    """Seconds behind prefill, output and rounds."""
    dice, clock = RandomDice(np.random.default_rng(0)), Stopwatch(decoder.drafter.target.device, by_part)
    sequence = decoder.begin(prompt, NEW_TOKENS, policy, dice)
    begun = time.perf_counter()
    rounds = list(decoder.rounds(sequence, policy, dice, clock))
    return time.perf_counter() - begun, sequence.output, rounds


def reference(decoder, model, prompt, marks):
    """The same of the reference decoder, which calls its clock at the end of prefill and at its own end."""
    from dflash.model import dflash_generate

    marks.clear()
    ids = torch.tensor([prompt])
    found = dflash_generate(model, decoder.drafter.target.model, ids, NEW_TOKENS, [*decoder.eos_ids], return_stats=True)
    return marks[3] - marks[2], found.output_ids[0, len(prompt) :].tolist()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # the reference calls the cache by its older name
def test_chain_beside_the_reference_decoder(decoder, prompts, monkeypatch):
    dflash = pytest.importorskip("dflash.model")
    marks = []
    monkeypatch.setattr(dflash, "_cuda_time", lambda: marks.append(time.perf_counter()) or marks[-1])
    model = dflash.DFlashDraftModel.from_pretrained(
        resolved("pair-dflash"), attn_implementation="sdpa", dtype=torch.float32
    ).eval()
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        mine, theirs, tokens, ratios = 0.0, 0.0, 0, []
        for repeat in range(REPEATS + 1):
            pairs = [(ours(decoder, p, Chain(15)), reference(decoder, model, p, marks)) for p in prompts]
            assert all(a[1] == b[1] for a, b in pairs)
            if repeat:  # the first pass warms up
                one, other = sum(a[0] for a, _ in pairs), sum(b[0] for _, b in pairs)
                ratios.append(one / other)
                mine, theirs, tokens = mine + one, theirs + other, tokens + sum(len(a[1]) for a, _ in pairs)
        each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"\nchain, {threads} threads: {1e3 * mine / tokens:.2f} ms/token, the reference decoder ", end="")
        print(f"{1e3 * theirs / tokens:.2f}; ratio {mine / theirs:.3f} ({each})")


def test_the_hosts_share_of_a_round(decoder, prompts):
    for budget in (15, 63, 127):
        policy = TopN(budget)
        ours(decoder, prompts[0], policy)
        parts = np.sum([r.parts_ms for p in prompts[:4] for r in ours(decoder, p, policy, True)[2]], axis=0)
        draft, build_ms, pack_ms, target, walk, commit = parts / parts.sum()
        print(f"\nN={budget}: host {build_ms + pack_ms + walk + commit:.1%} of a round (build {build_ms:.1%}, ", end="")
        print(f"pack {pack_ms:.1%}, walk {walk:.1%}, commit {commit:.1%}; draft {draft:.1%}, target {target:.1%})")


def median_us(call, count=300):
    call()
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return 1e6 * float(np.median(taken))


def test_tree_and_mask_of_one_round(sample_rounds):
    torch.set_num_threads(1)
    windows, cpu = {"full_attention": None}, torch.device("cpu")
    marginals = sample_rounds.marginals.take(slice(100, 101))
    for budget in (15, 63, 127):
        policy = TopN(budget)

        def tree_and_mask(policy=policy):
            pack([build(policy, marginals, 5)], [300], windows, torch.float32, cpu)

        fast = median_us(tree_and_mask)
        slow = median_us(lambda policy=policy: tree_of(policy(marginals), marginals, 5))
        print(f"\nN={budget}: tree, ids, positions and mask {fast:.0f} us; tree alone, in Python {slow:.0f} us")


def test_commit_does_not_grow_with_the_prefix():
    torch.set_num_threads(1)
    rows, node = 64, torch.arange(64)
    for prefix in (1024, 4096, 16384):
        cache = KeyValueCache(4, prefix + rows)
        keys = torch.randn(1, 4, prefix, 32)
        for layer in range(4):
            cache.update(keys, keys, layer)
        cache.commit(range(prefix))
        new = torch.randn(1, 4, len(node), 32)
        for layer in range(4):
            cache.update(new, new, layer)

        def commit(cache=cache, prefix=prefix):
            cache.commit([0, 3, 7, 20])
            cache.length = prefix

        def copied(cache=cache):
            """What a cache of concatenated tensors does: gather the prefix and the path, layer by layer."""
            index = torch.tensor([*range(cache.length), *(cache.length + r for r in (0, 3, 7, 20))])
            for layer in range(4):
                for place in cache._place[layer]:
                    place.index_select(-2, index)

        mine, other = median_us(commit), median_us(copied, 20)
        print(f"\nprefix {prefix}: commit {mine:.0f} us, gathering all rows {other:.0f} us")


def test_a_tree_is_the_same_whoever_builds_it(sample_rounds):
    marginals = sample_rounds.marginals.take(slice(100, 101))
    one, other = build(TopN(127), marginals, 5), tree_of(TopN(127)(marginals), marginals, 5)
    assert isinstance(one, Tree) and (one.token == other.token).all() and (one.parent == other.parent).all()
