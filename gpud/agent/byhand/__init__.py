"""``gpud probe``: the launcher, lock and children of the schedule, for one person, once."""
