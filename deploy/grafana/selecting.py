"""How a query chooses its series: by the variables of the dashboard, in every query alike.

The machine of the machine dashboard is one, so it is compared with `=`; what may be several is
matched with `=~`. A GPU that is not named, `gpu=""`, is the CPU, and is among "All".
"""

MACHINE = 'job=~"$job", instance="$instance"'
GPU = f'{MACHINE}, gpu=~"$gpu"'
PROBE = f'{GPU}, probe=~"$probe"'
LAUNCH = f'{GPU}, mode="$mode"'

FLEET = 'job=~"$job", instance=~"$instance"'
MODEL = 'job=~"$job", name=~"$model", driver_version=~"$driver"'


def of(family: str, *matchers: str, by: str = MACHINE) -> str:
    """Select the series of a family that the dashboard is about, and that match."""
    return f"{family}{{{', '.join([by, *matchers])}}}"


def rate(family: str, *matchers: str, by: str = MACHINE) -> str:
    """Give the increase of a counter per second."""
    return f"rate({of(family, *matchers, by=by)}[$__rate_interval])"


def increase(family: str, *matchers: str, by: str = MACHINE) -> str:
    """Give the increase of a counter from one point to the next."""
    return f"increase({of(family, *matchers, by=by)}[$__rate_interval])"


def age(timestamps: str) -> str:
    """Give the seconds since."""
    return f"time() - {timestamps}"
