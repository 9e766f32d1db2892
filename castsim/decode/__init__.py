"""The live decoder (torch): draft, build, pack, verify, walk, commit. AR and the chain are trees of one path or none."""
