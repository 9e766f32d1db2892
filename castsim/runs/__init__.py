"""What a recorded run is: a folder of Parquet shards with a manifest. This room reads and writes runs, joins what
several processes recorded, reads prompt sets, and imports the logs of other programs. It gives `replay.Rounds`, shard
by shard.
"""

from castsim.runs.manifest import Facts, Manifest
from castsim.runs.prompts import Conversation, read_prompts
from castsim.runs.reading import Run, open_run
from castsim.runs.sample import sample_run
from castsim.runs.writing import RunWriter

__all__ = [
    "Conversation",
    "Facts",
    "ImportOptions",
    "Manifest",
    "Run",
    "RunWriter",
    "import_run",
    "open_run",
    "read_prompts",
    "sample_run",
]
