"""The rules: what is wrong with a machine, how bad it is, and what fixes it. A rule looks at nothing but its facts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from casebook_workbench.doctor.compatibility import Build, build, having, is_older, least_driver
from casebook_workbench.doctor.facts import Facts, Need
from failure_signature.text import size
from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.errors import Severity
from gpu_casebook.packages.lock import GLIBC, MACHINE

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Shortcoming:
    """What a rule found."""

    rule: str
    severity: Severity  # an error stops runs or makes verdicts worthless; a warning takes something away
    what: str
    fix: str  # the command to run
    about: Sequence[str] = ()  # the environments concerned; empty if it is the machine


Advice = Iterator[str | tuple[str, str]]
"""What is wrong, for each time that a rule applies; with what fixes it, where that differs from time to time."""

_Apply = TypeVar("_Apply", bound=Callable[..., Advice])


@dataclass(frozen=True)
class Rule:
    id: str
    severity: Severity
    fix: str
    apply: Callable[..., Advice]

    def advice(self, *facts: Facts | Need) -> Iterator[tuple[str, str]]:
        """Yield what is wrong and what fixes it."""
        for found in self.apply(*facts):
            yield (found, self.fix) if isinstance(found, str) else found


MACHINE_RULES: list[Rule] = []
NEED_RULES: list[Rule] = []  # of what one environment needs of the machine


def rule(severity: Severity, *, fix: str = "", rules: list[Rule] = MACHINE_RULES) -> Callable[[_Apply], _Apply]:
    """Add a function of the facts, or of the facts and a need, to these rules. Its name is the rule's id."""

    def register(apply: _Apply) -> _Apply:
        rules.append(Rule(apply.__name__.replace("_", "-"), severity, fix, apply))
        return apply

    return register


def diagnose(facts: Facts, needs: Sequence[Need]) -> list[Shortcoming]:
    """Return every shortcoming, the worst first. One that several environments share is listed once."""
    about: dict[tuple[Rule, str, str], list[str]] = {}
    for each in MACHINE_RULES:
        about |= {(each, what, fix): [] for what, fix in each.advice(facts)}
    for each in NEED_RULES:
        for need in needs:
            for what, fix in each.advice(facts, need):
                about.setdefault((each, what, fix), []).append(need.name)
    found = [
        Shortcoming(rule=rule.id, severity=rule.severity, what=what, fix=fix, about=names)
        for (rule, what, fix), names in about.items()
    ]
    worst = list(Severity)
    return sorted(found, key=lambda each: worst.index(each.severity))


# About the machine


@rule(Severity.ERROR, fix="start Docker Desktop, or: export DOCKER_HOST=ssh://user@gpu-box")
def nothing_to_run_in(facts: Facts) -> Advice:
    if not facts.docker.there and facts.system != "Linux":
        yield f"no Docker engine answers, and without one trials need Linux, not {facts.system}"


@rule(Severity.ERROR, fix="export DOCKER_HOST=ssh://user@host, where that is such a machine")
def other_architecture(facts: Facts) -> Advice:
    if facts.trials_on != MACHINE:
        yield f"trials would run on {facts.trials_on}, and cases are locked for {MACHINE}: none runs here"


@rule(Severity.ERROR, fix="nvidia-smi; sudo modprobe nvidia; after an update of the driver: sudo reboot")
def driver_silent(facts: Facts) -> Advice:
    if facts.driver_traces and not facts.gpus:
        traces = ", ".join(facts.driver_traces[:3])
        yield f"an NVIDIA driver is installed ({traces}) but does not answer: not loaded, or of another version"


@rule(Severity.ERROR)
def disk_full(facts: Facts) -> Advice:
    for each in facts.directories:
        if each.free_bytes < GIB:
            yield f"{each.name}: {size(each.free_bytes)} free in {each.path}", each.clear


@rule(Severity.ERROR)
def not_writable(facts: Facts) -> Advice:
    for each in facts.directories:
        if not each.writable:
            yield f"{each.name}: {each.path} can't be written", f'sudo chown -R "$USER" {each.path}'


@rule(Severity.ERROR)
def certificates_missing(facts: Facts) -> Advice:
    for name, exists in facts.bundles.items():
        if not exists:
            fix = f"unset {name}; or point it to the system's: /etc/ssl/certs/ca-certificates.crt"
            yield f"{name} names certificates that do not exist: nothing can be downloaded", fix


@rule(
    Severity.ERROR,
    fix="export UV_DEFAULT_INDEX=https://your.mirror/simple; behind a proxy: export HTTPS_PROXY=http://proxy:port",
)
def index_out_of_reach(facts: Facts) -> Advice:
    if facts.index_error:
        yield f"the package index can't be reached: {facts.index_error}"


