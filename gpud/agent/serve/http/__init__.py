"""HTTP: page, metrics, health and API. Nothing here starts a probe or changes state."""
