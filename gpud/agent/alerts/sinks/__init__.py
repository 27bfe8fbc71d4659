"""One file per alert sink; what may block does so in a process of its own."""
