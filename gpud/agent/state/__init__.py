"""The published state of the agent, what is derived from it, and the tasks that keep it."""
