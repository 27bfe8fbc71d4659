"""The identity of each GPU and of the driver; what is not known is absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.metrics.families import clean, infos

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import Reading

OF_THE_MACHINE = ("driver_version", "cuda_version", "nvml_version")
"""What each GPU's identity repeats, so that one join is enough."""
OF_THE_DRIVER = (*OF_THE_MACHINE, "driver_folder")
OF_A_GPU = ("uuid", "name", "compute_capability", "pci_bus_id", "vbios_version")

DOMAIN_DIGITS = 8


def identities(snapshot: Snapshot, readings: Iterable[Reading]) -> dict[int, dict[str, str]]:
    """Give what is known of each GPU, by number: CUDA's word first, then the readings'.

    A GPU that no reading names any more stays for as long as CUDA lists it.
    """
    words = _words(readings)
    machine = {field: words[None][field] for field in OF_THE_MACHINE if field in words[None]}
    gpus = {
        gpu: {field: texts[field] for field in OF_A_GPU if field in texts}
        for gpu, texts in words.items()
        if gpu is not None and ("name" in texts or "uuid" in texts)
    }
    inventory = snapshot.measure.inventory
    if inventory is not None and inventory.cuda_version:
        machine["cuda_version"] = inventory.cuda_version
    for device in () if inventory is None else inventory.devices:
        of_cuda = {
            "uuid": device.uuid,
            "name": device.name,
            "compute_capability": device.compute_capability,
            "pci_bus_id": device.pci_bus_id,
        }
        if device.mig is not None:
            of_cuda["mig"] = device.mig
        if device.mps:
            of_cuda["mps"] = "true"
        number = snapshot.gpus[device.uuid].number
        gpus[number] = gpus.get(number, {}) | {key: text for key, text in of_cuda.items() if text}
    for texts in gpus.values():
        if "pci_bus_id" in texts:
            texts["pci_bus_id"] = bus_id(texts["pci_bus_id"])
    return {
        gpu: {key: clean(text) for key, text in (machine | texts).items()}
        for gpu, texts in sorted(gpus.items())
    }


def families(
    gpus: Mapping[int, Mapping[str, str]], readings: Iterable[Reading]
) -> Iterator[Metric]:
    """Yield each GPU's identity, and the driver's, which is there without a GPU too."""
    yield infos(
        "gpud_gpu",
        "Identity of each GPU.",
        ("gpu",),
        (([str(gpu)], labels) for gpu, labels in gpus.items()),
    )
    machine = _words(readings)[None]
    driver = {field: clean(machine[field]) for field in OF_THE_DRIVER if field in machine}
    yield infos(
        "gpud_driver",
        "The NVIDIA driver, as telemetry names it.",
        (),
        [((), driver)] if driver else (),
    )


def bus_id(text: str) -> str:
    """Write a PCI address as NVML does: CUDA's domain has four digits, in lower case."""
    domain, colon, rest = text.partition(":")
    return f"{domain.rjust(DOMAIN_DIGITS, '0')}{colon}{rest}".upper()


def _words(readings: Iterable[Reading]) -> dict[int | None, dict[str, str]]:
    words: dict[int | None, dict[str, str]] = {None: {}}
    for reading in readings:
        if type(reading.value) is str:  # a reason is a str too
            words.setdefault(reading.gpu, {}).setdefault(reading.field, reading.value)
    return words
