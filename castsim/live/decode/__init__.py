"""The live decoder (torch): draft, build, pack, verify, walk, commit. AR verifies a lone root, the chain one path."""
