"""The history: runs, hours and events in SQLite, written by one thread and read by many."""
