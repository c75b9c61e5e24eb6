"""Lines as the driver wrote them on an H200 (the first), and as NVIDIA's Xid page and bug reports have them."""

import pytest

from failure_signature.trials import Xid
from gpu_casebook.devices import kernel_log
from gpu_casebook.devices.kernel_log import of_gpus, parse, watch

RECORDED = (
    "[  110.324880] NVRM: Xid (PCI:0000:00:06): 43, pid=3611, name=kernel_names, channel 0x00000052\n"
    "[  131.300187] NVRM: Xid (PCI:0000:00:06): 31, pid=4100, name=python3, Ch 00000008, intr 00000000. MMU Fault\n"
)


def test_recorded_lines() -> None:
    first, second = parse(f"[  100.0] nvidia-uvm: Loaded the UVM driver\n{RECORDED}[  140.0] eth0: up\n")
    assert first == Xid(
        number=43,
        pci="0000:00:06",
        pid=3611,
        process="kernel_names",
        text="pid=3611, name=kernel_names, channel 0x00000052",
    )
    assert (second.number, second.pid, second.process) == (31, 4100, "python3")


@pytest.mark.parametrize(
    ("line", "number", "pid", "process"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception", 13, None, None),
        ("NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.", 79, None, None),
        ("NVRM: Xid (PCI:0000:03:00): 62", 62, None, None),
        ("NVRM: Xid (0000:41:00): 31, Ch 00000010, engmask 00000101", 31, None, None),
        ("[Sat Nov 21 13:00:00 2026] NVRM: Xid (PCI:0000:03:00): 13, pid=12, name=a.out, x", 13, 12, "a.out"),
    ],
)
def test_other_lines(line: str, number: int, pid: int | None, process: str | None) -> None:
    (found,) = parse(line)
    assert (found.number, found.pid, found.process) == (number, pid, process)


def test_what_is_no_xid() -> None:
    assert parse("NVRM: GPU at PCI:0000:00:06: GPU-1\nXid (PCI:0000:00:06): 43\n") == []


def test_only_the_gpus_of_the_trial() -> None:
    mine, other = parse(RECORDED + "NVRM: Xid (PCI:0001:00:06): 43, pid=1, name=x\n")[1:]
    assert of_gpus([mine, other], ["00000000:00:06.0"]) == [mine]
    assert of_gpus([mine, other], ["00000001:00:06.0", "00000000:00:06.0"]) == [mine, other]
    assert of_gpus([mine, other], ["00000000:00:07.0"]) == []


def test_where_no_place_is_known_all_are_told() -> None:
    assert of_gpus(parse(RECORDED), []) == parse(RECORDED)


class Log:
    """Stands in for the dmesg command on a machine without /dev/kmsg."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = ""
        monkeypatch.setattr(kernel_log, "_DEVICE", "/nowhere/kmsg")
        monkeypatch.setattr(kernel_log, "_dmesg", lambda: self.text.splitlines(keepends=True))


def test_what_is_new_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log, (first, second) = Log(monkeypatch), RECORDED.splitlines(keepends=True)
    log.text = first
    with watch([""]) as faults:
        assert faults() == []
        log.text += second
        assert [found.number for found in faults()] == [31]
        assert faults() == []


def test_where_the_last_line_was_overwritten_all_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch)
    log.text = "[    1.000000] eth0: up\n"
    with watch([""]) as faults:
        log.text = RECORDED
        assert faults() == parse(RECORDED)


def test_without_gpus_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch)
    with watch([]) as faults:
        log.text = RECORDED
        assert faults() == []


def test_a_log_that_may_not_be_read_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_DEVICE", "/nowhere/kmsg")
    monkeypatch.setenv("PATH", "/nowhere")
    with watch([""]) as faults:
        assert faults() == []


def test_records_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[bytes | OSError] = [
        b"6,339,5140900,-;NVRM: Xid (PCI:0000:00:06): 43, pid=3611, name=a\n SUBSYSTEM=pci\n",
        BrokenPipeError(),
        b"6,341,5140901,-;eth0: up\n",
        BlockingIOError(),
    ]

    def read(_device: int, _size: int) -> bytes:
        record = records.pop(0)
        if isinstance(record, OSError):
            raise record
        return record

    monkeypatch.setattr("gpu_casebook.devices.kernel_log.os.read", read)
    assert list(kernel_log._records(0)) == ["NVRM: Xid (PCI:0000:00:06): 43, pid=3611, name=a\n", "eth0: up\n"]
