"""gpud's probes beside C programs on a real GPU: what `deploy/gpu-check` is made of.

Standard library and gpud itself, so that a bare checkout on a machine with nvcc is enough.
"""
