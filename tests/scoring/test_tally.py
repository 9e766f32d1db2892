"""Tallies and results against plain loops over the rounds."""

import dataclasses

import numpy as np
import polars as pl
import pytest
import run_builders as runs

from castsim.base.errors import RunLogError
from castsim.runs.reading import open_run
from castsim.scoring.calibrate import diagnose, rank_cap_loss, summary
from castsim.scoring.policies import Choice
from castsim.scoring.replay import caveats, results
from castsim.scoring.tally import Plan, domains_of, score
from replay import accepted, load_policies, policy_entry_budgets, walk
from replay.calibrate import rank_counts, rank_table
from replay.policies.chain import Chain
from replay.policies.sequoia import Sequoia
from replay.policies.topn import TopN
from replay.topn import sorted_masses


@pytest.fixture
def small(tmp_path):
    return open_run(runs.write(tmp_path / "small", [runs.prompts([19, 15, 22, 12])]))


def tally(run, *choices, budgets=(6,), mode="walked"):
    return score(run, Plan(choices, budgets, mode), None)


def accepted_by(policy, rounds):
    entry, _ = policy_entry_budgets(policy, rounds)
    return accepted(entry, [policy.budget])


def test_sequoia_never_sees_its_own_prompts(small):
    """Each half is walked with the table of the other half."""
    (rounds,) = small.rounds()
    found = tally(small, Choice(Sequoia))
    for prompt in found.prompt:
        others = rounds.take(rounds.prompt % 2 != prompt % 2)
        own = rounds.take(rounds.prompt == prompt)
        policy = Sequoia(budget=6).measured(rank_table(rank_counts(others)))
        emitted = np.minimum(accepted_by(policy, own) + 1, own.remaining[:, None])
        assert found.rounds[prompt, 1] == walk(own, emitted).sum()


def test_chain_rounds_are_the_baselines_whatever_else_is_scored(small):
    (rounds,) = small.rounds()
    played = np.hstack([accepted_by(Chain(budget=runs.DEPTH), rounds), accepted_by(TopN(budget=6), rounds)])
    own = walk(rounds, np.minimum(played[:, :1] + 1, rounds.remaining[:, None]))[:, 0]
    whole = own & ~rounds.censored
    found = tally(small, Choice(TopN), mode="chain_rounds")
    assert found.rounds.sum(axis=0).tolist() == [whole.sum()] * 2
    assert found.censored.sum(axis=0).tolist() == [(own & rounds.censored).sum()] * 2
    assert (
        found.committed.sum(axis=0).tolist()
        == (np.minimum(played + 1, rounds.remaining[:, None])[whole]).sum(axis=0).tolist()
    )
    assert found.nodes.sum(axis=0).tolist() == [whole.sum() * n for n in (runs.DEPTH, 6)]


def test_a_policy_that_is_not_nested_is_built_for_each_budget(small):
    class Odd(TopN):
        """Best-first, but every second budget is wasted."""

        name = "odd"
        nested = False

        def universe(self, marginals):
            return marginals.head(rank_cap=1 if self.budget % 2 else 8)

    both = tally(small, Choice(Odd), budgets=(5, 6)).committed.sum(axis=0)
    apart = [tally(small, Choice(Odd), budgets=(n,)).rounds.sum(axis=0)[1] for n in (5, 6)]
    assert tally(small, Choice(Odd), budgets=(5, 6)).rounds.sum(axis=0)[1:].tolist() == apart
    assert len(set(both.tolist())) == 1  # walked, all emit the same tokens


def test_intervals_belong_to_the_means_beside_them(small):
    plan = Plan((Choice(TopN),), (6,), "walked")
    rows = results(small, plan, score(small, plan, None), domains_of(small, []), seed=0)
    for row in rows:
        assert row["ci95"][0] <= row["committed_per_prompt"] <= row["ci95"][1]
        assert row["committed_pooled_ci95"][0] <= row["committed_pooled"] <= row["committed_pooled_ci95"][1]
    assert rows[-1]["ci95"] != rows[-1]["committed_pooled_ci95"]


