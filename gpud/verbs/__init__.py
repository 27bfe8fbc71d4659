"""Verbs of the command line: each module's ``run(options, place)`` returns an exit code."""
