"""The agent's local socket: who may ask, and what is done for them."""
