"""Measuring: what `edgeserve bench` and the programs in benches/ share. Drives runners directly."""
