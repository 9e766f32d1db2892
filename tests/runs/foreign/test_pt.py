"""The .pt of the paper's public code. Its tests need torch, which the main job does not install; .ci/run adds it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import run_builders as runs

from castsim.base.errors import ForeignError
from castsim.runs.foreign import ImportOptions, import_run
from castsim.runs.reading import open_run
from replay import Marginals, accepted, policy_entry_budgets, walk
from replay.policies.chain import Chain

FIELDS = ("continuation", "known", "prompt", "position", "remaining")


def source(lengths):
    """A run as (sequences as dicts, rounds)."""
    sequences, rounds = runs.prompts(list(lengths))
    return sequences.drop("prompt", "finish").to_dicts(), rounds


def chain_rounds(sequences, rounds):
    """The rows that the chain plays, with what it accepts."""
    entry, _ = policy_entry_budgets(Chain(budget=runs.DEPTH), rounds)
    played = accepted(entry, [runs.DEPTH])
    rows = np.flatnonzero(walk(rounds, np.minimum(played + 1, rounds.remaining[:, None]))[:, 0])
    return [(int(r), int(played[r, 0])) for r in rows]


def entry_of(torch, rounds, row, told, realized):
    """One round of the file: logits without a normaliser, and what followed the root."""
    return {
        "accepted": told,
        "top_idx": torch.tensor(rounds.marginals.token[row].astype(np.int64)),
        "top_val": torch.tensor(rounds.marginals.logq[row] + 3.0),
        "realized": torch.tensor(np.asarray(realized, np.int64)),
    }


def write_pt(torch, file, sequences, rounds):
    """The layout of the paper's public code: the chain's rounds one after another."""
    rows = chain_rounds(sequences, rounds)
    torch.save([entry_of(torch, rounds, r, a, rounds.continuation[r, : rounds.known[r]]) for r, a in rows], file)
    return file


def test_pt_rounds_are_joined_into_prompts(tmp_path):
    torch = pytest.importorskip("torch")
    sequences, rounds = source([40, 35, 28])
    facts = import_run(
        write_pt(torch, tmp_path / "x.pt", sequences, rounds), tmp_path / "run", ImportOptions(domain="a")
    )
    assert (facts.layout, facts.logged_by, facts.normaliser) == ("sparse", "chain", "kept_ranks")
    run = open_run(tmp_path / "run")
    (found,) = run.rounds()
    rows = [r for r, _ in chain_rounds(sequences, rounds)]
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(rounds.take(np.array(rows)), name), err_msg=name)
    outputs = run.sequences()["output_tokens"].to_list()
    for output, sequence in zip(outputs, sequences, strict=True):
        pairs = list(zip(output, sequence["output_tokens"], strict=True))
        assert all(ours in (None, true) for ours, true in pairs)
        assert pairs[0][0] is None  # the prefill token is in no row
    mass = np.exp(found.marginals.logq.astype(float)).sum(axis=2)
    np.testing.assert_allclose(mass, 1, atol=1e-5)  # normalised over what is kept, and the manifest says so
    assert "upper bounds" in facts.notes[0]


def test_pt_rounds_that_do_not_join_begin_a_new_prompt(tmp_path):
    torch = pytest.importorskip("torch")
    file = write_pt(torch, tmp_path / "x.pt", *source([40]))
    entries = torch.load(file, weights_only=True)
    torch.save(entries[:4] + entries[5:], file)
    facts = import_run(file, tmp_path / "run", ImportOptions())
    assert "1 rounds do not continue the one before" in " ".join(facts.notes)
    assert open_run(tmp_path / "run").manifest.prompts == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: {**e, "accepted": e["accepted"] + 1}, "its own arrays say"),
        (lambda e: {**e, "top_val": e["top_val"][:2]}, "shapes that disagree"),
        (lambda e: {**e, "accepted": float("inf")}, "its own arrays say"),
        (lambda e: {**e, "top_val": e["top_val"] * float("nan")}, "not finite"),
        (lambda e: {**e, "realized": e["realized"] * 1.0}, "other types"),
        (lambda e: {**e, "realized": e["realized"] * 0 - 3}, "no int32"),
        (lambda e: {**e, "realized": e["realized"][None]}, "shapes that disagree"),
        (lambda e: {**e, "top_idx": e["top_idx"][:, :0], "top_val": e["top_val"][:, :0]}, "shapes that disagree"),
        (
            lambda e: {**e, "top_idx": e["top_idx"][:, :2], "top_val": e["top_val"][:, :2]},
            "numbers of candidates|own arrays",
        ),
        (lambda e: {k: v[:2] if k != "accepted" else min(v, 2) for k, v in e.items()}, "several block lengths"),
    ],
)
def test_a_pt_that_contradicts_itself(tmp_path, change, words):
    torch = pytest.importorskip("torch")
    file = write_pt(torch, tmp_path / "x.pt", *source([40]))
    entries = torch.load(file, weights_only=True)
    torch.save([*entries[:5], change(entries[5]), *entries[6:]], file)
    with pytest.raises(ForeignError, match=words):
        import_run(file, tmp_path / "run", ImportOptions())


class Hostile:
    """What unpickling would run."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([Hostile()], "weights-only"),
        ({"a": 1}, "not a list of rounds"),
        ([], "not a list of rounds"),
        ([{"accepted": 1}], "round 0 lacks"),
        ([3], "round 0 lacks"),
    ],
)
def test_a_hostile_or_strange_pt_is_refused_not_run(tmp_path, content, words):
    torch = pytest.importorskip("torch")
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(ForeignError, match=words):
        import_run(tmp_path / "x.pt", tmp_path / "run", ImportOptions())


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04", b"no torch file"])
def test_a_damaged_pt_is_refused(tmp_path, raw):
    pytest.importorskip("torch")
    (tmp_path / "x.pt").write_bytes(raw)
    with pytest.raises(ForeignError, match="weights-only"):
        import_run(tmp_path / "x.pt", tmp_path / "run", ImportOptions())