def test_a_fault_of_tokens_is_found_though_names_are_read_without_them(small):
    """`domains_of` leaves tokens alone; whoever reads the rounds refuses them."""
    runs.alter(small.folder, "sequences-00000.parquet", pl.lit("maybe").alias("finish"))
    spoilt = open_run(small.folder)
    assert len(domains_of(spoilt, [])) == 4
    with pytest.raises(RunLogError, match="finish is none of"):
        score(spoilt, Plan((Choice(TopN),), (6,), "walked"), None)


def test_caveats_name_what_is_out_of_the_ordinary(tmp_path):
    plain = open_run(runs.write(tmp_path / "a", [runs.prompts([9])], runs.facts(notes=("Mind the gap.",))))
    odd = open_run(runs.write(tmp_path / "b", [runs.prompts([9])], runs.facts(simulated=True, normaliser="kept_ranks")))
    plan = Plan((Choice(TopN, {"rank_cap": 3}),), (6,), "walked")
    assert "Mind the gap." in caveats(plain, plan)
    assert not any(
        "simulated" in line or "full vocabulary" in line or "rank_cap" in line for line in caveats(plain, plan)
    )
    text = " ".join(caveats(odd, dataclasses.replace(plan, choices=(Choice(TopN), Choice(Sequoia)))))
    for words in (
        "simulated",
        "not over the full vocabulary",
        "rank_cap 8 is 4 here",
        "the other half of the chosen prompts",
    ):
        assert words in text


def test_a_diagnosis_by_hand(small):
    """Every figure of one domain from the chain's own rounds, by plain sums."""
    (rounds,) = small.rounds()
    played = accepted_by(Chain(budget=runs.DEPTH), rounds)
    own = rounds.take(walk(rounds, np.minimum(played + 1, rounds.remaining[:, None]))[:, 0])
    found = diagnose(small, None, domains_of(small, []), 3, lambda _: None)
    whole = summary(found["all"], 3)
    assert whole["rounds"] == len(own)
    assert whole["mean_sorted_mass"] == pytest.approx(sorted_masses(own.marginals.head(rank_cap=3), 128).mean(axis=0))
    beyond = positions = 0
    ranks = []
    for token, true, known in zip(own.marginals.token, own.continuation, own.known, strict=True):
        places = [token[d].tolist().index(true[d]) if true[d] in token[d] else runs.RANK for d in range(known)]
        first_miss = next((d for d, r in enumerate(places) if r == runs.RANK), known - 1)
        beyond += sum(r >= 3 for r in places[: first_miss + 1])
        positions += first_miss + 1
        ranks += [r for r in places if r][:1]
    assert whole["true_token_share_beyond_rank_cap"] == pytest.approx(beyond / positions)
    assert whole["first_rejections"] == len(ranks)
    shares = [*whole["first_rejection_share_by_rank"], whole["first_rejection_share_beyond_kept"]]
    assert shares == pytest.approx([ranks.count(r) / len(ranks) for r in range(1, runs.RANK + 1)])
    assert sum(b["candidates"] for b in whole["reliability"] if b["depth"] == 1) == 3 * len(own)


def test_rank_cap_loss_is_what_the_cap_costs(small):
    rows = rank_cap_loss(small, None, domains_of(small, []), 1, lambda _: None)
    (row,) = [r for r in rows if r["domain"] == "all" and r["budget"] == 32]
    means = []
    for kind, options in ((TopN, {"rank_cap": 1}), (load_policies()["full"], {})):
        found = tally(small, Choice(kind, options), budgets=(32,))
        means.append(found.committed.sum(axis=0)[1] / found.rounds.sum(axis=0)[1])
    assert [row["committed_pooled_capped"], row["committed_pooled_uncapped"]] == pytest.approx(means)
    assert row["loss"] == pytest.approx(1 - means[0] / means[1])
    assert row["loss"] > 0
