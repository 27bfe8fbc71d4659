"""The process that reads the history for charts: a question per line in, an answer per line out.

A day of runs takes 40 to 90 ms of Python to thin out, and whoever scrapes meanwhile would wait for
the interpreter. So it has one of its own, which goes behind everything else on the machine.
"""
