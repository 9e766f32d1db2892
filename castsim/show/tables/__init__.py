"""What verbs print of the JSON that they make: one file a verb."""

from __future__ import annotations

from collections.abc import Iterable


def shown_domains(names: Iterable[str]) -> list[str]:
    """Domains to print, in order; of a single one only "all", which says the same."""
    found = list(dict.fromkeys(names))
    return ["all"] if len(found) == 2 and "all" in found else found
