"""Rounds without a GPU: the model, the runs drawn from it, and the profiles that fit it to data."""
