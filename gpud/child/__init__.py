"""Process 3: one probe run on one GPU, then gone. Standard library; ctypes for the CUDA driver."""
