"""Arguments and options of the command line, each described once; the same name means the same in every verb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

RunFolder = Annotated[
    Path | None, Argument(metavar="[RUN]", help="Run folder; the sample run if left out.", show_default=False)
]
Policies = Annotated[
    list[str] | None, Option("--policy", metavar="NAMES", help="Policies with commas, or all.", show_default="topN")
]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Option of the policies; repeatable.", show_default=False),
]
Budgets = Annotated[str, Option(metavar="N,N,...", help="Nonroot nodes of the trees.")]
ScoreMode = Annotated[
    str | None,
    Option(
        "--mode", metavar="MODE", help="walked, per-round or chain-rounds.", show_default="walked if the log is dense"
    ),
]
Domains = Annotated[
    list[str] | None,
    Option("--domain", metavar="NAME", help="Only prompts of this domain; repeatable.", show_default=False),
]
Jobs = Annotated[int, Option(metavar="N", min=1, help="Processes.")]
Seed = Annotated[int, Option(metavar="N", min=0, help="Seed of the bootstrap.")]
RankCap = Annotated[int, Option(metavar="N", min=1, help="Ranks that a tree would use.")]
Json = Annotated[
    str | None,
    Option("--json", metavar="FILE", help="Write JSON there; - prints it and nothing else.", show_default=False),
]
Csv = Annotated[Path | None, Option("--csv", metavar="FILE", help="Write the results as CSV.", show_default=False)]
Plot = Annotated[Path | None, Option(metavar="FILE", help="Draw as PNG, SVG or PDF.", show_default=False)]

ForeignFile = Annotated[Path, Argument(metavar="FILE", help="Foreign log: .npz, .pt or .jsonl.")]
Out = Annotated[Path, Option(metavar="RUN", help="Run folder to make.")]
SequencesFile = Annotated[
    Path | None, Option(metavar="FILE", help="Prompts and outputs of an .npz.", show_default="STEM_sequences.json")
]
EosIds = Annotated[list[int] | None, Option(metavar="ID", help="End-of-sequence id; repeatable.", show_default=False)]
Domain = Annotated[str, Option(metavar="NAME", help="Domain, where the log names none.")]
PerDomain = Annotated[int | None, Option(metavar="N", min=1, help="Keep so many prompts a domain.", show_default=False)]
FactPairs = Annotated[
    list[str] | None,
    Option(
        "--fact",
        metavar="KEY=VALUE",
        help="For the manifest: target, drafter, dtype, licence, vocab_size; repeatable.",
        show_default=False,
    ),
]

Target = Annotated[
    str, Option("--target", metavar="ID", help="Target: folder, .gguf file, Hugging Face id, pair or gemma3-270m.")
]
Drafter = Annotated[
    str | None,
    Option(
        "--drafter",
        metavar="ID",
        help="DFlash or DART head: folder, Hugging Face id, pair-dflash or pair-dart.",
        show_default="pair-dflash for the target pair",
    ),
]
Prompts = Annotated[
    str | None,
    Option(
        metavar="FILE|NAME",
        help="JSONL with prompt or turns; or gsm8k, math500, humaneval, mbpp, mt-bench.",
        show_default="the pair's own 60",
    ),
]
Limit = Annotated[int | None, Option(metavar="N", min=1, help="Only the first N prompts.", show_default=False)]
RunOut = Annotated[Path, Option("--out", metavar="RUN", help="Run folder to make, or to go on with.")]
NewTokens = Annotated[int, Option("--max-new-tokens", metavar="N", min=1, help="Longest output.")]
RankKept = Annotated[int, Option("--rank-kept", metavar="K", min=1, help="Candidates to keep at each future position.")]
Temperature = Annotated[float, Option(metavar="T", help="0 is greedy.")]
TopK = Annotated[int, Option("--top-k", metavar="N", help="Draw among so many tokens; 0: all.")]
TopP = Annotated[float, Option("--top-p", metavar="P", help="Draw among the likeliest tokens of mass P.")]
Raw = Annotated[bool, Option("--raw", help="No chat template, as for a base model.")]
Thinking = Annotated[bool, Option("--thinking", help="Tell the chat template to let the target think.")]
Dtype = Annotated[str, Option("--dtype", metavar="TYPE", help="float32, bfloat16 or float16; auto: float32 on a CPU.")]
Device = Annotated[str, Option("--device", metavar="NAME", help="cpu, cuda, cuda:1; auto: a GPU if there is one.")]
Batch = Annotated[int, Option(metavar="N", min=1, help="Prompts at once, and what a crash can cost.")]
ShardOf = Annotated[
    str | None,
    Option("--shard", metavar="I/N", help="This process's part of the prompts.", show_default="torchrun's, or 1/1"),
]
Sparse = Annotated[
    str | None,
    Option("--sparse", metavar="NAME", help="Keep only the rounds that this policy plays.", show_default=False),
]
Budget = Annotated[int, Option("--budget", metavar="N", min=1, help="Nonroot nodes of the policy's trees.")]
TargetLogp = Annotated[bool, Option("--target-logp", help="Keep the target's log-probabilities at the candidates.")]
Licence = Annotated[
    str | None, Option(metavar="TEXT", help="Of prompts and models, for the manifest.", show_default="the pair's own")
]
RecordSeed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of the sampled outputs.")]

LiveLimit = Annotated[
    int | None,
    Option("--limit", metavar="N", min=1, help="Only so many prompts.", show_default="6 of the pair's own, else all"),
]
Repeats = Annotated[int, Option(metavar="N", min=1, help="Timed passes over all prompts.")]
VerifierName = Annotated[
    str, Option("--verifier", metavar="NAME", help="At a temperature: direct, or recursive (Theorem 3).")
]
NoAr = Annotated[bool, Option("--no-ar", help="Leave out autoregressive decoding, and the speedup over it.")]
NoChain = Annotated[bool, Option("--no-chain", help="Leave out the chain, and the gain over it.")]
PromptText = Annotated[str, Argument(metavar="PROMPT", help="What to answer.")]
OnePolicy = Annotated[str, Option("--policy", metavar="NAME", help="Policy, or ar for autoregressive decoding.")]
CheckLimit = Annotated[
    int | None,
    Option("--limit", metavar="N", min=1, help="Only so many prompts.", show_default="2 of the pair's own, else all"),
]
NearTie = Annotated[
    float,
    Option("--near-tie", metavar="X", min=0.0, help="Difference of two logits that a narrow type may turn round."),
]
Draws = Annotated[int, Option(metavar="N", min=1, help="Walks of each verifier on each prompt's first tree.")]

PolicyProbe = Annotated[
    str | None,
    Option(
        "--probe",
        metavar="FILE|NAME",
        help="For costaware and perround: a file of castsim probe, or a probe by name.",
        show_default=False,
    ),
]
ProbeName = Annotated[
    str,
    Option(
        "--probe", metavar="FILE|NAME", help="File of castsim probe, a CSV, or a probe by name: blackwell-qwen3-8b, ..."
    ),
]
Masses = Annotated[
    str | None,
    Option(
        metavar="RUN|NAME|FILE",
        help="Run folder, published curve (qwen3-8b-gsm8k, ...), or JSON or CSV of masses.",
        show_default="the sample run",
    ),
]
Prefix = Annotated[
    int | None, Option(metavar="N", min=0, help="Cached tokens to price.", show_default="those of the run's rounds")
]
Hold = Annotated[
    str | None,
    Option(
        "--assume",
        metavar="hold",
        help="Outside the prefixes of the probe the nearest one stands.",
        show_default=False,
    ),
]
Strict = Annotated[bool, Option("--strict", help="Refuse a probe of another model, drafter, dtype or device.")]
AllBudgets = Annotated[
    str | None,
    Option("--budgets", metavar="N,N,...", help="Nonroot nodes of the trees.", show_default="what the probe prices"),
]
Requests = Annotated[int, Option("--batch", metavar="N", min=1, help="Requests in a pass to price.")]
DraftMs = Annotated[
    float | None, Option("--draft-ms", metavar="MS", min=0.0, help="Drafter's pass.", show_default="the probe's")
]
OverheadMs = Annotated[
    str, Option("--overhead", metavar="MS[,MS]", help="Host time of a round, and of each node of it.")
]
LineMethod = Annotated[
    str, Option("--line", metavar="METHOD", help="least_squares, endpoints or theil_sen: the affine rule's line.")
]
Emit = Annotated[
    str | None,
    Option(metavar="ENGINE", help="Print the answer for sglang, vllm or lucebox, or as json.", show_default=False),
]
Force = Annotated[bool, Option("--force", help="Emit what is slower than decoding without a drafter, too.")]
Published = Annotated[bool, Option("--published", help="Recompute the paper's figures instead, cell by cell.")]

ProbeOut = Annotated[Path, Option("--out", metavar="FILE", help="Probe file to make.")]
PackedCounts = Annotated[
    str | None,
    Option("--packed", metavar="N,N,...", help="Packed tokens.", show_default="1,2,4,8,16,24,32,48,64,96,128"),
]
Prefixes = Annotated[
    str | None,
    Option("--prefix", metavar="N,N,...", help="Cached tokens.", show_default="1024, or half of what the models take"),
]
Batches = Annotated[str, Option("--batch", metavar="N,N,...", help="Requests in a pass.")]
Plain = Annotated[bool, Option("--plain", help="Without tree mask and hidden states, as the paper's probe.")]
RandomWeights = Annotated[
    bool, Option("--random-weights", help="A target of random weights, on which times do not depend.")
]
ConfigFile = Annotated[
    Path | None, Option("--config", metavar="FILE", help="config.json of a random target.", show_default=False)
]
DrafterConfigFile = Annotated[
    Path | None,
    Option("--drafter-config", metavar="FILE", help="config.json of a random DFlash head for it.", show_default=False),
]
Warmups = Annotated[int, Option(metavar="N", min=0, help="Untimed calls of each shape.")]
Iterations = Annotated[int, Option(metavar="N", min=1, help="Timed calls of each shape.")]
ProbeSeed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of tokens, trees and random weights.")]
LiveFile = Annotated[
    Path | None,
    Option("--live", metavar="FILE", help="JSON of castsim live: its rounds give the host's time.", show_default=False),
]

ProfileName = Annotated[
    str, Option("--profile", metavar="NAME|FILE", help="Profile of the simulation: castsim report-profile.")
]
RoundCount = Annotated[int, Option("--rounds", metavar="N", min=1, help="Positions, to the nearest whole output.")]
SimulatedOut = Annotated[Path, Option("--out", metavar="RUN", help="Run folder to make.")]
OutputTokens = Annotated[
    int | None, Option("--tokens", metavar="N", min=2, help="Longest output.", show_default="the profile's")
]
DepthMax = Annotated[
    int | None,
    Option("--depth-max", metavar="L", min=1, help="Positions of a draft pass.", show_default="the profile's"),
]
VocabSize = Annotated[int, Option("--vocab-size", metavar="N", help="Token ids.")]
EosRate = Annotated[float, Option("--eos-rate", metavar="P", help="Chance of each token to end the output.")]
SimulationSeed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of everything that is drawn.")]
FittedRun = Annotated[Path | None, Argument(metavar="[RUN]", help="Recorded dense run to fit to.", show_default=False)]
PublishedNames = Annotated[
    str | None,
    Option(
        "--published", metavar="NAMES", help="Fit published statistics: names with commas, or all.", show_default=False
    ),
]
ProfileOut = Annotated[Path, Option("--out", metavar="FILE|FOLDER", help="Profile to make; a folder with --published.")]
FitRows = Annotated[int, Option("--rows", metavar="N", min=256, help="Rounds to simulate at a time.")]
FitSteps = Annotated[int, Option("--steps", metavar="N", min=1, help="Steps of the fit.")]
FitSeed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of the fit's draws.")]
ReportedProfile = Annotated[str, Argument(metavar="[NAME|FILE]", help="Profile, or all that castsim carries.")]
ReportSeed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of the draws; not the fit's.")]
FigureRun = Annotated[
    Path | None, Option("--run", metavar="RUN", help="Run to draw beside the paper.", show_default="the sample run")
]
FigureOut = Annotated[Path, Option("--out", metavar="FOLDER", help="Where the pictures go.")]
ReportOut = Annotated[Path, Option("--out", metavar="FILE", help="HTML page to write.")]

BatchOf = Annotated[int, Option("--batch", metavar="B", min=1, help="Requests in a batch.")]
PerRequest = Annotated[str, Option("--per-request", metavar="N,N,...", help="Mean nodes a request; M = B times that.")]
BatchDraws = Annotated[int, Option("--batches", metavar="N", min=2, help="Random batches.")]
RequestPool = Annotated[int, Option("--requests", metavar="N", min=1, help="Requests of a domain to draw from.")]
AllocationSeed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of the batches.")]

Backend = Annotated[
    str, Option("--backend", metavar="NAME", help="local, or dask for a cluster that is there (needs '.[cluster]').")
]
Scheduler = Annotated[
    str | None,
    Option("--scheduler", metavar="tcp://HOST:PORT", help="Of the Dask cluster.", show_default=False),
]
