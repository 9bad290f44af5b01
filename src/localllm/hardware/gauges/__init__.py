"""Live readings of one device each, one file per vendor; ``hardware.sampler`` puts them together."""
