"""The NVML helper: a process of its own, because a driver call may hang or end its process."""
