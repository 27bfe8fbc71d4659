"""One file per alert sink; what may wait for somebody waits in a process of its own."""
