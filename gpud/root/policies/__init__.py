"""One file per dockerd policy: a pure, total ``decide(seen, keeper, limits, now_s) -> Action``."""
