"""Process 2: unprivileged, for ever. It schedules, stores, judges and serves."""
