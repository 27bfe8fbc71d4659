"""/api/v1/: one file for each thing that can be asked for."""
