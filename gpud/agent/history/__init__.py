"""``gpud history``: what was measured, for a person, a program, or another machine."""
