"""PROCESS 1, uid 0: keeps dockerd and the agent alive, writes one file, listens to nobody."""
