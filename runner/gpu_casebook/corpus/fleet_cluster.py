"""The only module of the driver's side that knows how to get hold of Ray: quietly, and with one line where it fails."""

import logging
import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from gpu_casebook.errors import EngineError, UsageError

LOCAL = "local"
AUTO = "auto"
REACH_S = 10.0
_TRIES = 3
_STORE_BYTES = 100 * 10**6
"""What is handed around are cases and their evidence: kilobytes. Ray would take a third of the memory."""
_LONGEST = 20
"""Of the directory for Ray's own: it makes sockets far below, whose paths may have 107 characters."""
_ADDRESS = re.compile(r"(ray://)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):(?P<port>[0-9]{1,5})")


def checked(address: str) -> str:
    """Raises UsageError where this can't be a fleet, or Ray is not installed."""
    if address not in {LOCAL, AUTO} and not _ADDRESS.fullmatch(address):
        raise UsageError(f"--fleet {address}: write ray://HOST:PORT, HOST:PORT, auto (the cluster here) or local")
    if find_spec("ray") is None:
        raise UsageError("--fleet needs Ray, which is not installed: pip install 'casebook[ray]'")
    return address


@contextmanager
def connected(address: str, cores: int) -> Iterator[Any]:
    """The module `ray`, connected. `cores` is what a local cluster shares out.

    Raises EngineError where no cluster answers.
    """
    checked(address)
    _reach(address)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray  # noqa: PLC0415 it takes a second, and is an extra

    _hush(ray)
    terminate = signal.getsignal(signal.SIGTERM)
    with ExitStack() as own:
        options = own.enter_context(_own_cluster(cores)) if address == LOCAL else {}
        try:
            _join(ray, address, options)
        except (OSError, RuntimeError, ValueError, TimeoutError) as error:
            ray.shutdown()
            raise EngineError(f"no fleet at {address}: {_first_line(error)}") from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)  # Ray takes it, and ends the process without a word
        try:
            yield ray
        finally:
            ray.shutdown()


def _join(ray: Any, address: str, options: dict[str, Any]) -> None:
    """The server that a cluster starts for a client may not be up when Ray's patience ends; the next one mostly is."""
    for tries_left in reversed(range(_TRIES)):
        try:
            ray.init(address, logging_level=logging.CRITICAL, log_to_driver=False, **options)
        except ConnectionAbortedError:
            ray.shutdown()
            if not tries_left:
                raise
        else:
            return


@contextmanager
def _own_cluster(cores: int) -> Iterator[dict[str, Any]]:
    """How to start a cluster here that leaves nothing."""
    usual = tempfile.gettempdir()
    where = usual if len(usual) <= _LONGEST else "/tmp"  # noqa: S108 the directory in it is private
    with tempfile.TemporaryDirectory(prefix="casebook-ray-", dir=where, ignore_cleanup_errors=True) as place:
        yield {
            "num_cpus": cores,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            "_temp_dir": place,
        }


_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}


def _hush(ray: ModuleType) -> None:
    """What Ray has to say of workers that are lost, the run says itself.

    There is no switch for what its machines report; where a later Ray has no such function, it is loud and works.
    """
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_args, **_more: None


def _reach(address: str) -> None:
    """Ray itself waits a minute for a host that is not there. Raises EngineError."""
    match = _ADDRESS.fullmatch(address)
    if not match:
        return
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise EngineError(f"no fleet at {address}: {why}") from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
