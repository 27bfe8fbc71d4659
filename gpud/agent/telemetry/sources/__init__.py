"""One file per telemetry source; each asks a process of its own, since a driver call may hang."""
