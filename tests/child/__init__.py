"""Process 3, seen from outside: real processes against stand-in libraries."""
