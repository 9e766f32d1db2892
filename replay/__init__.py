"""Replay of tree policies on recorded rounds, in NumPy alone: arrays in, arrays out, no files, no hidden state.

Glossary: one symbol, one name.

    paper       name              shape   unit       meaning (item)
    b           root                                 pending root: committed, in no cache yet (section 2)
    L, K        depth_max, rank_kept                 positions a draft pass scores; candidates kept at each
    K           rank_cap                             ranks that a policy uses of those kept (section 3.2)
    q_j         logq              B,L,K   nat        log-probability over the full vocabulary (eq. 1)
    pi-hat      score             B,1+N   nat        sum of logq along a path (eq. 1)
    rho         mass              B,N     1          exp(score): a node's probability of acceptance (Lemma 2)
    Y           continuation      B,L     token id   what the target said after the root
    N, n        budget, packed            nodes      nonroot nodes; packed = budget + 1
                entry budget      B,L     nodes      place of Y_1:d in the policy's order; N + 1 outside its tree
    A, R        accepted, committed       tokens     A draft tokens and the target's own: R = A + 1
    g(N)        expected_accepted N+1     tokens     sum of the N largest masses (Theorem 2)
    l(N), c1    round_ms, slope_ms        ms         time of a round; time that one more node adds (Theorem 2)

R counts emitted tokens. Its mean is always named: *pooled* is the sum of committed over the number of rounds,
*per prompt* the mean of the prompts' own means. *Walked* means that a policy's rounds start where its own previous
round ended; *per round* that it is scored on rounds which something else laid out.
"""

from replay.accept import accepted, committed, entry_budgets, forest_entry_budgets
from replay.forest import Forest
from replay.policies import Policy, load_policies, policy_entry_budgets
from replay.rounds import Marginals, Rounds, RowError
from replay.topn import best_first
from replay.trajectory import walk

__all__ = [
    "Forest",
    "Marginals",
    "Policy",
    "Rounds",
    "RowError",
    "accepted",
    "best_first",
    "committed",
    "entry_budgets",
    "forest_entry_budgets",
    "load_policies",
    "policy_entry_budgets",
    "walk",
]
