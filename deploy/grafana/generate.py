"""From the code to the files."""

from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana import fleet, machine

FOLDER: Final = Path(__file__).parent / "dashboards"


def files() -> dict[Path, str]:
    """Give each dashboard's file with what belongs into it.

    Whoever provisions a dashboard gives it no number: `id` is null, `uid` is what it is known by.
    """
    encoder = JSONEncoder(indent=2, sort_keys=True)
    made = {"machine": machine.build(), "fleet": fleet.build()}
    return {
        FOLDER / f"{name}.json": encoder.encode({**dashboard.build().to_json(), "id": None}) + "\n"
        for name, dashboard in made.items()
    }