@rule(Severity.WARNING, fix='sudo usermod -aG docker "$USER" && newgrp docker')
def docker_denied(facts: Facts) -> Advice:
    if facts.docker.denied:
        yield "a Docker engine is running, but this user may not use it; trials run in virtual environments"


@rule(Severity.WARNING, fix="unset DOCKER_HOST; or start the engine there")
def docker_elsewhere(facts: Facts) -> Advice:
    docker = facts.docker
    if docker.error and docker.host and not docker.denied:
        yield f"no Docker engine answers at DOCKER_HOST={docker.host}; trials run in virtual environments"


@rule(Severity.WARNING, fix="sudo systemctl start docker; not installed: sudo apt-get install docker.io")
def docker_missing(facts: Facts) -> Advice:
    docker = facts.docker
    if docker.error and not docker.host and not docker.denied:
        yield "no Docker engine answers; trials run in virtual environments, with weaker isolation"


@rule(Severity.WARNING, fix="sudo apt-get install docker.io, or podman: images have the C library that locks are for")
def glibc_old(facts: Facts) -> Advice:
    if not facts.docker.there and facts.glibc and is_older(facts.glibc, GLIBC):
        yield f"glibc is {facts.glibc} here, and locks are for {GLIBC}: a wheel may not load in a virtual environment"


@rule(Severity.WARNING, fix="sudo apt-get install docker-buildx-plugin")
def docker_without_buildkit(facts: Facts) -> Advice:
    if facts.docker.there and not facts.docker.builds:
        yield "no docker command on the PATH can build with BuildKit: no image can be built for the Docker engine"


@rule(Severity.WARNING, fix="sudo apt-get install --only-upgrade docker.io")
def docker_old(facts: Facts) -> Advice:
    version = facts.docker.version
    if version and is_older(version, "20.10"):
        yield f"Docker {version}: 20.10 is the oldest that was tried"


@rule(
    Severity.WARNING,
    fix="install nvidia-container-toolkit, then: "
    "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
)
def docker_without_gpu(facts: Facts) -> Advice:
    if facts.gpus and facts.docker.there and facts.docker.gpu_mode is None:
        yield "the Docker engine has no access to the GPU; only --engine venv has"


@rule(Severity.WARNING, fix="nox -s clean")
def gpu_aside(facts: Facts) -> Advice:
    for gpu in facts.gpus:
        if gpu.aside:
            yield f"GPU {gpu.index} ({gpu.name}) is not used: {gpu.aside}"


@rule(Severity.WARNING)
def disk_low(facts: Facts) -> Advice:
    why = "one image with PyTorch and CUDA takes 10 GiB while it is built"
    for each in facts.directories:
        if GIB <= each.free_bytes < 10 * GIB:
            yield f"{each.name}: only {size(each.free_bytes)} free in {each.path}; {why}", each.clear


@rule(Severity.WARNING)
def proxies_differ(facts: Facts) -> Advice:
    for name, value in facts.proxies.items():
        upper = name.upper()
        if name.islower() and facts.proxies.get(upper, value) != value:
            yield f"{name} and {upper} differ; programs disagree on which counts", f'export {upper}="${name}"'


@rule(Severity.WARNING, fix="sudo sysctl kernel.yama.ptrace_scope=0")
def ptrace_restricted(facts: Facts) -> Advice:
    if facts.ptrace >= 1 and not facts.root_user:
        yield f"kernel.yama.ptrace_scope is {facts.ptrace}: py-spy can't look into hanging trials of the venv engine"


@rule(Severity.NOTE)
def charliecloud_missing(facts: Facts) -> Advice:
    if facts.charliecloud and not facts.docker.there:
        what, _, fix = facts.charliecloud.partition(": ")
        yield f"{what}: --engine charliecloud, which runs images without a daemon, can't be used", fix


@rule(Severity.NOTE, fix="sudo sysctl kernel.dmesg_restrict=0")
def kernel_log_hidden(facts: Facts) -> Advice:
    if facts.gpus and not facts.kernel_log:
        yield "this user may not read the kernel log: Xid faults of the driver are not in the evidence"


@rule(Severity.NOTE, fix="sudo mount -o remount,size=8G /dev/shm")
def shared_memory_small(facts: Facts) -> Advice:
    found = facts.shared_memory_bytes
    if found is not None and found < GIB:
        yield f"/dev/shm holds {size(found)}: data loaders and NCCL may want more"  # noqa: S108 its name in the message


@rule(
    Severity.NOTE,
    fix="export DOCKER_HOST=ssh://user@gpu-box; for a host without a network: nox -s bundle -- CASE",
)
def gpu_missing(facts: Facts) -> Advice:
    if not facts.gpus and not facts.driver_traces:
        yield "no NVIDIA GPU here: only environments that need none run"


