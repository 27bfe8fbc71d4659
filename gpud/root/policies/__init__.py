"""One file per dockerd policy: a pure, total ``decide(observation, memory, limits, now_s)``."""
