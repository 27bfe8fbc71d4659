"""One file per telemetry source. They run in a helper process, so that a driver call may hang."""
