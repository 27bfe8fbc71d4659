"""gpud keeps Docker and the GPU of a WSL2 machine honest: one agent, three processes."""

__version__ = "0.2.0"
