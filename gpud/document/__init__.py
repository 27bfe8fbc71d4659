"""Status document: what the agent publishes and what page, terminal and doctor read.

It is the answer of /api/v1/status, agent.json and ``gpud status --json``. Nearly every field has a
default, because an agent of another release may have written what is read: what it lacks is not
known. For the same reason a name out of a bounded set is any string here.
Units: names carry them; ``*_s`` that are moments are Unix seconds. ``gpu`` is a GPU's number, None
for the CPU and for what is of the machine; ``uuid`` is a GPU's, None for the CPU. Texts may quote
foreign strings and are escaped where shown.
"""
