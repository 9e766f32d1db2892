"""Targets and one-pass drafters (torch): what a verb needs of a model, and nothing of how it is used."""
