"""The rules: what is wrong with a machine, how bad it is, and what fixes it. A rule looks at nothing but its facts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.doctor.compatibility import Build, build, covers, having, is_older, least_driver
from gpu_casebook.doctor.facts import Directory, Facts, Need
from gpu_casebook.errors import Severity
from gpu_casebook.words import size

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Shortcoming:
    """What a rule found."""

    rule: str
    severity: Severity  # an error stops runs or makes verdicts worthless; a warning takes something away
    what: str
    fix: str  # the command to run
    about: Sequence[str] = ()  # the environments concerned; empty if it is the machine


Advice = Iterator[tuple[str, str]]
"""What is wrong, and what fixes it, for each time that a rule applies."""


_Apply = TypeVar("_Apply", bound=Callable[..., Advice])


class Rule(NamedTuple):
    id: str
    severity: Severity
    apply: Callable[..., Advice]


MACHINE_RULES: list[Rule] = []
NEED_RULES: list[Rule] = []  # of what one environment needs of the machine


def rule(id_: str, severity: Severity, rules: list[Rule] = MACHINE_RULES) -> Callable[[_Apply], _Apply]:
    """Register a function of the facts, or of the facts and a need, as a rule."""

    def register(apply: _Apply) -> _Apply:
        rules.append(Rule(id_, severity, apply))
        return apply

    return register


def diagnose(facts: Facts, needs: Sequence[Need]) -> list[Shortcoming]:
    """Return every shortcoming, the worst first. One that several environments share is listed once."""
    found = [_shortcoming(each, advice) for each in MACHINE_RULES for advice in each.apply(facts)]
    for each in NEED_RULES:
        found += [_shortcoming(each, advice, need.name) for need in needs for advice in each.apply(facts, need)]
    worst = list(Severity)
    return sorted(_together(found), key=lambda each: worst.index(each.severity))


def _shortcoming(rule: Rule, advice: tuple[str, str], *about: str) -> Shortcoming:
    what, fix = advice
    return Shortcoming(rule=rule.id, severity=rule.severity, what=what, fix=fix, about=about)


def _together(found: Iterable[Shortcoming]) -> list[Shortcoming]:
    alike: dict[tuple[str, str, str], Shortcoming] = {}
    for each in found:
        key = each.rule, each.what, each.fix
        known = alike.get(key)
        alike[key] = replace(known, about=[*known.about, *each.about]) if known else each
    return list(alike.values())


# About the machine


@rule("python-old", Severity.ERROR)
def old_python(facts: Facts) -> Advice:
    if is_older(facts.python, "3.11"):
        yield f"Python {facts.python}: the runner needs 3.11 or newer", "uv python install 3.11"


@rule("nothing-to-run-in", Severity.ERROR)
def nothing_to_run_in(facts: Facts) -> Advice:
    if not facts.docker.there and facts.system != "Linux":
        yield (
            f"no Docker engine answers, and without one trials need Linux, not {facts.system}",
            "start Docker Desktop, or: export DOCKER_HOST=ssh://user@gpu-box",
        )


@rule("uv-missing", Severity.ERROR)
def no_uv(facts: Facts) -> Advice:
    if facts.uv is None:
        yield (
            "uv is not installed: no lock can be written, and the venv engine can't build",
            "python -m pip install uv",
        )


@rule("driver-silent", Severity.ERROR)
def silent_driver(facts: Facts) -> Advice:
    if facts.driver_traces and not facts.gpus:
        traces = ", ".join(facts.driver_traces[:3])
        yield (
            f"an NVIDIA driver is installed ({traces}) but does not answer: not loaded, or of another version",
            "nvidia-smi; sudo modprobe nvidia; after an update of the driver: sudo reboot",
        )


@rule("disk-full", Severity.ERROR)
def disk_full(facts: Facts) -> Advice:
    for directory, free in _free(facts, 0, GIB):
        yield f"{directory.name}: {free} free in {directory.path}", directory.clear


@rule("not-writable", Severity.ERROR)
def not_writable(facts: Facts) -> Advice:
    for each in facts.directories:
        if not each.writable:
            yield f"{each.name}: {each.path} can't be written", f'sudo chown -R "$USER" {each.path}'


@rule("certificates-missing", Severity.ERROR)
def no_certificates(facts: Facts) -> Advice:
    for name, exists in facts.bundles.items():
        if not exists:
            yield (
                f"{name} names certificates that do not exist: nothing can be downloaded",
                f"unset {name}; or point it to the system's: /etc/ssl/certs/ca-certificates.crt",
            )


@rule("index-out-of-reach", Severity.ERROR)
def index_out_of_reach(facts: Facts) -> Advice:
    if facts.index_error:
        yield (
            f"the package index can't be reached: {facts.index_error}",
            "export UV_DEFAULT_INDEX=https://your.mirror/simple; behind a proxy: export HTTPS_PROXY=http://proxy:port",
        )


@rule("docker-denied", Severity.WARNING)
def docker_denied(facts: Facts) -> Advice:
    if facts.docker.denied:
        yield (
            "a Docker engine is running, but this user may not use it; trials run in virtual environments",
            'sudo usermod -aG docker "$USER" && newgrp docker',
        )


@rule("docker-elsewhere", Severity.WARNING)
def no_docker_there(facts: Facts) -> Advice:
    docker = facts.docker
    if docker.error and docker.host and not docker.denied:
        yield (
            f"no Docker engine answers at DOCKER_HOST={docker.host}; trials run in virtual environments",
            "unset DOCKER_HOST; or start the engine there",
        )


@rule("docker-missing", Severity.WARNING)
def no_docker(facts: Facts) -> Advice:
    docker = facts.docker
    if docker.error and not docker.host and not docker.denied:
        yield (
            "no Docker engine answers; trials run in virtual environments, with weaker isolation",
            "sudo systemctl start docker; not installed: sudo apt-get install docker.io",
        )


@rule("docker-old", Severity.WARNING)
def old_docker(facts: Facts) -> Advice:
    version = facts.docker.version
    if version and is_older(version, "20.10"):
        yield (
            f"Docker {version}: 20.10 is the oldest that was tried",
            "sudo apt-get install --only-upgrade docker.io",
        )


@rule("docker-without-gpu", Severity.WARNING)
def docker_without_gpu(facts: Facts) -> Advice:
    if facts.gpus and facts.docker.there and facts.docker.gpu_mode is None:
        configure = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        yield (
            "the Docker engine has no access to the GPU; only --engine venv has",
            f"install nvidia-container-toolkit, then: {configure}",
        )


@rule("gpu-aside", Severity.WARNING)
def gpu_aside(facts: Facts) -> Advice:
    for gpu in facts.gpus:
        if gpu.aside:
            yield f"GPU {gpu.index} ({gpu.name}) is not used: {gpu.aside}", "nox -s clean"


@rule("disk-low", Severity.WARNING)
def disk_low(facts: Facts) -> Advice:
    for directory, free in _free(facts, GIB, 10 * GIB):
        why = "one image with PyTorch and CUDA takes 15 GiB while it is built"
        yield f"{directory.name}: only {free} free in {directory.path}; {why}", directory.clear


@rule("proxies-differ", Severity.WARNING)
def proxies_differ(facts: Facts) -> Advice:
    for name, value in facts.proxies.items():
        upper = name.upper()
        if name.islower() and facts.proxies.get(upper, value) != value:
            yield f"{name} and {upper} differ; programs disagree on which counts", f'export {upper}="${name}"'


@rule("py-spy-missing", Severity.WARNING)
def no_py_spy(facts: Facts) -> Advice:
    if not facts.py_spy:
        yield (
            "py-spy is not installed: a hang shows only the stacks that Python itself can print",
            "python -m pip install py-spy",
        )


@rule("ptrace-restricted", Severity.WARNING)
def ptrace_restricted(facts: Facts) -> Advice:
    if facts.ptrace >= 1 and not facts.root_user:
        yield (
            f"kernel.yama.ptrace_scope is {facts.ptrace}: py-spy can't look into hanging trials of the venv engine",
            "sudo sysctl kernel.yama.ptrace_scope=0",
        )


@rule("kernel-log-hidden", Severity.NOTE)
def kernel_log_hidden(facts: Facts) -> Advice:
    if facts.gpus and not facts.kernel_log:
        yield (
            "this user may not read the kernel log: Xid faults of the driver are not in the evidence",
            "sudo sysctl kernel.dmesg_restrict=0",
        )


@rule("shared-memory-small", Severity.NOTE)
def little_shared_memory(facts: Facts) -> Advice:
    found = facts.shared_memory_bytes
    if found is not None and found < GIB:
        yield (
            f"/dev/shm holds {size(found)}: data loaders and NCCL may want more",  # noqa: S108 its name in the message
            "sudo mount -o remount,size=8G /dev/shm",
        )


@rule("locked-memory-small", Severity.NOTE)
def little_locked_memory(facts: Facts) -> Advice:
    found = facts.locked_memory_bytes
    if len(facts.gpus) > 1 and found is not None and found < 64 * 2**20:
        yield (
            f"a process may lock {found / 2**20:.0f} MiB of memory: NCCL over InfiniBand wants more",
            "ulimit -l unlimited",
        )


@rule("gpu-missing", Severity.NOTE)
def no_gpu(facts: Facts) -> Advice:
    if not facts.gpus and not facts.driver_traces:
        yield (
            "no NVIDIA GPU here: only simulated environments run",
            "export DOCKER_HOST=ssh://user@gpu-box; for a host without a network: nox -s bundle -- CASE",
        )


@rule("proxies", Severity.NOTE)
def proxies(facts: Facts) -> Advice:
    if facts.proxies:
        yield (
            f"downloads go through {', '.join(f'{name}={value}' for name, value in facts.proxies.items())}",
            "to go without: env -u HTTPS_PROXY -u HTTP_PROXY nox -s ...",
        )


def _free(facts: Facts, low: int, high: int) -> Iterator[tuple[Directory, str]]:
    """Directories with `low` to `high` bytes free, and how many those are."""
    for each in facts.directories:
        if each.free_bytes is not None and low <= each.free_bytes < high:
            yield each, size(each.free_bytes)


# About what an environment needs


@rule("lock-missing", Severity.ERROR, NEED_RULES)
def no_lock(_facts: Facts, need: Need) -> Advice:
    if not need.locked:
        yield "it has no lock", f"nox -s lock -- {need.case}"


@rule("driver-old", Severity.ERROR, NEED_RULES)
def old_driver(facts: Facts, need: Need) -> Advice:
    least = least_driver(need.cuda) if need.cuda else None
    if need.spec.gpus and facts.driver and least and is_older(facts.driver, least):
        yield (
            f"the lock has CUDA {need.cuda}, which needs NVIDIA driver {least} or newer, and here is {facts.driver}",
            "install a newer driver and reboot (Ubuntu: sudo ubuntu-drivers install)",
        )


@rule("gpu-too-new", Severity.ERROR, NEED_RULES)
def gpu_too_new(facts: Facts, need: Need) -> Advice:
    for gpu, wheel in _without_code(facts, need):
        if is_older(wheel.has[0], gpu.compute_capability):
            yield (
                f"{_has(need, wheel)}, and none for {gpu.compute_capability} ({gpu.name})",
                f"{_another(need)}; the first with code for it is {_named(having(gpu.compute_capability)[:1])}",
            )


@rule("gpu-too-old", Severity.ERROR, NEED_RULES)
def gpu_too_old(facts: Facts, need: Need) -> Advice:
    for gpu, wheel in _without_code(facts, need):
        if is_older(gpu.compute_capability, wheel.has[0]):
            yield (
                f"{_has(need, wheel)}, no more for {gpu.compute_capability} ({gpu.name})",
                f"{_another(need)}; the last with code for it is {_named(having(gpu.compute_capability)[-1:])}",
            )


@rule("image-room", Severity.ERROR, NEED_RULES)
def no_room_for_image(facts: Facts, need: Need) -> Advice:
    if facts.docker.there:
        yield from _no_room(facts, "images", need.image_bytes, "building the image")


@rule("environment-room", Severity.ERROR, NEED_RULES)
def no_room_for_venv(facts: Facts, need: Need) -> Advice:
    if not facts.docker.there:
        yield from _no_room(facts, "environments", need.environment_bytes, "the virtual environment")


@rule("python-missing", Severity.WARNING, NEED_RULES)
def no_python(facts: Facts, need: Need) -> Advice:
    python = need.spec.python
    if not facts.docker.there and need.environment_bytes and python not in facts.pythons:
        yield (
            f"without Docker it needs a Python {python}, and none is on PATH; uv downloads one where it can",
            f"uv python install {python}",
        )


@rule("hardware-unmet", Severity.NOTE, NEED_RULES)
def hardware_unmet(facts: Facts, need: Need) -> Advice:
    reason = hardware.meets(need.spec, facts.gpus) if facts.gpus else None  # no GPU at all is said once, of the machine
    if reason:
        yield f"is skipped here: {reason}", f"nox -s case-{need.case} on a machine that has it"


def _without_code(facts: Facts, need: Need) -> Iterator[tuple[HostGpu, Build]]:
    """GPUs that the case would be given, and the build of PyTorch that has no code for them."""
    wheel = build(need.torch, need.cuda) if need.torch and need.cuda else None
    if wheel is None or not need.spec.gpus:
        return
    for gpu in facts.gpus:
        fit = hardware.meets(need.spec, [gpu] * need.spec.gpus) is None
        if fit and not covers(wheel, gpu.compute_capability):
            yield gpu, wheel


def _has(need: Need, wheel: Build) -> str:
    return f"torch {need.torch} with CUDA {need.cuda} has code for compute capability {wheel.has[0]} to {wheel.has[-1]}"


def _another(need: Need) -> str:
    return f"nox -s case-{need.case} -- --environment ANOTHER"


def _named(builds: Sequence[Build]) -> str:
    return next((f"torch {each.torch} with CUDA {each.cuda}" for each in builds), "none that is known")


def _no_room(facts: Facts, name: str, wanted: int, what: str) -> Advice:
    for each in facts.directories:
        if each.name == name and each.free_bytes is not None and each.free_bytes < wanted:
            yield f"{what} takes up to {size(wanted)}, and {each.path} has {size(each.free_bytes)} free", each.clear
