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
    l(0), c1    fixed_ms, slope_ms        ms         time of a round without nodes; time that a node adds (Theorem 2)
                rank              B,L     1          place among the candidates of a position, from 0 in arrays
                depth             B,1+N   1          distance from the root; 1..L for nodes
                width             B       nodes      nonroot nodes that a tree has, at most its budget
                known, remaining  B       tokens     of the continuation: at hand (at most L); to the output's end
                censored          B                  known < L: the end of the output cuts the continuation short
                spine                                the top-1 path
                universe                             the candidates that a policy may use
                gain              1       fraction   R over the chain's, less 1: in rounds, not in time

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
