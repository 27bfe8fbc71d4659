"""Snapshot -> Prometheus families, one file per subject, all listed in docs/metrics.md."""
