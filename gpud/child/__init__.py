"""Process 3: one probe run on one GPU, then gone. Standard library; ctypes for the CUDA driver.

One is started every minute, so what it imports is short. ``typing`` takes a tenth of the start: a
module that a child loads has ``TYPE_CHECKING = False`` of its own, which is true to mypy and ruff.
"""
