"""The pure middle: nouns, arithmetic and decisions. No I/O, no clock, no threads."""
