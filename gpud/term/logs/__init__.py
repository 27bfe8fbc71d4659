"""``gpud logs``: what agent, root and dockerd wrote, by time, and what they write next."""
