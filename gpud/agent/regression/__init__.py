"""Regression: runs of the history in, alarms and verdicts out."""
