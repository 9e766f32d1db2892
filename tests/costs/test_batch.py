"""Costs of a batch, and arrivals."""

import json

import numpy as np
import pytest

from castsim.base.errors import OptionError
from castsim.costs.batch import DRAFT_MS, TAX, TAX_TOKENS, batch_cost
from castsim.serving.arrivals import arrivals


def test_the_published_surface_keeps_what_appendix_f_prints():
    cost = batch_cost("published")
    for batch, tax in TAX.items():
        said = cost.target_ms(batch, TAX_TOKENS * batch) / cost.target_ms(batch, batch) - 1
        assert 100 * (said - tax) == pytest.approx(dict(cost.residuals)[batch])
        assert abs(said - tax) < 0.17  # one number for three taxes
    assert {batch: cost.draft_ms(batch) for batch in DRAFT_MS} == pytest.approx(DRAFT_MS)


def probe_file(tmp_path, batch, draft=True):
    packed = [1, 16, 64]
    ms = [[[10 + 0.1 * b * n for n in packed] for b in batch]]
    text = {"packed": packed, "ms": ms, "prefix": [512], "batch": batch}
    if draft:
        text["draft_ms"] = [[2.0 + b for b in batch]]
    file = tmp_path / "probe.json"
    file.write_text(json.dumps(text))
    return str(file)


def test_a_probe_is_read_between_what_it_measured(tmp_path):
    cost = batch_cost(probe_file(tmp_path, [1, 8]))
    assert cost.target_ms(8, 8 * 16) == pytest.approx(10 + 0.1 * 8 * 16)
    assert cost.target_ms(4, 4 * 16) == pytest.approx(10 + 0.1 * 4 * 16)
    assert cost.draft_ms(4) == pytest.approx(6)
    assert cost.prefill_ms(640) == pytest.approx(10 * cost.prefill_ms(64))
    for batch, packed, said in ((9, 9, "8 requests in a pass, and 9"), (8, 8 * 65, "64 packed tokens a request")):
        with pytest.raises(OptionError, match=f"ends at {said}"):
            cost.target_ms(batch, packed)


@pytest.mark.parametrize(
    ("batch", "draft", "said"), [([1], True, "no batch axis"), ([1, 8], False, "no drafter times")]
)
def test_a_probe_that_says_nothing_of_a_batch_is_refused(tmp_path, batch, draft, said):
    with pytest.raises(OptionError, match=said):
        batch_cost(probe_file(tmp_path, batch, draft))


@pytest.mark.parametrize("kind", ["poisson", "bursty"])
def test_arrivals_have_their_rate(kind):
    found = arrivals(kind, 50, 20_000, np.random.default_rng(1))
    assert len(found) == 20_000 and (np.diff(found) >= 0).all()
    assert found[-1] == pytest.approx(1000 * 20_000 / 50, rel=0.1)
    spread = np.diff(found).std() / np.diff(found).mean()
    assert spread == pytest.approx(1, rel=0.05) if kind == "poisson" else spread > 2


def test_a_probe_of_one_request_serves_a_batch_only_where_that_is_assumed(tmp_path):
    cost = batch_cost(probe_file(tmp_path, [1]), ["total"])
    assert cost.target_ms(4, 4 * 16) == cost.target_ms(1, 64) == pytest.approx(10 + 6.4)
    assert cost.target_ms(8, 640) == pytest.approx(10 + 64)
    assert cost.draft_ms(8) == 3
    with pytest.raises(OptionError, match="--assume best"):
        batch_cost(probe_file(tmp_path, [1]), ["best"])


@pytest.mark.parametrize("batch", [[1, 8], [1]])
def test_a_pass_is_priced_between_the_prefixes_of_its_requests(tmp_path, batch):
    """10 ms at no context and 1 ms more for each 100 cached tokens; at the ends the nearest prefix stands."""
    ms = [[[10 + x / 100 for _ in (1, 16, 64)] for _ in batch] for x in (0, 4000)]
    found = {"packed": [1, 16, 64], "ms": ms, "prefix": [0, 4000], "batch": batch, "draft_ms": [[2.0] * len(batch)] * 2}
    (tmp_path / "p.json").write_text(json.dumps(found), encoding="utf-8")
    cost = batch_cost(str(tmp_path / "p.json"), ["total"] if batch == [1] else [])
    for context, ms in (([1000], 20), ([0, 4000], 30), ([9000], 50), ([100, 300, 2000], 18)):
        assert cost.at(np.array(context)).target_ms(1, 16) == pytest.approx(ms)


def test_an_assumption_that_has_no_effect_is_refused(tmp_path):
    with pytest.raises(OptionError, match="has batch sizes of its own"):
        batch_cost(probe_file(tmp_path, [1, 8]), ["total"])
    with pytest.raises(OptionError, match="published costs need no assumption"):
        batch_cost("published", ["hold"])
