"""The columns of a run's Parquet files; logs/README.md says what they mean."""

from __future__ import annotations

import polars as pl

from castsim.runs.manifest import Facts

NAME_PATTERN = r"^[\p{L}\p{N} _.:+/#-]{1,200}$"  # printed and drawn as they are, so no markup and no control codes
FINISH = ("stop", "length", "unknown")

SEQUENCES = pl.Schema(
    {
        "prompt": pl.Int32,
        "prompt_id": pl.String,
        "domain": pl.String,
        "prompt_tokens": pl.List(pl.Int32),
        "output_tokens": pl.List(pl.Int32),
        "finish": pl.String,
    }
)


def rounds_schema(facts: Facts) -> pl.Schema:
    """Columns of rounds-*.parquet for a run of L positions and K ranks."""
    shape = (facts.depth_max, facts.rank_kept)
    return pl.Schema(
        {
            "prompt": pl.Int32,
            "position": pl.Int32,
            "context": pl.Int32,
            "root": pl.Int32,
            "token": pl.Array(pl.Int32, shape),
            "logq": pl.Array(pl.Float32, shape),
            "chain_accepted": pl.Int32,
        }
    )


def optional_schema(facts: Facts) -> pl.Schema:
    """Columns that a recorder can add, since it sees the whole vocabulary and the target; replay does not need them."""
    depth_max, rank_kept = facts.depth_max, facts.rank_kept
    return pl.Schema(
        {
            "true_rank": pl.Array(pl.Int32, depth_max),
            "true_logq": pl.Array(pl.Float32, depth_max),
            "target_logp": pl.Array(pl.Float32, (depth_max, rank_kept)),
            "damaged": pl.Boolean,
            "disagreed": pl.Boolean,
        }
    )


def fits(found: pl.DataType | None, wanted: pl.DataType) -> bool:
    """Any integer or float type will do where the schema has one; shapes must be the manifest's."""
    if isinstance(wanted, (pl.Array, pl.List)):
        same = type(found) is type(wanted) and getattr(found, "shape", None) == getattr(wanted, "shape", None)
        return same and fits(_innermost(found), _innermost(wanted))
    if found is None or wanted == pl.String:
        return found == wanted
    return found.is_integer() if wanted.is_integer() else found.is_float()


def _innermost(kind: pl.DataType | None) -> pl.DataType:
    while isinstance(kind, (pl.Array, pl.List)):
        kind = kind.inner
    return kind
