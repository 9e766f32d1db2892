"""Serving under load, simulated from logged rounds: costs of a batch, controllers, and the round loop."""