@rule(Severity.NOTE, fix="to go without: env -u HTTPS_PROXY -u HTTP_PROXY nox -s ...")
def proxies(facts: Facts) -> Advice:
    if facts.proxies:
        yield f"downloads go through {', '.join(f'{name}={value}' for name, value in facts.proxies.items())}"


# About what an environment needs


@rule(Severity.ERROR, rules=NEED_RULES)
def lock_missing(_facts: Facts, need: Need) -> Advice:
    if not need.locked:
        yield "it has no lock", f"nox -s lock -- {need.case}"


@rule(Severity.ERROR, rules=NEED_RULES, fix="install a newer driver and reboot (Ubuntu: sudo ubuntu-drivers install)")
def driver_old(facts: Facts, need: Need) -> Advice:
    least = least_driver(need.cuda) if need.cuda else None
    if need.spec.gpus and facts.driver and least and is_older(facts.driver, least):
        yield f"the lock has CUDA {need.cuda}, which needs NVIDIA driver {least} or newer, and here is {facts.driver}"


@rule(Severity.ERROR, rules=NEED_RULES)
def gpu_too_new(facts: Facts, need: Need) -> Advice:
    for gpu, wheel in _without_code(facts, need):
        if is_older(wheel.has[0], gpu.compute_capability):
            others = having(gpu.compute_capability)[:1]
            yield _no_code(need, gpu, wheel, others, none="and none", which="first")


@rule(Severity.ERROR, rules=NEED_RULES)
def gpu_too_old(facts: Facts, need: Need) -> Advice:
    for gpu, wheel in _without_code(facts, need):
        if is_older(gpu.compute_capability, wheel.has[0]):
            others = having(gpu.compute_capability)[-1:]
            yield _no_code(need, gpu, wheel, others, none="no more", which="last")


@rule(Severity.ERROR, rules=NEED_RULES)
def image_room(facts: Facts, need: Need) -> Advice:
    if facts.docker.there:
        yield from _no_room(facts, "images", need.image_bytes, "building the image")


@rule(Severity.ERROR, rules=NEED_RULES)
def environment_room(facts: Facts, need: Need) -> Advice:
    if not facts.docker.there:
        yield from _no_room(facts, "environments", need.environment_bytes, "the virtual environment")


@rule(Severity.WARNING, rules=NEED_RULES)
def python_missing(facts: Facts, need: Need) -> Advice:
    python = need.spec.python
    if not facts.docker.there and need.environment_bytes and python not in facts.pythons:
        what = f"without Docker it needs a Python {python}, and none is on PATH; uv downloads one where it can"
        yield what, f"uv python install {python}"


@rule(Severity.NOTE, rules=NEED_RULES, fix="nox -s case-CASE on a machine that has it")
def hardware_unmet(facts: Facts, need: Need) -> Advice:
    reason = hardware.meets(need.spec, facts.gpus) if facts.gpus else None  # no GPU at all is said once, of the machine
    if reason:
        yield f"is skipped here: {reason}"


def _without_code(facts: Facts, need: Need) -> Iterator[tuple[HostGpu, Build]]:
    """Yield the GPUs that the case would be given and its build of PyTorch has no code for, each with that build."""
    wheel = build(need.torch, need.cuda) if need.torch and need.cuda else None
    if wheel is None or not need.spec.gpus:
        return
    for gpu in facts.gpus:
        fit = hardware.meets(need.spec, [gpu] * need.spec.gpus) is None
        if fit and not wheel.covers(gpu.compute_capability):
            yield gpu, wheel


def _no_code(
    need: Need, gpu: HostGpu, wheel: Build, others: Sequence[Build], *, none: str, which: str
) -> tuple[str, str]:
    """Return what is wrong with a GPU that `wheel` has no code for, and what fixes it: one of `others`."""
    has = f"torch {need.torch} with CUDA {need.cuda} has code for compute capability {wheel.has[0]} to {wheel.has[-1]}"
    other = next((f"torch {each.torch} with CUDA {each.cuda}" for each in others), "none that is known")
    return (
        f"{has}, {none} for {gpu.compute_capability} ({gpu.name})",
        f"nox -s case-{need.case} -- --environment ANOTHER; the {which} with code for it is {other}",
    )


def _no_room(facts: Facts, name: str, wanted: int, what: str) -> Advice:
    for each in facts.directories:
        if each.name == name and each.free_bytes < wanted:
            yield f"{what} takes up to {size(wanted)}, and {each.path} has {size(each.free_bytes)} free", each.clear
