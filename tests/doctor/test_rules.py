"""Facts in, findings out: no GPU, no Docker. A machine on which all is well, and one thing wrong at a time."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from casebook_workbench.doctor.facts import Directory, DockerFacts, Facts, Need
from casebook_workbench.doctor.rules import MACHINE_RULES, NEED_RULES, Shortcoming, diagnose
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.errors import Severity
from gpu_casebook.manifest.model import EnvironmentSpec

GIB = 2**30

H200 = HostGpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-0",
    minor=0,
    compute_capability="9.0",
    memory_bytes=150_000_000_000,
    free_bytes=150_000_000_000,
    driver="580.159.04",
)
WELL = Facts(
    python="3.11.2",
    uv="0.7.0",
    docker=DockerFacts(version="28.2.1", gpu_mode="toolkit", root="/var/lib/docker"),
    gpus=[H200],
    driver_traces=["/dev/nvidia0"],
    directories=[
        Directory(name="images", path="/var/lib/docker", free_bytes=500 * GIB),
        Directory(name="environments", path="/home/a/.cache/casebook", free_bytes=500 * GIB),
    ],
    bundles={"SSL_CERT_FILE": True},
    shared_memory_bytes=64 * GIB,
    pythons=["3.11"],
)
SPEC = EnvironmentSpec.model_construct(
    image="cuda13", requirements=[], python="3.11", gpus=1, compute_capability=None, driver=None
)
NEED = Need(case="tiny", environment="current", spec=SPEC, torch="2.11.0", cuda="13.0")

Wrong = tuple[str, dict[str, Any], dict[str, Any], str]


def gpu(capability: str, **changed: Any) -> HostGpu:
    return replace(H200, compute_capability=capability, name=f"GPU {capability}", **changed)


def spec(**changed: Any) -> EnvironmentSpec:
    return SPEC.model_copy(update=changed)


def place(name: str, free: float, **changed: Any) -> dict[str, Any]:
    return {"directories": [Directory(name=name, path="/data", free_bytes=int(free * GIB), **changed)]}


OLD_TORCH = {"torch": "2.2.2", "cuda": "12.1"}
NO_DOCKER = DockerFacts(error="no Docker engine answers at its usual place")

# rule, what differs in the facts, what differs in the need, a part of the finding's text
WRONG: list[Wrong] = [
    ("nothing-to-run-in", {"docker": NO_DOCKER, "system": "Darwin"}, {}, "trials need Linux, not Darwin"),
    ("other-architecture", {"machine": "aarch64", "docker": NO_DOCKER}, {}, "trials would run on aarch64, and cases"),
    ("glibc-old", {"docker": NO_DOCKER, "glibc": "2.35"}, {}, "glibc is 2.35 here, and locks are for 2.36"),
    ("driver-silent", {"gpus": []}, {}, "installed (/dev/nvidia0) but does not answer"),
    ("disk-full", place("downloads", 0.5), {}, "downloads: 537 MB free in /data"),
    ("disk-low", place("images", 9.9), {}, "images: only 10.6 GB free in /data"),
    ("not-writable", place("reports", 99, writable=False), {}, "reports: /data can't be written"),
    ("certificates-missing", {"bundles": {"PIP_CERT": False}}, {}, "PIP_CERT names certificates that do not exist"),
    ("index-out-of-reach", {"index_error": "dns error"}, {}, "can't be reached: dns error"),
    ("docker-denied", {"docker": DockerFacts(error="no engine: Permission denied")}, {}, "this user may not use it"),
    ("docker-elsewhere", {"docker": replace(NO_DOCKER, host="tcp://x:1")}, {}, "at DOCKER_HOST=tcp://x:1"),
    ("docker-missing", {"docker": NO_DOCKER}, {}, "with weaker isolation"),
    (
        "charliecloud-missing",
        {"docker": NO_DOCKER, "charliecloud": "no ch-run on PATH: sudo apt-get install charliecloud"},
        {},
        "no ch-run on PATH: --engine charliecloud, which runs images without a daemon, can't be used",
    ),
    ("docker-old", {"docker": replace(WELL.docker, version="19.03.15")}, {}, "Docker 19.03.15: 20.10 is the oldest"),
    ("docker-without-buildkit", {"docker": replace(WELL.docker, builds=False)}, {}, "no image can be built"),
    ("docker-without-gpu", {"docker": replace(WELL.docker, gpu_mode=None)}, {}, "no access to the GPU"),
    ("gpu-aside", {"gpus": [replace(H200, aside="it faulted")]}, {}, "GPU 0 (NVIDIA H200) is not used: it faulted"),
    ("proxies-differ", {"proxies": {"http_proxy": "a", "HTTP_PROXY": "b"}}, {}, "http_proxy and HTTP_PROXY differ"),
    ("ptrace-restricted", {"ptrace": 1}, {}, "kernel.yama.ptrace_scope is 1"),
    ("kernel-log-hidden", {"kernel_log": False}, {}, "Xid faults of the driver are not in the evidence"),
    ("shared-memory-small", {"shared_memory_bytes": 64 * 2**20}, {}, "/dev/shm holds 67.1 MB"),
    ("gpu-missing", {"gpus": [], "driver_traces": []}, {}, "no NVIDIA GPU here"),
    ("proxies", {"proxies": {"https_proxy": "http://p:3128"}}, {}, "https_proxy=http://p:3128"),
    ("lock-missing", {}, {"locked": False}, "it has no lock"),
    ("driver-old", {"gpus": [gpu("9.0", driver="570.86.15")]}, {}, "CUDA 13.0, which needs NVIDIA driver 580 or newer"),
    (
        "gpu-too-new",
        {"gpus": [gpu("10.0")]},
        {"torch": "2.2.2", "cuda": "12.1"},
        "5.0 to 9.0, and none for 10.0 (GPU 10.0)",
    ),
    ("gpu-too-old", {"gpus": [gpu("7.0")]}, {}, "7.5 to 12.0, no more for 7.0 (GPU 7.0)"),
    ("image-room", place("images", 20), {"image_bytes": 30 * GIB}, "takes up to 32.2 GB, and /data has 21.5 GB free"),
    (
        "environment-room",
        {"docker": NO_DOCKER, **place("environments", 20)},
        {"environment_bytes": 30 * GIB},
        "takes up to 32.2 GB, and /data has 21.5 GB free",
    ),
    ("python-missing", {"docker": NO_DOCKER, "pythons": ["3.13"]}, {"environment_bytes": 1}, "needs a Python 3.11"),
    ("hardware-unmet", {}, {"spec": spec(gpus=2)}, "is skipped here: 2 GPUs are needed, and there is 1"),
]
IDS = [wrong[0] for wrong in WRONG]


def found(facts: Mapping[str, Any], need: Mapping[str, Any]) -> dict[str, Shortcoming]:
    findings = diagnose(replace(WELL, **facts), [replace(NEED, **need)])
    return {finding.rule: finding for finding in findings}


def test_where_all_is_well_nothing_is_found() -> None:
    assert diagnose(WELL, [NEED]) == []


@pytest.mark.parametrize(("rule", "facts", "need", "text"), WRONG, ids=IDS)
def test_what_is_wrong_is_found(rule: str, facts: dict[str, Any], need: dict[str, Any], text: str) -> None:
    finding = found(facts, need)[rule]
    assert text in finding.what
    assert finding.about == (["tiny/current"] if rule in {each.id for each in NEED_RULES} else [])


def test_every_rule_is_tried() -> None:
    assert sorted(IDS) == sorted(rule.id for rule in (*MACHINE_RULES, *NEED_RULES))


@pytest.mark.parametrize(("rule", "facts", "need", "text"), WRONG, ids=IDS)
def test_each_text_is_one_line_without_a_blank(
    rule: str, facts: dict[str, Any], need: dict[str, Any], text: str
) -> None:
    finding = found(facts, need)[rule]
    for line in (finding.what, finding.fix):
        assert line.strip() == line
        assert "\n" not in line
        assert not re.search(r"\{\w*\}", line.replace("${", ""))


def test_environments_that_lack_the_same_are_one_line() -> None:
    needs = [replace(NEED, case=f"case-{number}", spec=spec(gpus=2)) for number in range(17)]
    (finding,) = diagnose(WELL, needs)
    assert len(finding.about) == 17


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_architecture_that_counts_is_the_engines(machine: str) -> None:
    facts = replace(WELL, machine="arm64", docker=replace(WELL.docker, machine=machine))
    assert [each.rule for each in diagnose(facts, [])] == ["other-architecture"] * (machine == "aarch64")


def test_an_older_c_library_does_not_matter_to_images_nor_the_right_one_to_anything() -> None:
    assert diagnose(replace(WELL, glibc="2.28"), []) == []
    without = [each.rule for each in diagnose(replace(WELL, docker=NO_DOCKER, glibc="2.36"), [])]
    assert without == ["docker-missing"]


# What must not be found


@pytest.mark.parametrize(
    ("rule", "facts", "need"),
    [
        ("driver-old", {"gpus": [gpu("9.0", driver="580.65.06")]}, {}),
        ("driver-old", {"gpus": [gpu("9.0", driver="470.1")]}, {"spec": spec(gpus=0)}),
        ("driver-old", {"gpus": [gpu("9.0", driver="525.60.13")]}, {"cuda": "12.8"}),
        ("driver-old", {"gpus": [gpu("9.0", driver="1.0")]}, {"cuda": None}),
        ("gpu-too-new", {"gpus": [gpu("12.1")]}, {}),
        ("gpu-too-new", {"gpus": [gpu("13.0")]}, {}),  # PTX
        ("gpu-too-new", {"gpus": [gpu("10.0")]}, {"torch": None}),
        ("gpu-too-new", {"gpus": [gpu("10.0")]}, {"torch": "1.0", "cuda": "10.1"}),  # nobody knows
        ("gpu-too-new", {"gpus": [gpu("10.0")]}, {"torch": "2.2.2", "cuda": "12.1", "spec": spec(gpus=0)}),
        (
            "gpu-too-new",
            {"gpus": [gpu("10.0")]},
            {"torch": "2.2.2", "cuda": "12.1", "spec": spec(compute_capability="<10.0")},
        ),
        ("gpu-too-old", {"gpus": [gpu("7.0")]}, {"torch": "2.2.2", "cuda": "12.1"}),
        ("docker-missing", {"docker": DockerFacts(error="Permission denied")}, {}),
        ("docker-missing", {"docker": replace(NO_DOCKER, host="tcp://x")}, {}),
        ("docker-without-gpu", {"docker": replace(WELL.docker, gpu_mode=None), "gpus": []}, {}),
        ("docker-without-gpu", {"docker": NO_DOCKER}, {}),
        ("docker-without-buildkit", {"docker": replace(NO_DOCKER, builds=False)}, {}),
        ("gpu-missing", {"gpus": []}, {}),  # the driver is silent
        ("hardware-unmet", {"gpus": []}, {}),  # said once, of the machine
        ("disk-low", place("images", 0.5), {}),
        ("ptrace-restricted", {"ptrace": 1, "root_user": True}, {}),
        ("kernel-log-hidden", {"kernel_log": False, "gpus": []}, {}),
        ("image-room", {"docker": NO_DOCKER, **place("images", 20)}, {"image_bytes": 30 * GIB}),
        ("environment-room", place("environments", 20), {"environment_bytes": 30 * GIB}),
        ("python-missing", {"pythons": []}, {"environment_bytes": 1}),
        ("python-missing", {"docker": NO_DOCKER, "pythons": []}, {}),  # it is built already
        ("proxies-differ", {"proxies": {"http_proxy": "a", "HTTP_PROXY": "a"}}, {}),
        ("proxies-differ", {"proxies": {"http_proxy": "a", "HTTPS_PROXY": "b"}}, {}),
    ],
)
def test_what_is_right_is_not_found(rule: str, facts: dict[str, Any], need: dict[str, Any]) -> None:
    assert rule not in found(facts, need)


@pytest.mark.parametrize(
    ("capability", "torch", "cuda", "rule"),
    [
        ("9.0", "2.0.1", "11.7", "gpu-too-new"),
        ("9.0", "2.0.1", "11.8", None),
        ("10.0", "2.6.0", "12.4", "gpu-too-new"),
        ("12.0", "2.7.0", "12.6", "gpu-too-new"),
        ("10.0", "2.7.0", "12.8", None),
        ("12.0", "2.7.1", "12.8", None),
        ("10.3", "2.8.0", "12.8", None),
        ("6.1", "2.8.0", "12.8", "gpu-too-old"),
        ("7.0", "2.8.0", "12.8", None),
        ("7.0", "2.11.0", "12.8", "gpu-too-old"),
        ("5.2", "2.9.0", "13.0", "gpu-too-old"),
        ("7.0", "2.9.0", "13.0", "gpu-too-old"),
        ("7.5", "2.11.0", "13.0", None),
        ("8.9", "2.2.2+cu121", "12.1", None),
        ("6.1", "2.2.2", "12.1", None),
    ],
)
def test_pytorchs_wheels_and_compute_capabilities(capability: str, torch: str, cuda: str, rule: str | None) -> None:
    rules = set(found({"gpus": [gpu(capability)]}, {"torch": torch, "cuda": cuda}))
    assert rules & {"gpu-too-new", "gpu-too-old"} == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("capability", "torch", "cuda", "text"),
    [
        ("9.0", "2.0.1", "11.7", "the first with code for it is torch >=2.0,<2.1 with CUDA ==11.8"),
        ("12.0", "2.6.0", "12.4", "the first with code for it is torch >=2.7,<2.8 with CUDA ==12.8"),
        ("7.0", "2.11.0", "13.0", "the last with code for it is torch >=2.8,<2.11 with CUDA ==12.9"),
        ("3.5", "2.11.0", "13.0", "the last with code for it is none that is known"),
    ],
)
def test_what_would_have_code_is_named(capability: str, torch: str, cuda: str, text: str) -> None:
    findings = found({"gpus": [gpu(capability)]}, {"torch": torch, "cuda": cuda}).values()
    assert any(text in finding.fix for finding in findings)


@pytest.mark.parametrize(("cuda", "least"), [("11.8", "450"), ("12.9", "525"), ("13.2", "580")])
def test_drivers(cuda: str, least: str) -> None:
    def old(driver: str) -> Shortcoming | None:
        return found({"gpus": [gpu("9.0", driver=driver)]}, {"cuda": cuda}).get("driver-old")

    assert old(least) is None
    finding = old("440.1")
    assert finding
    assert f"needs NVIDIA driver {least} or newer, and here is 440.1" in finding.what


def test_the_worst_comes_first_and_the_same_is_said_once() -> None:
    needs = [replace(NEED, environment=name) for name in ("one", "two")]
    findings = diagnose(replace(WELL, gpus=[gpu("9.0", driver="470.1")], ptrace=1, proxies={"a": "b"}), needs)
    assert [finding.severity for finding in findings] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]
    assert findings[0].about == ["tiny/one", "tiny/two"]


def test_rules_look_at_nothing_but_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("a rule looked at the machine")

    calls: list[Callable[..., None]] = [nothing]
    for name in ("subprocess.Popen", "os.access", "shutil.which", "gpu_casebook.devices.hardware.gpus"):
        monkeypatch.setattr(name, calls[0])
    assert len({rule for _, facts, need, _ in WRONG for rule in found(facts, need)}) == len(WRONG)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("environments", "nox -s clean -- --unused"),
        ("images", "nox -s images -- --remove-unused"),
        ("downloads", "du -sh /data/* | sort -h"),
    ],
)
def test_what_makes_room_is_named_by_what_lies_there(name: str, command: str) -> None:
    assert found(place(name, 0.5), {})["disk-full"].fix == command
