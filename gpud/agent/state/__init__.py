"""The published state of the agent, and the pure functions that derive it."""
