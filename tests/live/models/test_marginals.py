"""Rows of a dense log against the drafter asked at one position at a time."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

from castsim.live.models import marginals  # noqa: E402
from castsim.live.models.marginals import _ranked, dense_rows  # noqa: E402
from replay import Marginals  # noqa: E402

PROMPT, OUTPUT = [5, 9, 30], [40, 41, 42, 43, 44, 45, 46, 0]


@torch.inference_mode()
def alone(drafter, position):
    """Log-probabilities (L, V) of one root, from a forward over its own prefix."""
    tokens = torch.tensor([[*PROMPT, *OUTPUT[: position + 1]]])
    anchor = tokens.shape[1] - 1
    _, features = drafter.target.forward(tokens[:, :-1], drafter.layer_ids)
    logits = drafter.logits(drafter.context(features, tokens), tokens, torch.tensor([[anchor]]))
    return logits[0, 0].log_softmax(dim=-1).numpy()


@pytest.mark.parametrize("kind", ["dflash", "dart"])
@pytest.mark.parametrize("rows_in_pass", [1, 10, 2048])
def test_rows_equal_one_position_at_a_time(pairs, kind, rows_in_pass, monkeypatch):
    monkeypatch.setattr(marginals, "ROWS_IN_PASS", rows_in_pass)
    drafter = tiny.loaded(pairs[kind])
    ids = np.arange(tiny.VOCAB) if drafter.token_of is None else drafter.token_of.numpy()
    rows = dense_rows(drafter, PROMPT, OUTPUT, rank_kept=6, with_target=True)
    Marginals(rows.token, rows.logq)  # ranked, distinct, sums at most 1
    for position in range(len(OUTPUT) - 1):
        logq = alone(drafter, position)
        best = np.argsort(-logq, axis=1, kind="stable")[:, :6]
        assert np.array_equal(rows.token[position], ids[best])
        assert np.allclose(rows.logq[position], np.take_along_axis(logq, best, axis=1), atol=1e-4)
        for d in range(drafter.depth_max):
            check_true_token(rows, position, d, ids, logq[d])


def check_true_token(rows, position, d, ids, logq):
    rank, score = rows.true_rank[position, d], rows.true_logq[position, d]
    if position + 1 + d >= len(OUTPUT):
        assert rank == -1 and np.isnan(score)
    elif OUTPUT[position + 1 + d] not in ids:  # scenario 35: outside the draft vocabulary is a miss, not rank 0
        assert rank == len(ids) + 1 and score == -np.inf
    else:
        true = int(np.flatnonzero(ids == OUTPUT[position + 1 + d])[0])
        assert rank == 1 + (logq > logq[true]).sum() and np.isclose(score, logq[true], atol=1e-4)


@torch.inference_mode()
def test_target_log_probabilities_are_those_behind_the_true_prefix(pairs):
    drafter = tiny.loaded(pairs["dflash"])
    rows = dense_rows(drafter, PROMPT, OUTPUT, rank_kept=6, with_target=True)
    position, d = 2, 1
    prefix = torch.tensor([[*PROMPT, *OUTPUT[: position + 1 + d]]])
    logp = drafter.target.model(prefix, use_cache=False).logits[0, -1].log_softmax(dim=-1).numpy()
    assert np.allclose(rows.target_logp[position, d], logp[rows.token[position, d]], atol=1e-4)
    assert np.isnan(rows.target_logp[-1, 1:]).all() and not np.isnan(rows.target_logp[-1, 0]).any()


def test_greedy_outputs_agree_with_one_reading_of_the_whole_text(pairs):
    from castsim.live.models.continuations import continuations
    from castsim.live.models.sampling import Sampling

    drafter = tiny.loaded(pairs["dflash"])
    (output,) = continuations(drafter.target, [PROMPT], [20], [], Sampling(), [(0,)])
    assert not dense_rows(drafter, PROMPT, output, 4).disagreed.any()
    wrong = [*output[:5], (output[5] + 1) % tiny.VOCAB, *output[6:]]
    assert dense_rows(drafter, PROMPT, wrong, 4).disagreed[4]


def test_equal_scores_go_by_the_smaller_id_also_at_the_cut(pairs):
    """Scenario 16, over the whole vocabulary: which of many equal tokens is kept is no accident."""
    drafter = tiny.loaded(pairs["dflash"])
    logits = torch.zeros(1, 4, tiny.VOCAB)
    logits[0, 0, [17, 250]] = 1.0
    token, _, rank, _, damaged = _ranked(drafter, logits, torch.tensor([[250, 299, -1, 0]]), 4)
    assert token[0].tolist() == [[17, 250, 0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert rank[0].tolist() == [2, 300, -1, 1] and not damaged[0]


def test_nan_from_the_drafter_marks_the_row_and_no_other(pairs):
    drafter = tiny.loaded(pairs["dflash"])
    logits = torch.zeros(2, 4, tiny.VOCAB)
    logits[1, 2, 5] = torch.nan
    token, logq, _, _, damaged = _ranked(drafter, logits, torch.full((2, 4), 7), 3)
    assert damaged.tolist() == [False, True]
    assert (logq[1] == -torch.inf).all() and token[1, 0].tolist() == [0, 1, 2]
    Marginals(token.numpy(), logq.numpy())


def test_an_output_of_one_token_has_no_rows(pairs):
    rows = dense_rows(tiny.loaded(pairs["dflash"]), PROMPT, [0], 4)
    assert rows.token.shape == (0, 4, 4) and rows.disagreed.shape == (0,)
