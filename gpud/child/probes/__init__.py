"""One file per probe: ``SPEC`` says what it measures, ``run`` measures and verifies it."""
