"""The manifest of a run folder: facts about the run and a digest of each file. Written last, so its presence means
that the run is whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from castsim.base.errors import RunLogError, first_line
from castsim.base.textfile import read_json, write_whole

SCHEMA_VERSION = 2
NAME = "manifest.json"
REWRITE = "record or import the run again"


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control codes or other characters that cannot be printed")
    return text


Text = Annotated[str, AfterValidator(_printable)]  # what a run says of itself goes to terminals and pictures


class Facts(BaseModel):
    """What whoever writes a run knows about it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    layout: Literal["dense", "sparse"]  # a row for each position, or only for the logging policy's rounds
    depth_max: int = Field(ge=1)  # L
    rank_kept: int = Field(ge=1)  # K
    normaliser: Literal["full_vocabulary", "kept_ranks"] = "full_vocabulary"  # what logq sums to 1 over
    logged_by: Text | None = None  # a sparse log's policy
    vocab_size: int | None = Field(default=None, ge=1)
    eos_ids: tuple[int, ...] = Field(default=(), strict=False)
    target: Text | None = None
    drafter: Text | None = None
    drafter_kind: Text | None = None  # dflash, dart
    target_revision: Text | None = None  # a commit of the hub, or the SHA-256 of local weights
    drafter_revision: Text | None = None
    draft_vocab_size: int | None = Field(default=None, ge=1)  # of the drafter's logits; ids are the target's always
    dtype: Text | None = None
    device: Text | None = None
    attention: Text | None = None
    versions: dict[str, Text] = Field(default_factory=dict)
    temperature: float | None = Field(default=None, ge=0)  # 0 is greedy
    top_k: int | None = None
    top_p: float | None = None
    new_tokens: int | None = None  # limit of an output
    target_logp: bool = False  # the column is there
    template: Literal["chat", "raw"] | None = None
    thinking: bool | None = None  # what the chat template was told
    source: Text | None = None  # file name and digest of what was imported, or digest of the prompts recorded
    licence: Text | None = None
    imported: dict[str, int] = Field(default_factory=dict)  # what became of the rows of a foreign log, by name
    simulated: bool = False
    seed: int | None = None
    notes: tuple[Text, ...] = Field(default=(), strict=False)


class FileEntry(BaseModel):
    """One Parquet file of the run. The name's form keeps a hostile manifest inside its folder."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: str = Field(pattern=r"^(sequences|rounds)-\d{5}\.parquet$")
    rows: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """Everything in manifest.json. `digest` is the SHA-256 of the rest, so that no fact changes unseen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: Literal["castsim-run"] = "castsim-run"
    schema_version: int = SCHEMA_VERSION
    castsim_version: str
    facts: Facts
    prompts: int = Field(ge=0)
    rounds: int = Field(ge=0)
    domains: tuple[Text, ...] = Field(strict=False)
    files: tuple[FileEntry, ...] = Field(strict=False)
    digest: str = ""

    def sealed(self) -> Manifest:
        """This manifest with its digest, over what differs from the defaults: a new fact leaves old digests alone."""
        body = json.dumps(self.model_dump(mode="json", exclude={"digest"}, exclude_defaults=True), sort_keys=True)
        return self.model_copy(update={"digest": hashlib.sha256(body.encode()).hexdigest()})


def digest_of_file(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Seal and write, in one step as far as a reader can see."""
    write_whole(folder / NAME, json.dumps(manifest.sealed().model_dump(mode="json"), indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder.

    Raises:
        RunLogError: no such folder, no manifest, or one that is malformed, altered, or of another schema.
    """
    file = folder / NAME
    if not folder.is_dir():
        raise RunLogError(folder, "is not a folder", "name a run folder, or leave RUN out for the sample run")
    if not file.is_file():
        raise RunLogError(folder, f"has no {NAME}, so it is no finished run", "let its recording end, or name another")
    try:
        manifest = Manifest.model_validate(read_json(file))
        json.dumps(
            manifest.model_dump(), ensure_ascii=False
        ).encode()  # a lone surrogate can stand in JSON but cannot be printed
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "document"
        raise RunLogError(file, f"{place}: {first['msg'].lower()}", REWRITE) from error
    except (ValueError, RecursionError) as error:
        raise RunLogError(file, f"is not JSON ({first_line(error)})", REWRITE) from error
    if manifest.schema_version != SCHEMA_VERSION:
        found = manifest.schema_version
        raise RunLogError(file, f"has schema version {found}, not {SCHEMA_VERSION}", "read it with its own castsim")
    if manifest.sealed().digest != manifest.digest:
        raise RunLogError(file, "was altered after it was written", REWRITE)
    return manifest
