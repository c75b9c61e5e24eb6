"""Faults that the NVIDIA driver writes to the kernel log: "NVRM: Xid (PCI:0000:00:06): 43, pid=3611, name=x, ...".

`parse` is pure; `kernel_log` reads what is new in the log of this machine, where this user may.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpu_casebook.devices import hardware
from gpu_casebook.evidence import Xid
from gpu_casebook.text import one_line

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+)\): (?P<number>\d+)(?:, (?P<text>.*))?$",
    re.MULTILINE,
)
_PID = re.compile(r"\bpid='?(\d+)")
_NAME = re.compile(r"\bname=([^,\s<]+)")
_STAMP = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\]", re.MULTILINE)
_DEVICE = "/dev/kmsg"
_RECORD_BYTES = 8192
"""More than one record of the kernel log can hold: what does not fit is refused, not cut."""


def parse(log: str) -> list[Xid]:
    """Every Xid line of a kernel log, in order. `<unknown>`, or a pid that is none, is read as not told."""
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


def of_gpus(xids: Sequence[Xid], places: Sequence[str]) -> list[Xid]:
    """Those about GPUs at these PCI places ("0000:00:06.0"); all, where no place is known."""
    wanted = {_place(place) for place in places}
    return [xid for xid in xids if not wanted or _place(xid.pci) in wanted]


def _place(pci: str) -> tuple[int, ...]:
    """(domain, bus, device): the driver writes the domain with four digits or eight, the function or not."""
    parts = pci.partition(".")[0].split(":")
    return tuple(int(part, 16) for part in ["0", *parts][-3:])


Faults = Callable[[], list[Xid]]


@contextmanager
def watch(gpus: Sequence[int]) -> Iterator[Faults]:
    """Yields what returns the faults of these GPUs of this machine since the last call; no GPUs, no faults."""
    if not gpus:
        yield list
        return
    places = [gpu.pci for gpu in hardware.gpus() if gpu.index in gpus and gpu.pci]
    with kernel_log() as new:
        yield lambda: of_gpus(parse(new()), places)


@contextmanager
def kernel_log() -> Iterator[Callable[[], str]]:
    """Yields what returns the lines that came into this machine's kernel log since the last call.

    Nothing comes where this user may not read that log.
    """
    try:
        device = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield _from_command()
        return
    try:
        os.lseek(device, 0, os.SEEK_END)
        yield lambda: "".join(_records(device))
    finally:
        os.close(device)


def _records(device: int) -> Iterator[str]:
    """Each read gives one record, as "6,339,5140900,-;text"; a record that was overwritten meanwhile is EPIPE."""
    while True:
        try:
            record = os.read(device, _RECORD_BYTES)
        except BrokenPipeError:
            continue
        except OSError:
            return
        if not record:
            return
        yield record.decode("utf-8", "replace").partition(";")[2].partition("\n")[0] + "\n"


def _from_command() -> Callable[[], str]:
    last = _latest(_dmesg())

    def new() -> str:
        nonlocal last
        lines = since(_dmesg(), last)
        last = max(last, _latest(lines))
        return lines

    return new


def _dmesg() -> str:
    """Nothing where there is no such command, or not for this user."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _latest(log: str) -> float:
    """Stamp of the last line, in seconds since boot; 0 where there is none."""
    return max(map(float, _STAMP.findall(log)), default=0.0)


def since(log: str, stamp: float) -> str:
    """The lines of a log that are later than a stamp in seconds since boot."""
    return "".join(f"{line}\n" for line in log.splitlines() if _latest(line) > stamp)
