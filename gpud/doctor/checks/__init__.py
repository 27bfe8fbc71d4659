"""One file per check: ``TITLE``, ``ORDER``, ``SUMMARY`` and ``look(machine) -> Finding``."""
