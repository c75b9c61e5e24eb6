"""The rules: what is a shortcoming, how bad, and what mends it. Each is a row; none looks at anything but its facts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gpu_casebook.devices import hardware
from gpu_casebook.doctor import compatibility
from gpu_casebook.doctor.facts import Facts, GpuFacts, Need, Place

GIB = 2**30

Words = Mapping[str, object]
"""What fills the blanks of a rule's texts."""


class Severity(StrEnum):
    """An error stops runs or makes their verdicts worthless; a warning takes something away; a note is to be known."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One shortcoming. `about` are the environments concerned; none where it is the machine."""

    rule: str
    severity: Severity
    what: str
    mend: str
    about: Sequence[str] = ()


@dataclass(frozen=True)
class HostRule:
    """`when` yields the words for each time that it applies."""

    id: str
    severity: Severity
    when: Callable[[Facts], Iterable[Words]]
    what: str
    mend: str


@dataclass(frozen=True)
class NeedRule:
    """As `HostRule`, of an environment on a machine."""

    id: str
    severity: Severity
    when: Callable[[Facts, Need], Iterable[Words]]
    what: str
    mend: str


def diagnose(facts: Facts, needs: Sequence[Need]) -> list[Finding]:
    """Every finding, the worst first; the same one of several environments once."""
    found = [_finding(rule, words) for rule in HOST_RULES for words in rule.when(facts)]
    found += [
        _finding(rule, words, need.name) for rule in NEED_RULES for need in needs for words in rule.when(facts, need)
    ]
    worst = list(Severity)
    return sorted(_together(found), key=lambda finding: worst.index(finding.severity))


def _finding(rule: HostRule | NeedRule, words: Words, *about: str) -> Finding:
    what, mend = rule.what.format_map(dict(words)), rule.mend.format_map(dict(words))
    return Finding(rule=rule.id, severity=rule.severity, what=what, mend=mend, about=about)


def _together(findings: Iterable[Finding]) -> list[Finding]:
    alike: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = finding.rule, finding.what, finding.mend
        known = alike.get(key)
        alike[key] = replace(known, about=[*known.about, *finding.about]) if known else finding
    return list(alike.values())


# Of the machine


def _when(condition: object, **words: object) -> Iterator[Words]:
    if condition:
        yield words


def _old_python(facts: Facts) -> Iterator[Words]:
    return _when(compatibility.is_older(facts.python, "3.11"), python=facts.python)


def _no_uv(facts: Facts) -> Iterator[Words]:
    return _when(facts.uv is None)


def _nothing_to_run_in(facts: Facts) -> Iterator[Words]:
    return _when(not facts.docker.there and facts.system != "Linux", system=facts.system)


def _denied(facts: Facts) -> bool:
    return "permission denied" in (facts.docker.error or "").lower()


def _docker_denied(facts: Facts) -> Iterator[Words]:
    return _when(_denied(facts), error=facts.docker.error)


def _docker_elsewhere(facts: Facts) -> Iterator[Words]:
    return _when(facts.docker.error and facts.docker.host and not _denied(facts), host=facts.docker.host)


def _no_docker(facts: Facts) -> Iterator[Words]:
    return _when(facts.docker.error and not facts.docker.host and not _denied(facts))


def _old_docker(facts: Facts) -> Iterator[Words]:
    version = facts.docker.version
    return _when(version and compatibility.is_older(version, "20.10"), version=version)


def _docker_without_gpu(facts: Facts) -> Iterator[Words]:
    return _when(facts.gpus and facts.docker.there and facts.docker.gpu_mode is None)


def _silent_driver(facts: Facts) -> Iterator[Words]:
    traces = ", ".join(facts.driver_traces[:3])
    return _when(not facts.gpus and facts.driver_traces, traces=traces)


def _no_gpu(facts: Facts) -> Iterator[Words]:
    return _when(not facts.gpus and not facts.driver_traces)


def _set_aside(facts: Facts) -> Iterator[Words]:
    return ({"index": gpu.index, "name": gpu.name, "why": gpu.aside} for gpu in facts.gpus if gpu.aside)


