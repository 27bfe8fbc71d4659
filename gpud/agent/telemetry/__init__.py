"""Telemetry: sources asked in order of priority, merged field by field."""
