"""Faults that the NVIDIA driver writes to the kernel log: "NVRM: Xid (PCI:0000:00:06): 43, pid=3611, name=x, ...".

`parse` is pure; `watch` reads what is new in the log of this machine, where this user may.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile

from failure_signature.text import one_line
from failure_signature.trials import Xid

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+)\): (?P<number>\d+)(?:, (?P<text>.*))?$", re.MULTILINE)
_PID = re.compile(r"\bpid='?(\d+)")
_NAME = re.compile(r"\bname=([^,\s<]+)")
_DEVICE = "/dev/kmsg"
_RECORD_BYTES = 8192
"""More than one record of the kernel log can hold: what does not fit is refused, not cut."""


def parse(log: str) -> list[Xid]:
    """Return every Xid line of a kernel log, in order. A pid that is no number, or `<unknown>`, counts as missing."""
    return [_xid(match) for match in _XID.finditer(log)]


def _xid(match: re.Match[str]) -> Xid:
    text = one_line(match["text"] or "", 300)
    pid, name = _PID.search(text), _NAME.search(text)
    return Xid(
        number=int(match["number"]),
        pci=match["pci"],
        pid=int(pid[1]) if pid else None,
        process=name[1] if name else None,
        text=text,
    )


def of_gpus(xids: Sequence[Xid], addresses: Sequence[str]) -> list[Xid]:
    """Return those about GPUs at these PCI addresses ("0000:00:06.0"); all, where no address is known."""
    wanted = {_address(each) for each in addresses}
    return [xid for xid in xids if not wanted or _address(xid.pci) in wanted]


def _address(pci: str) -> tuple[int, ...]:
    """(domain, bus, device): the driver writes the domain with four digits or eight, the function or not."""
    parts = pci.partition(".")[0].split(":")
    return tuple(int(part, 16) for part in ["0", *parts][-3:])


Faults = Callable[[], list[Xid]]


@contextmanager
def watch(addresses: Sequence[str]) -> Iterator[Faults]:
    """Yield a function that returns the faults since its last call of the GPUs at these PCI addresses ("" if unknown).

    It returns none without GPUs, and where this user may not read the kernel log.
    """
    if not addresses:
        yield list
        return
    with kernel_log() as new:
        yield lambda: of_gpus(parse(new()), list(filter(None, addresses)))


def is_readable() -> bool:
    """Return whether this user may read the kernel log of this machine as it is written."""
    with suppress(OSError):
        os.close(_open_device())
        return True
    return False


def _open_device() -> int:
    return os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def kernel_log() -> Iterator[Callable[[], str]]:
    """Yield a function that returns the lines that came into this machine's kernel log since its last call."""
    try:
        device = _open_device()
    except OSError:
        yield _from_command()
        return
    try:
        os.lseek(device, 0, os.SEEK_END)
        yield lambda: "".join(_records(device))
    finally:
        os.close(device)


def _records(device: int) -> Iterator[str]:
    """Each read gives one record, as "6,339,5140900,-;text"."""
    while True:
        try:
            record = os.read(device, _RECORD_BYTES)
        except BrokenPipeError:  # the record was overwritten meanwhile; the next one is there
            continue
        except OSError:
            return
        if not record:
            return
        yield record.decode("utf-8", "replace").partition(";")[2].partition("\n")[0] + "\n"


def _from_command() -> Callable[[], str]:
    """Some containers have no such device, but the system call that `dmesg` makes."""
    last = next(reversed(_dmesg()), "")

    def new() -> str:
        nonlocal last
        lines = _dmesg()
        # Each line has a stamp of its own. Where the last one was overwritten meanwhile, all are new.
        new_lines = list(takewhile(lambda line: line != last, reversed(lines)))
        last = lines[-1] if lines else last
        return "".join(reversed(new_lines))

    return new


def _dmesg() -> list[str]:
    """Return the lines of the log; none where there is no such command, or not for this user."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines(keepends=True) if done.returncode == 0 else []
