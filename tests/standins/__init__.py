"""Stand-in driver libraries in C: real dlopen, real ABI, scripted behaviour."""
