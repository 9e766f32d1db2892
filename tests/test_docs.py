"""What the documents show is what the code does."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "logs/README.md", "figures/README.md"]


def test_the_worked_round_of_the_schema_page():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "logs" / "README.md").read_text(), flags=re.S)
    example = doctest.DocTestParser().get_doctest(block, {}, "logs/README.md", None, 0)
    assert doctest.DocTestRunner().run(example) == doctest.TestResults(failed=0, attempted=10)


def test_the_library_example_of_the_readme(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["[[3 4]]", "[[0 1 2]]"]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in t]
    assert all(((ROOT / page).parent / target).exists() for target in targets), targets


def test_the_three_scores_of_the_readme(sample):
    """The same tree walked, on the chain's rounds, and at every position."""
    from castsim.runs.reading import open_run
    from castsim.scoring.policies import Choice
    from castsim.scoring.replay import results
    from castsim.scoring.tally import Plan, domains_of, score
    from replay.policies.topn import TopN

    run, means = open_run(sample), []
    for mode in ("walked", "chain_rounds", "per_round"):
        plan = Plan((Choice(TopN),), (63,), mode)
        rows = results(run, plan, score(run, plan, None), domains_of(run, []), seed=0)
        means.append(f"{rows[-1]['committed_pooled']:.2f}")
    text = " ".join((ROOT / "README.md").read_text().split())
    walked, chain, every = means
    assert f"commits {walked} tokens a round walked" in text
    assert f"it shows {chain}, and averaged over all positions {every}" in text


def test_the_table_of_the_readme_is_what_the_main_job_prints(sample):
    """Every number of the README's table, from the command it stands under."""
    from castsim.runs.reading import open_run
    from castsim.scoring.policies import Choice
    from castsim.scoring.replay import results
    from castsim.scoring.tally import Plan, domains_of, score
    from castsim.show.tables.replay_table import REPLAY_COLUMNS, replay_tables
    from replay.policies.topn import TopN

    run = open_run(sample)
    plan = Plan((Choice(TopN),), (15, 31, 47, 63, 95, 127), "walked")
    rows = results(run, plan, score(run, plan, None), domains_of(run, []), seed=0)
    table = replay_tables(rows)[-1]
    printed = [list(cells) for cells in zip(*(column.cells for column in table.columns), strict=True)]
    block = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)[1].splitlines()
    assert block[0] == table.title
    assert [re.split(r"\s{2,}", line) for line in block[1:]] == [list(REPLAY_COLUMNS), *printed]
