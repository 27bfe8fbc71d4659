"""Runs of probes."""
