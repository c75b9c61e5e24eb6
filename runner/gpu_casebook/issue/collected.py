"""The environment as `python -m torch.utils.collect_env` would print it, from an attestation. Pure.

The order and the wording of the lines are that tool's (torch/utils/collect_env.py, as of PyTorch 2.11); what the
attestation does not know reads "Could not collect", as it does there. Packages are those that it lists, and the case's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name

from gpu_casebook.evidence import Attestation, EnvironmentFacts, Gpu

UNKNOWN = "Could not collect"
_LISTED = re.compile(
    r"torch.*|.*triton.*|numpy|mypy.*|flake8.*|optree|onnx.*|nvidia-(?:cublas|cuda-runtime|cuda-nvrtc|cudnn|nccl|cusparselt).*"
    r"|intel-.*|mkl.*|magma.*|functorch|cuda-bindings"
)


def block(found: Attestation, requirements: Iterable[str] = ()) -> str:
    """The tool's output, as far as it can be told. `requirements` are pinned ones, whose packages are listed too."""
    packages: dict[str, str] = {canonicalize_name(name): version for name, version in found.packages.items()}
    return "\n".join(_lines(found, packages, _names(requirements)))


def environment_block(environment: EnvironmentFacts) -> str:
    """As `block`, or the declared requirements where nobody looked at what was installed."""
    wanted = [*environment.requirements, *(each for own in environment.variant_requirements.values() for each in own)]
    if environment.attestation is None:
        return "\n".join(
            ["Python version: " + environment.python, "Versions of relevant libraries (as declared):", *wanted]
        )
    return block(environment.attestation, wanted)


def _lines(found: Attestation, packages: Mapping[str, str], wanted: set[str]) -> Iterator[str]:
    runtime = _version(packages, "nvidia-cuda-runtime")
    yield f"PyTorch version: {packages.get('torch', 'N/A')}"
    yield "Is debug build: False" if "torch" in packages else "Is debug build: N/A"
    yield f"CUDA used to build PyTorch: {_built_for(packages, runtime)}"
    yield "ROCM used to build PyTorch: N/A"
    yield ""
    yield f"OS: {found.os or operating_system(found)}"
    yield f"Libc version: {_libc(found)}"
    yield ""
    yield f"Python version: {found.python} (64-bit runtime)"
    yield f"Python platform: {found.platform}"
    yield f"Is CUDA available: {bool(found.gpus)}"
    yield f"CUDA runtime version: {runtime or UNKNOWN}"
    yield from gpu_lines(found.gpus)
    yield f"Nvidia driver version: {found.driver or UNKNOWN}"
    if found.cuda_driver:
        yield f"CUDA version that the driver supports: {found.cuda_driver}"
    yield f"cuDNN version: {_version(packages, 'nvidia-cudnn') or UNKNOWN}"
    yield ""
    yield "Versions of relevant libraries:"
    listed = [name for name in sorted(packages) if name in wanted or _LISTED.fullmatch(name)]
    yield from (f"[pip3] {name}=={packages[name]}" for name in listed)
    yield "[conda] Could not collect"


def gpu_lines(gpus: Sequence[Gpu]) -> Iterator[str]:
    """One GPU on the line itself, several on a line each."""
    named = [f"GPU {number}: {gpu.name}" for number, gpu in enumerate(gpus)]
    if len(named) == 1:
        yield f"GPU models and configuration: {named[0]}"
    else:
        yield f"GPU models and configuration: {'' if named else UNKNOWN}".rstrip()
        yield from named


def operating_system(found: Attestation) -> str:
    """What `platform` tells: "Linux (x86_64)"."""
    parts = found.platform.split("-")
    machine = next((part for part in parts if part in {"x86_64", "aarch64", "arm64"}), None)
    return f"{parts[0]} ({machine})" if machine else parts[0]


def _libc(found: Attestation) -> str:
    match = re.search(r"-with-([a-z]+?)([0-9.]+)$", found.platform)
    return f"{match[1]}-{match[2]}" if match else "N/A"


def _version(packages: Mapping[str, str], prefix: str) -> str | None:
    """Of nvidia-cudnn, nvidia-cudnn-cu12 or nvidia-cudnn-cu13."""
    return next((packages[name] for name in sorted(packages) if re.fullmatch(rf"{prefix}(?:-cu\d+)?", name)), None)


def _built_for(packages: Mapping[str, str], runtime: str | None) -> str:
    build = re.search(r"\+cu(\d+)(\d)$", packages.get("torch", ""))
    if build:
        return f"{build[1]}.{build[2]}"
    if "torch" not in packages or packages["torch"].endswith("+cpu"):
        return "N/A" if "torch" not in packages else "None"
    return ".".join(runtime.split(".")[:2]) if runtime else UNKNOWN


def _names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(re.split(r"[=\[]", each, maxsplit=1)[0]) for each in requirements}
