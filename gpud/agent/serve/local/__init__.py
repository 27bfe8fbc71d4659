"""The local socket: which user may ask, and what is done for them."""
