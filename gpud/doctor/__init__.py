"""``gpud doctor``: a short-lived unprivileged process that looks, judges and changes nothing."""