def _full(facts: Facts, low: int, high: int) -> Iterator[Words]:
    for place in facts.places:
        if place.free_bytes is not None and low <= place.free_bytes < high:
            yield {"name": place.name, "path": place.path, "free": _gib(place.free_bytes), "clear": _clearing(place)}


def _clearing(place: Place) -> str:
    return "nox -s images -- --remove-unused" if place.name == "images" else f"du -sh {place.path}/* | sort -h"


def _not_writable(facts: Facts) -> Iterator[Words]:
    return ({"name": place.name, "path": place.path} for place in facts.places if not place.writable)


def _bad_certificates(facts: Facts) -> Iterator[Words]:
    return ({"name": name} for name, there in facts.bundles.items() if not there)


def _proxies_differ(facts: Facts) -> Iterator[Words]:
    for name, value in facts.proxies.items():
        other = facts.proxies.get(name.upper())
        if name.islower() and other not in {None, value}:
            yield {"lower": name, "upper": name.upper()}


def _proxies(facts: Facts) -> Iterator[Words]:
    shown = ", ".join(f"{name}={value}" for name, value in facts.proxies.items())
    return _when(facts.proxies, shown=shown)


def _index_out_of_reach(facts: Facts) -> Iterator[Words]:
    return _when(facts.index_error, error=facts.index_error)


def _no_stacks(facts: Facts) -> Iterator[Words]:
    return _when(facts.ptrace >= 1 and not facts.root_user, scope=facts.ptrace)


def _no_py_spy(facts: Facts) -> Iterator[Words]:
    return _when(not facts.py_spy)


def _no_kernel_log(facts: Facts) -> Iterator[Words]:
    return _when(facts.gpus and not facts.kernel_log)


def _little_shared_memory(facts: Facts) -> Iterator[Words]:
    found = facts.shared_memory_bytes
    return _when(found is not None and found < GIB, found=_gib(found or 0))


def _little_locked_memory(facts: Facts) -> Iterator[Words]:
    found = facts.locked_memory_bytes
    several = len(facts.gpus) > 1
    return _when(several and found is not None and found < 64 * 2**20, found=f"{(found or 0) / 2**20:.0f} MiB")


