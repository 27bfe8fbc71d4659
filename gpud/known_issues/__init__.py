"""Catalogue of known faults of GPU work, and what of it applies to a machine."""
