"""Alerts: conditions and slowdowns that raise them, their words, and their delivery."""