HOST_RULES = (
    HostRule(
        "python-old",
        Severity.ERROR,
        _old_python,
        "Python {python}: the runner needs 3.11 or newer",
        "uv python install 3.11",
    ),
    HostRule(
        "nothing-to-run-in",
        Severity.ERROR,
        _nothing_to_run_in,
        "no Docker engine answers, and without one trials need Linux, not {system}",
        "start Docker Desktop, or: export DOCKER_HOST=ssh://user@gpu-box",
    ),
    HostRule(
        "uv-missing",
        Severity.ERROR,
        _no_uv,
        "uv is not there: no lock can be written, and the venv engine can't build",
        "python -m pip install uv",
    ),
    HostRule(
        "driver-silent",
        Severity.ERROR,
        _silent_driver,
        "an NVIDIA driver is installed ({traces}) and does not answer: not loaded, or not of its library's version",
        "nvidia-smi; sudo modprobe nvidia; after an update of the driver: sudo reboot",
    ),
    HostRule(
        "disk-full",
        Severity.ERROR,
        lambda facts: _full(facts, 0, GIB),
        "{name}: {free} free in {path}",
        "{clear}",
    ),
    HostRule(
        "not-writable",
        Severity.ERROR,
        _not_writable,
        "{name}: {path} can't be written",
        'sudo chown -R "$USER" {path}',
    ),
    HostRule(
        "certificates-missing",
        Severity.ERROR,
        _bad_certificates,
        "{name} names certificates that are not there: nothing can be fetched",
        "unset {name}; or point it to the system's: /etc/ssl/certs/ca-certificates.crt",
    ),
    HostRule(
        "index-out-of-reach",
        Severity.ERROR,
        _index_out_of_reach,
        "the package index can't be reached: {error}",
        "export UV_DEFAULT_INDEX=https://your.mirror/simple; behind a proxy: export HTTPS_PROXY=http://proxy:port",
    ),
    HostRule(
        "docker-denied",
        Severity.WARNING,
        _docker_denied,
        "a Docker engine is there and this user may not use it; trials run in virtual environments",
        'sudo usermod -aG docker "$USER" && newgrp docker',
    ),
    HostRule(
        "docker-elsewhere",
        Severity.WARNING,
        _docker_elsewhere,
        "no Docker engine answers at DOCKER_HOST={host}; trials run in virtual environments",
        "unset DOCKER_HOST; or start the engine there",
    ),
    HostRule(
        "docker-missing",
        Severity.WARNING,
        _no_docker,
        "no Docker engine answers; trials run in virtual environments, with weaker isolation",
        "sudo systemctl start docker; not installed: sudo apt-get install docker.io",
    ),
    HostRule(
        "docker-old",
        Severity.WARNING,
        _old_docker,
        "Docker {version}: 20.10 is the oldest that was tried",
        "sudo apt-get install --only-upgrade docker.io",
    ),
    HostRule(
        "docker-without-gpu",
        Severity.WARNING,
        _docker_without_gpu,
        "the Docker engine has no way to the GPU; only --engine venv reaches it",
        "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && "
        "sudo systemctl restart docker",
    ),
    HostRule(
        "gpu-aside",
        Severity.WARNING,
        _set_aside,
        "GPU {index} ({name}) is not used: {why}",
        "nox -s clean",
    ),
    HostRule(
        "disk-low",
        Severity.WARNING,
        lambda facts: _full(facts, GIB, 10 * GIB),
        "{name}: only {free} free in {path}; one image with PyTorch and CUDA takes 15 GiB while it is built",
        "{clear}",
    ),
    HostRule(
        "proxies-differ",
        Severity.WARNING,
        _proxies_differ,
        "{lower} and {upper} differ; programs disagree on which counts",
        'export {upper}="${lower}"',
    ),
    HostRule(
        "py-spy-missing",
        Severity.WARNING,
        _no_py_spy,
        "py-spy is not there: a hang shows no stacks but those that Python tells by itself",
        "python -m pip install py-spy",
    ),
    HostRule(
        "ptrace-restricted",
        Severity.WARNING,
        _no_stacks,
        "kernel.yama.ptrace_scope is {scope}: py-spy may not look at trials of the venv engine that hang",
        "sudo sysctl kernel.yama.ptrace_scope=0",
    ),
    HostRule(
        "kernel-log-hidden",
        Severity.NOTE,
        _no_kernel_log,
        "this user may not read the kernel log: Xid faults of the driver are not in the evidence",
        "sudo sysctl kernel.dmesg_restrict=0",
    ),
    HostRule(
        "shared-memory-small",
        Severity.NOTE,
        _little_shared_memory,
        "/dev/shm holds {found}: data loaders and NCCL may want more",  # noqa: S108 it is what it is called
        "sudo mount -o remount,size=8G /dev/shm",
    ),
    HostRule(
        "locked-memory-small",
        Severity.NOTE,
        _little_locked_memory,
        "a process may lock {found} of memory: NCCL over InfiniBand wants more",
        "ulimit -l unlimited",
    ),
    HostRule(
        "gpu-missing",
        Severity.NOTE,
        _no_gpu,
        "no NVIDIA GPU here: only simulated environments run",
        "export DOCKER_HOST=ssh://user@gpu-box; for a host without a network: nox -s bundle -- CASE",
    ),
    HostRule(
        "proxies",
        Severity.NOTE,
        _proxies,
        "downloads go through {shown}",
        "env -u HTTPS_PROXY -u HTTP_PROXY nox -s ..., where that is not wanted",
    ),
)


# Of an environment on this machine


def _no_lock(_facts: Facts, need: Need) -> Iterator[Words]:
    return _when(not need.locked, case=need.case)


def _old_driver(facts: Facts, need: Need) -> Iterator[Words]:
    least = compatibility.least_driver(need.cuda) if need.cuda else None
    old = need.spec.gpus and facts.driver and least and compatibility.is_older(facts.driver, least)
    return _when(old, cuda=need.cuda, least=least, driver=facts.driver)


def _without_code(facts: Facts, need: Need) -> Iterator[tuple[GpuFacts, compatibility.Build]]:
    """GPUs that the case would be given, and for which its PyTorch has no code."""
    build = compatibility.build(need.torch, need.cuda) if need.torch and need.cuda else None
    if build is None or not need.spec.gpus:
        return
    for gpu in facts.gpus:
        fit = hardware.meets(need.spec, [gpu] * need.spec.gpus) is None
        if fit and not compatibility.covers(build, gpu.compute_capability):
            yield gpu, build


