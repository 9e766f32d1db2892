"""From timed decodes to the figures of `castsim live`, by hand."""

from dataclasses import replace

import pytest

from castsim.advice.forecast import RoundCost
from castsim.live.summary import Decode, Method, Walked, live_rows
from castsim.scoring.policies import Choice
from castsim.show.tables.live_table import live_table
from replay.policies.chain import Chain
from replay.policies.topn import TopN

AR, CHAIN, TREE = Method(None), Method(Choice(Chain), 15), Method(Choice(TopN), 63)


def decode(method, prompt, committed, ms, repeat=1, parts=()):
    """Packed rows are the budget's; the output is that of all methods of a prompt."""
    output = tuple(range(1 + sum(committed)))
    return Decode(method, prompt, repeat, "length", output, ms, committed, (2,) * len(committed), parts)


def scenario_10():
    """Prompt A: one round of 10; prompt B: five rounds of 2. AR takes 10 and 30 ms a token, the tree 5 and 10."""
    return [
        decode(0, 0, (1,) * 10, 100.0),
        decode(0, 1, (1,) * 10, 300.0),
        decode(1, 0, (10,), 50.0),
        decode(1, 1, (2,) * 5, 100.0),
    ]


def test_means_are_pooled_and_say_so():
    ar, tree = live_rows([AR, TREE], scenario_10(), [None, None])
    assert tree["committed_pooled"] == pytest.approx(20 / 6)
    assert ar["ms_per_token"] == 20.0 and tree["ms_per_token"] == 7.5
    assert tree["speedup_over_ar"] == pytest.approx(20 / 7.5)
    assert tree["tokens"] == 20 and tree["rounds"] == 6 and tree["prompts_equal_to_ar"] == 2


def test_a_missing_baseline_leaves_its_columns_out():
    only_tree = [replace(d, method=0) for d in scenario_10() if d.method == 1]
    (row,) = live_rows([TREE], only_tree, [None])
    assert not {"speedup_over_ar", "gain_over_chain", "prompts_equal_to_ar"} & row.keys()
    heads = [column.header for column in live_table([row], 2).columns]
    assert not [head for head in heads if "over" in head or "AR" in head]


def test_the_gain_over_the_chain_is_zero_for_the_chain():
    chain, tree = live_rows([CHAIN, TREE], scenario_10(), [None, None])
    assert chain["gain_over_chain"] == 0.0 and tree["gain_over_chain"] == pytest.approx(20 / 7.5 - 1)
    assert tree["gain_over_chain_ci95"][0] <= tree["gain_over_chain"] <= tree["gain_over_chain_ci95"][1]


def test_repeats_count_once_in_tokens_and_by_their_median_in_time():
    slow = [replace(d, repeat=r, window_ms=d.window_ms * f) for d in scenario_10() for r, f in ((2, 1.0), (3, 9.0))]
    rows = live_rows([AR, TREE], scenario_10() + slow, [None, None])
    assert [row["ms_per_token"] for row in rows] == [20.0, 7.5] and rows[1]["tokens"] == 20


def test_a_prompt_that_prefill_answers_has_no_rounds_and_no_figures():
    rows = live_rows([AR, TREE], [decode(0, 0, (), 0.0), decode(1, 0, (), 0.0)], [None, Walked(((),), 64.0, None)])
    assert rows[1]["committed_pooled"] is None and rows[1]["ms_per_token"] is None
    assert rows[1]["speedup_over_ar"] is None and rows[1]["prompts_equal_to_replay"] == 1
    assert any("n/a" in cell for column in live_table(rows, 1).columns for cell in column.cells)


def test_the_forecast_leaves_out_each_first_draft_as_the_window_does():
    cost = RoundCost(draft_ms=4.0, prepare_ms=1.0, target_ms=10.0, finish_ms=1.0)
    assert cost.round_ms == 16.0 and cost.overhead_ms == 2.0
    assert cost.ms_per_token(rounds=6, tokens=20, prompts=2) == pytest.approx((6 * 16 - 2 * 5) / 20)


def test_the_forecast_takes_rounds_from_the_replay_and_times_from_the_profiled_pass():
    parts = ((4.0, 0.5, 0.5, 10.0, 0.5, 0.5),) * 3
    profiled = [decode(0, 0, (1,) * 10, 0.0, 0, ((0.0, 0.0, 0.0, 8.0, 0.0, 0.0),)), decode(1, 0, (10,), 0.0, 0, parts)]
    walked = Walked(((10,), (2,) * 5), 64.0, (2.0, 5.0))
    ar, tree = live_rows([AR, TREE], scenario_10() + profiled, [None, walked])
    assert ar["ms_per_token_forecast"] == pytest.approx(8.0)
    assert tree["ms_per_token_forecast"] == pytest.approx((6 * 16 - 2 * 5) / 20)
    assert tree["speedup_over_ar_forecast"] == pytest.approx(8.0 / 4.3)
    assert tree["prompts_equal_to_replay"] == 2 and tree["committed_pooled_replay"] == pytest.approx(20 / 6)
    assert tree["shares"]["target"] == pytest.approx(10 / 16)


def test_a_round_that_differs_from_the_replay_is_counted():
    walked = Walked(((9, 1), (2,) * 5), 64.0, None)
    _, tree = live_rows([AR, TREE], scenario_10(), [None, walked])
    assert tree["prompts_equal_to_replay"] == 1
