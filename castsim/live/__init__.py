"""Everything that needs torch: targets and drafters, the recorder, the probe, the decoder with its checks and
timings, and the embedded pair. It gives runs, probes and timed decodes. Import its modules where they are used, so
that all else works without torch.
"""