def _gpu_too_new(facts: Facts, need: Need) -> Iterator[Words]:
    for gpu, build in _without_code(facts, need):
        if compatibility.is_older(build.has[0], gpu.compute_capability):
            yield _code_words(gpu, build, need, compatibility.having(gpu.compute_capability)[:1])


def _gpu_too_old(facts: Facts, need: Need) -> Iterator[Words]:
    for gpu, build in _without_code(facts, need):
        if compatibility.is_older(gpu.compute_capability, build.has[0]):
            yield _code_words(gpu, build, need, compatibility.having(gpu.compute_capability)[-1:])


def _code_words(gpu: GpuFacts, build: compatibility.Build, need: Need, others: Sequence[compatibility.Build]) -> Words:
    return {
        "torch": need.torch,
        "cuda": need.cuda,
        "has": f"{build.has[0]} to {build.has[-1]}",
        "gpu": gpu.name,
        "capability": gpu.compute_capability,
        "case": need.case,
        "other": next((f"torch {other.torch} with CUDA {other.cuda}" for other in others), "none that is known"),
    }


def _unmet(facts: Facts, need: Need) -> Iterator[Words]:
    reason = hardware.meets(need.spec, facts.gpus) if facts.gpus else None
    return _when(reason, reason=reason, case=need.case)


def _no_room_for_image(facts: Facts, need: Need) -> Iterator[Words]:
    return _no_room(facts, "images", need.image_bytes if facts.docker.there else 0)


def _no_room_for_venv(facts: Facts, need: Need) -> Iterator[Words]:
    return _no_room(facts, "environments", 0 if facts.docker.there else need.environment_bytes)


def _no_room(facts: Facts, name: str, wanted: int) -> Iterator[Words]:
    place = facts.place(name)
    if place and place.free_bytes is not None and place.free_bytes < wanted:
        yield {"path": place.path, "free": _gib(place.free_bytes), "wanted": _gib(wanted), "clear": _clearing(place)}


def _no_python(facts: Facts, need: Need) -> Iterator[Words]:
    missing = not facts.docker.there and need.environment_bytes and need.spec.python not in facts.pythons
    return _when(missing, python=need.spec.python)


NEED_RULES = (
    NeedRule(
        "lock-missing",
        Severity.ERROR,
        _no_lock,
        "there is no lock",
        "nox -s lock -- {case}",
    ),
    NeedRule(
        "driver-old",
        Severity.ERROR,
        _old_driver,
        "the lock has CUDA {cuda}, which needs NVIDIA driver {least} or newer, and here is {driver}",
        "install a newer driver and reboot (Ubuntu: sudo ubuntu-drivers install)",
    ),
    NeedRule(
        "gpu-too-new",
        Severity.ERROR,
        _gpu_too_new,
        "torch {torch} with CUDA {cuda} has code for compute capability {has}, and none for {capability} ({gpu})",
        "nox -s case-{case} -- --environment ANOTHER; the first with code for it is {other}",
    ),
    NeedRule(
        "gpu-too-old",
        Severity.ERROR,
        _gpu_too_old,
        "torch {torch} with CUDA {cuda} has code for compute capability {has}, no more for {capability} ({gpu})",
        "nox -s case-{case} -- --environment ANOTHER; the last with code for it is {other}",
    ),
    NeedRule(
        "image-room",
        Severity.ERROR,
        _no_room_for_image,
        "building the image takes up to {wanted}, and {path} has {free} free",
        "{clear}",
    ),
    NeedRule(
        "environment-room",
        Severity.ERROR,
        _no_room_for_venv,
        "the virtual environment takes up to {wanted}, and {path} has {free} free",
        "{clear}",
    ),
    NeedRule(
        "python-missing",
        Severity.WARNING,
        _no_python,
        "without Docker it needs a Python {python}, and none is on PATH; uv fetches one where it can",
        "uv python install {python}",
    ),
    NeedRule(
        "hardware-unmet",
        Severity.NOTE,
        _unmet,
        "is skipped here: {reason}",
        "nox -s case-{case} on a machine that has it",
    ),
)


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB"
