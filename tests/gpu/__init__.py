"""Against a real NVIDIA GPU: `deploy/test -m gpu`."""
