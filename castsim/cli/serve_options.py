"""Options of `castsim serve` alone."""

from __future__ import annotations

from typing import Annotated

from typer import Option

BatchProbe = Annotated[
    str,
    Option(
        "--probe",
        metavar="FILE|published",
        help="A probe with batch sizes and a drafter, or the costs of the paper's appendix F.",
    ),
]
Controllers = Annotated[
    list[str] | None,
    Option("--policy", metavar="NAME", help="Controller; again for more.", show_default="all of them"),
]
Concurrency = Annotated[
    str | None,
    Option(
        "--concurrency",
        metavar="B,B,...",
        help="Requests in flight; one number, the most, with --rate or a trace.",
        show_default="1,2,4,8,16,32, or 32",
    ),
]
Rates = Annotated[
    str | None,
    Option("--rate", metavar="R,R,...", help="Arrivals a second.", show_default="all requests wait from the start"),
]
Arrivals = Annotated[
    str,
    Option(
        "--arrivals", metavar="KIND|FILE", help="poisson, bursty, or a trace: castsim, Azure, Mooncake, BurstGPT, vLLM."
    ),
]
ServedRequests = Annotated[
    int | None,
    Option("--requests", metavar="N", min=1, help="Requests of each load.", show_default="128, or all of a trace"),
]
KvTokens = Annotated[
    int | None, Option("--kv-tokens", metavar="N", min=1, help="Room for keys and values.", show_default="no limit")
]
WithinMs = Annotated[float, Option("--within-ms", metavar="MS", min=0, help="Target for the time per output token.")]
ServeSeed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of requests and arrivals.")]

Window = Annotated[
    str,
    Option("--window", metavar="PART", help="steady: without the time in which the server fills and empties; or all."),
]
Assume = Annotated[
    list[str] | None,
    Option(
        "--assume",
        metavar="HOW",
        help="total: one request's times price a batch by all its tokens. hold: beyond the probe's prefixes the "
        "nearest one stands. Repeatable.",
        show_default=False,
    ),
]
