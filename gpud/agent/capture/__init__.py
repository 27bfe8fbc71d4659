"""``gpud capture``: what gpud asks of a machine, recorded once, for a bug report and a test."""
