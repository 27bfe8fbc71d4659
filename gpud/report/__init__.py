"""`gpud report`: what changed in the last weeks, from the history file alone.

rows.py reads, build.py makes one frozen ``Report`` of it, and text.py, page.py and document.py show
that. Only rows.py and command.py touch a file; no agent has to run.
"""
