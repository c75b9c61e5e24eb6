"""Containers and volumes that runs have made on an engine, by their labels: finding and removing them."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpu_casebook.daemon import client as daemon
from gpu_casebook.daemon.client import LABEL, DockerClient, speaking
from gpu_casebook.engines.owner import Owner
from gpu_casebook.errors import EngineError
from gpu_casebook.trial import TrialRequest

RESTART_S = 15.0
"""How long a daemon that went away may take to come back, so that what was made on it can be removed."""

Chosen = Callable[[Mapping[str, str]], bool]
"""Says by its labels whether a thing is to be removed."""


def is_left(labels: Mapping[str, str]) -> bool:
    """Whether it is of a run that was killed."""
    owner = Owner.parse(labels[f"{LABEL}.owner"])
    return owner is not None and owner.gone


def kept(name: str, request: TrialRequest) -> str:
    """Say where the container of a trial is, and how to look at it."""
    volumes = f"{name} {name}-tools" if request.watch else name
    return f"container {name} (again: docker start -a {name}; away: docker rm {name}; docker volume rm {volumes})"


def remove_run(client: DockerClient, run: str) -> None:
    """Remove all that one engine made. A daemon that is being restarted gets some time to come back."""
    give_up = time.monotonic() + RESTART_S
    while True:
        try:
            remove(client, lambda labels: labels[f"{LABEL}.run"] == run)
        except EngineError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)
        else:
            return


def remove(client: DockerClient, chosen: Chosen, *, dry_run: bool = False) -> Sequence[str]:
    """Remove what is chosen, but nothing that is to be kept; return a line for each thing. Raises EngineError."""
    removed = []
    with speaking("look for containers and volumes" if dry_run else "remove containers and volumes"):
        for line, remove_it in _ours(client, chosen):
            with daemon.only_if_present():
                if not dry_run:
                    remove_it()
                removed.append(line)
    return removed


def _ours(client: DockerClient, chosen: Chosen) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what each is called, and what removes it."""
    api, ours = client.api, {"label": [f"{LABEL}.run", f"{LABEL}.owner"]}
    for each in _chosen(api.containers(all=True, filters=ours), chosen):
        remove_it = partial(api.remove_container, each["Id"], force=True, v=True)
        yield f"container {each['Names'][0].lstrip('/')}", remove_it
    for each in _chosen(api.volumes(filters=ours)["Volumes"] or [], chosen):
        yield f"volume {each['Name']}", partial(api.remove_volume, each["Name"])


def _chosen(found: Iterable[Any], chosen: Chosen) -> Iterator[Any]:
    return (one for one in found if f"{LABEL}.keep" not in one["Labels"] and chosen(one["Labels"]))
