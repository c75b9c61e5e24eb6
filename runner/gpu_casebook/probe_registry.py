"""Which probes there are, by name. What a probe is: `gpu_casebook.run.probes.Probe`."""

from importlib import import_module
from typing import Any

from gpu_casebook import plugins

PROBES = {
    "memcheck": "gpu_casebook.run.probes.sanitizer:MEMCHECK",
    "racecheck": "gpu_casebook.run.probes.sanitizer:RACECHECK",
    "initcheck": "gpu_casebook.run.probes.sanitizer:INITCHECK",
    "synccheck": "gpu_casebook.run.probes.sanitizer:SYNCCHECK",
    "launch-blocking": "gpu_casebook.run.probes.launch_blocking:LAUNCH_BLOCKING",
}
"""By the names that a manifest's `probes` may have, in the order in which they run. Imported once they are needed."""

GROUP = "gpu_casebook.probes"
"""Entry points of other distributions that add probes."""


def all_probes() -> dict[str, str]:
    """Where each probe is, by name."""
    return PROBES | {name: at for name, at in plugins.find(GROUP).items() if name not in PROBES}


def probe(name: str) -> Any:
    """Return the probe of this name. Raises KeyError where there is none."""
    module, _, attribute = all_probes()[name].partition(":")
    return getattr(import_module(module), attribute)


def probe_of(kind: object) -> Any:
    """Return a probe whose records are of this kind. None where there is none: another runner may have more probes."""
    probes = map(probe, all_probes())
    return next((found for found in probes if found.record.model_fields["probe"].default == kind), None)
