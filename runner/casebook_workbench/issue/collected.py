"""The environment as `python -m torch.utils.collect_env` would print it, from an attestation. Pure.

The order and the wording of the lines are that tool's (torch/utils/collect_env.py, as of PyTorch 2.11); what the
attestation does not know reads "Could not collect", as it does there. Packages are those that it lists, and the case's.
"""

import re
from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name

from gpu_casebook.evidence import Attestation, EnvironmentFacts, Gpu

_UNKNOWN = "Could not collect"
_LISTED = re.compile(
    r"torch.*|.*triton.*|numpy|mypy.*|flake8.*|optree|onnx.*|nvidia-(?:cublas|cuda-runtime|cuda-nvrtc|cudnn|nccl|cusparselt).*"
    r"|intel-.*|mkl.*|magma.*|functorch|cuda-bindings"
)


def environment_block(environment: EnvironmentFacts) -> str:
    """Return the tool's output, as far as it is known; the declared requirements if nothing was attested."""
    pins = [*environment.requirements, *(each for own in environment.variant_requirements.values() for each in own)]
    found = environment.attestation
    if found is None:
        return "\n".join(
            [f"Python version: {environment.python}", "Versions of relevant libraries (as declared):", *pins]
        )
    wanted = {canonicalize_name(re.split(r"[=\[]", pin, maxsplit=1)[0]) for pin in pins}
    packages: dict[str, str] = {canonicalize_name(name): version for name, version in found.packages.items()}
    listed = [name for name in sorted(packages) if name in wanted or _LISTED.fullmatch(name)]
    runtime = _version(packages, "nvidia-cuda-runtime")
    libc = re.search(r"-with-([a-z]+?)([0-9.]+)$", found.platform)
    lines = [
        f"PyTorch version: {packages.get('torch', 'N/A')}",
        f"Is debug build: {'False' if 'torch' in packages else 'N/A'}",
        f"CUDA used to build PyTorch: {_built_for(packages.get('torch'), runtime)}",
        "ROCM used to build PyTorch: N/A",
        "",
        f"OS: {found.os or operating_system(found)}",
        f"Libc version: {f'{libc[1]}-{libc[2]}' if libc else 'N/A'}",
        "",
        f"Python version: {found.python} (64-bit runtime)",
        f"Python platform: {found.platform}",
        f"Is CUDA available: {bool(found.gpus)}",
        f"CUDA runtime version: {runtime or _UNKNOWN}",
        *gpu_lines(found.gpus),
        f"Nvidia driver version: {found.driver or _UNKNOWN}",
        *([f"CUDA version that the driver supports: {found.cuda_driver}"] if found.cuda_driver else []),
        f"cuDNN version: {_version(packages, 'nvidia-cudnn') or _UNKNOWN}",
        "",
        *(["CPU:", f"Model name: {found.cpu}", f"CPU(s): {found.cpus}", ""] if found.cpu else []),
        "Versions of relevant libraries:",
        *(f"[pip3] {name}=={packages[name]}" for name in listed),
        f"[conda] {_UNKNOWN}",
    ]
    return "\n".join(lines)


def gpu_lines(gpus: Sequence[Gpu]) -> list[str]:
    """Return one GPU on the line itself, several on a line each."""
    label = "GPU models and configuration:"
    named = [f"GPU {number}: {gpu.name}" for number, gpu in enumerate(gpus)]
    return [label, *named] if len(named) > 1 else [f"{label} {named[0] if named else _UNKNOWN}"]


def operating_system(found: Attestation) -> str:
    """Return what `platform` says: "Linux (x86_64)"."""
    parts = found.platform.split("-")
    machine = next((part for part in parts if part in {"x86_64", "aarch64", "arm64"}), None)
    return f"{parts[0]} ({machine})" if machine else parts[0]


def _version(packages: Mapping[str, str], prefix: str) -> str | None:
    """Return the version of nvidia-cudnn, nvidia-cudnn-cu12 or nvidia-cudnn-cu13."""
    return next((packages[name] for name in sorted(packages) if re.fullmatch(rf"{prefix}(?:-cu\d+)?", name)), None)


def _built_for(torch: str | None, runtime: str | None) -> str:
    if torch is None:
        return "N/A"
    if build := re.search(r"\+cu(\d+)(\d)$", torch):
        return f"{build[1]}.{build[2]}"
    if torch.endswith("+cpu"):
        return "None"
    return ".".join(runtime.split(".")[:2]) if runtime else _UNKNOWN