def test_a_pt_without_torch_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    (tmp_path / "x.pt").touch()
    with pytest.raises(ForeignError, match=r"\.\[pt\]"):
        import_run(tmp_path / "x.pt", tmp_path / "run", ImportOptions())


def decoded(torch, outputs, rounds, limit):
    """Entries of the exporter, and their rows: the loop goes on while its root lies before the limit, `accepted` is
    the verifier's own count, and `realized` ends at the limit."""
    entries, rows, chain = [], [], Chain(budget=runs.DEPTH)
    played = accepted(policy_entry_budgets(chain, rounds)[0], [runs.DEPTH])[:, 0]
    for prompt, output in enumerate(outputs):
        first, start, own = int(np.flatnonzero(rounds.prompt == prompt)[0]), 0, []
        while start < limit:
            own.append(start)
            start += int(played[first + start]) + 1
        shown = output[:limit]
        rows += [first + s for s in own]
        entries += [
            entry_of(torch, rounds, first + s, int(played[first + s]), shown[s + 1 : s + 1 + runs.DEPTH]) for s in own
        ]
    return entries, rows


def well_drafted(lengths):
    """Outputs and rounds whose chain is right at four positions of five."""
    sequences, rounds = source(lengths)
    token = rounds.marginals.token.copy()
    right = (np.random.default_rng(0).random(token.shape[:2]) < 0.8) & (rounds.continuation >= 0)
    for b, d in zip(*np.nonzero(right), strict=True):
        own, true = token[b, d], rounds.continuation[b, d]
        own[own == true], own[0] = own[0], true
    return [s["output_tokens"] for s in sequences], replace(rounds, marginals=Marginals(token, rounds.marginals.logq))


@pytest.mark.parametrize("limit", range(6, 16))
def test_prompts_that_ended_at_the_token_limit_are_taken_up_to_it(tmp_path, limit):
    torch = pytest.importorskip("torch")
    outputs, rounds = well_drafted([40] * 12)
    entries, rows = decoded(torch, outputs, rounds, limit)
    torch.save(entries, tmp_path / "x.pt")
    counts = import_run(tmp_path / "x.pt", tmp_path / "run", ImportOptions()).imported
    (found,) = open_run(tmp_path / "run").rounds()
    left = limit - 1 - rounds.position[rows]  # tokens behind each root
    kept = np.array(rows)[left > 0]
    known = np.minimum(left[left > 0], runs.DEPTH)
    ahead = np.arange(runs.DEPTH) < known[:, None]
    np.testing.assert_array_equal(found.known, known)
    np.testing.assert_array_equal(found.continuation, np.where(ahead, rounds.continuation[kept], -1))
    np.testing.assert_array_equal(found.marginals.token, rounds.marginals.token[kept])
    beyond = [e["accepted"] > len(e["realized"]) > 0 for e in entries]
    assert counts == {
        "whole": int((known == runs.DEPTH).sum()),
        "censored": int((known < runs.DEPTH).sum()),
        "left_out": int((left == 0).sum()),
        "accepted_beyond_end": sum(beyond),
        "tied_at_top": 0,
    }
    assert sum(beyond) and counts["left_out"]  # the test would be idle otherwise


def saved(torch, file, *entries):
    """A file of rounds (accepted, top_idx, top_val, realized)."""
    names = ("accepted", "top_idx", "top_val", "realized")
    torch.save([dict(zip(names, (e[0], *map(torch.as_tensor, e[1:])), strict=True)) for e in entries], file)
    return file


IDS = [[5, 4, 1], [6, 2, 3], [8, 9, 7]]
LOGITS = [[2.0, 2.0, 1.0], [3.0, 1.0, 0.0], [4.0, 4.0, 4.0]]  # ties at the first position and the third


