"""Where a model's files are, and what is in them: local folders and Hugging Face ids alike, safetensors only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from castsim.base.errors import ModelError, first_line, in_one_line
from castsim.runs.manifest import digest_of_file

PATTERNS = ["config.json", "*.safetensors", "*.safetensors.index.json"]


def model_folder(name: str) -> Path:
    """The folder of a local model, or of an id's snapshot; offline only what is in the cache.

    Raises:
        ModelError: no such folder, no such id, or no network.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    if Path(name).is_dir():
        return Path(name)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(
            name, "is no folder", "name a folder that holds config.json, or a Hugging Face id (owner/name)"
        )
    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise unknown(name, error) from error


def unknown(name: str, error: BaseException) -> ModelError:
    """The error of a model that cannot be had, or is there and cannot be loaded."""
    if Path(name).exists():
        return ModelError(name, f"cannot be loaded ({in_one_line(error)})", "name a whole model that needs no own code")
    return ModelError(
        name, f"is no folder here and cannot be had from the hub ({first_line(error)})", "check the id or the network"
    )


def read_config(folder: Path) -> dict[str, Any]:
    """The object in config.json.

    Raises:
        ModelError: it is missing or is not JSON.
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ModelError(file, f"cannot be read ({first_line(error)})", "name a folder with a whole model") from error
    if not isinstance(config, dict):
        raise ModelError(file, "is no JSON object", "name a folder with a whole model")
    return config


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder's safetensors files.

    Raises:
        ModelError: there are none (pickled weights are never read), or one is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for file in _weight_files(folder):
        try:
            tensors |= load_file(file)
        except (SafetensorError, OSError, ValueError) as error:
            raise ModelError(file, f"is no safetensors file ({first_line(error)})", "fetch it again") from error
    if not tensors:
        raise ModelError(folder, "holds no .safetensors file", "convert the weights; pickled ones are not read")
    return tensors


def revision(folder: Path) -> str:
    """A snapshot's commit, or the SHA-256 of a local folder's weights."""
    if folder.parent.name == "snapshots":
        return folder.name
    digests = "".join(digest_of_file(file) for file in _weight_files(folder))
    return f"sha256:{hashlib.sha256(bytes.fromhex(digests)).hexdigest()}"


def _weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))