@pytest.mark.parametrize(
    ("told", "realized", "sound"),
    [
        (0, [4, 6, 9], True),  # the chain took 5
        (2, [4, 6, 9], True),  # it took 4, and then 7 or 8
        (3, [4, 6, 9], True),
        (1, [4, 6, 9], False),  # 6 stands alone: once 4 is taken, it is accepted
        (4, [4, 6, 9], False),
        (0, [5, 2, 1], True),
        (1, [5, 2, 1], True),
        (2, [5, 2, 1], False),
        (0, [1, 2, 1], True),  # a tie that decides nothing
        (1, [1, 2, 1], False),
    ],
)
def test_a_tie_at_the_top_allows_what_one_of_its_candidates_gives(tmp_path, told, realized, sound):
    torch = pytest.importorskip("torch")
    file = saved(torch, tmp_path / "x.pt", (told, IDS, LOGITS, realized), (1, IDS, LOGITS, [5]))
    if not sound:
        with pytest.raises(ForeignError, match=f"round 0 says that {told} tokens are accepted"):
            import_run(file, tmp_path / "run", ImportOptions())
        return
    facts = import_run(file, tmp_path / "run", ImportOptions())
    decided = realized[0] != 1
    assert facts.imported["tied_at_top"] == 1 + decided  # the last round is one of them
    (found,) = open_run(tmp_path / "run").rounds()
    assert found.continuation[0].tolist() == realized
    assert found.marginals.token[0, 0].tolist() == [4, 5, 1]  # ties by id


def test_the_next_round_begins_where_the_file_says(tmp_path):
    """The chain took 5, so one token was committed; by the lower id three would have been."""
    torch = pytest.importorskip("torch")
    next_ids = [[6, 2, 3], [8, 9, 7], [1, 2, 3]]
    plain = [[2.0, 1.0, 0.0]] * 3
    file = saved(torch, tmp_path / "x.pt", (0, IDS, LOGITS, [4, 6, 9]), (1, next_ids, plain, [6, 9, 5]))
    import_run(file, tmp_path / "run", ImportOptions())
    run = open_run(tmp_path / "run")
    assert run.sequences()["output_tokens"].to_list() == [[None, 4, 6, 9, 5]]
    assert next(run.rounds()).position.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_logits_of_any_real_type(tmp_path, kind):
    torch = pytest.importorskip("torch")
    logits = torch.tensor([[3.0, 2.0, 1.0]] * 3, dtype=getattr(torch, kind))
    import_run(saved(torch, tmp_path / "x.pt", (1, IDS, logits, [5])), tmp_path / "run", ImportOptions())
    (found,) = open_run(tmp_path / "run").rounds()
    np.testing.assert_allclose(found.marginals.logq[0, 0], [-0.407606, -1.407606, -2.407606], atol=1e-6)


@pytest.mark.parametrize(
    ("eos_ids", "outputs"), [((), [[None, 5, 6, 8, None, 5, 9, 9]]), ((6,), [[None, 5, 6], [None, 5, 9, 9]])]
)
def test_a_whole_round_with_an_end_of_sequence_is_its_prompts_last(tmp_path, eos_ids, outputs):
    """Its bonus token is in no row, so that only the id tells the next prompt from this one."""
    torch = pytest.importorskip("torch")
    plain = [[3.0, 2.0, 1.0]] * 3
    file = saved(torch, tmp_path / "x.pt", (3, IDS, plain, [5, 6, 8]), (1, IDS, plain, [5, 9, 9]))
    import_run(file, tmp_path / "run", ImportOptions(eos_ids=eos_ids))
    assert open_run(tmp_path / "run").sequences()["output_tokens"].to_list() == outputs


def test_an_empty_tail_may_be_of_any_type_and_stand_anywhere(tmp_path):
    torch = pytest.importorskip("torch")
    plain = [[3.0, 2.0, 1.0]] * 3
    whole, cut = (1, IDS, plain, [5, 9, 9]), (2, IDS, plain, [5, 6])
    empty = (3, IDS, plain, torch.tensor([]))  # float32, as torch makes it
    file = saved(torch, tmp_path / "x.pt", cut, empty, whole, empty, cut, empty)
    facts = import_run(file, tmp_path / "run", ImportOptions())
    assert facts.imported["left_out"] == 3
    (found,) = open_run(tmp_path / "run").rounds()
    assert (found.known.tolist(), found.position.tolist()) == ([2, 3, 2], [0, 0, 0])


def test_the_report_counts_what_is_plain_and_what_is_not(castsim, tmp_path):
    torch = pytest.importorskip("torch")
    plain = [[3.0, 2.0, 1.0]] * 3
    tied = (0, IDS, LOGITS, [4, 6, 9])
    last = (3, [[3, 4, 1], *IDS[1:]], plain, [3])
    file = saved(torch, tmp_path / "x.pt", (1, IDS, plain, [5, 2, 3]), last, tied, (0, IDS, plain, []))
    code, out, _ = castsim("import", file, "--out", tmp_path / "run", "--json", tmp_path / "report.json")
    assert code == 0
    assert "1 rounds have a tie at the top of the logits" in " ".join(out.split())
    assert "1 rounds accept more than was realised" in " ".join(out.split())
    expected = {"whole": 2, "censored": 1, "left_out": 1, "accepted_beyond_end": 1, "tied_at_top": 1}
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["run"]["imported"] == expected
