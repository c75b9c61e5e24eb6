from casebook_workbench.issue.collected import environment_block
from gpu_casebook.evidence import Attestation
from tests.report.example import ATTESTATION, ENVIRONMENT, H200

INSTALLED = ATTESTATION.model_copy(
    update={
        "os": "Debian GNU/Linux 12 (bookworm) (x86_64)",
        "packages": {
            "torch": "2.11.0",
            "nvidia-cuda-runtime": "13.0.96",
            "nvidia_cudnn_cu13": "9.19.0.56",
            "rich": "14",
        },
    }
)


def lines(found: Attestation, *requirements: str) -> list[str]:
    changed = {"attestation": found, "requirements": list(requirements), "variant_requirements": {}}
    return environment_block(ENVIRONMENT.model_copy(update=changed)).splitlines()


def test_the_order_is_that_of_the_tool() -> None:
    told = [line.partition(":")[0] for line in lines(INSTALLED) if line]
    assert told[:4] == ["PyTorch version", "Is debug build", "CUDA used to build PyTorch", "ROCM used to build PyTorch"]
    assert told.index("OS") < told.index("Libc version") < told.index("Python version") < told.index("Python platform")
    assert told.index("Is CUDA available") < told.index("GPU models and configuration")
    assert (
        told.index("GPU models and configuration") < told.index("Nvidia driver version") < told.index("cuDNN version")
    )
    assert told[-2].startswith("[pip3] torch==")
    assert told[-1] == "[conda] Could not collect"


def test_what_is_known_is_told() -> None:
    told = lines(INSTALLED)
    for line in (
        "PyTorch version: 2.11.0",
        "CUDA used to build PyTorch: 13.0",
        "OS: Debian GNU/Linux 12 (bookworm) (x86_64)",
        "Libc version: glibc-2.36",
        "Is CUDA available: True",
        "CUDA runtime version: 13.0.96",
        "GPU models and configuration: GPU 0: NVIDIA H200",
        "Nvidia driver version: 580.159.04",
        "cuDNN version: 9.19.0.56",
    ):
        assert line in told


def test_a_build_of_its_own_says_what_it_was_built_for() -> None:
    for version, cuda in (("2.2.2+cu121", "12.1"), ("2.13.0+cpu", "None"), ("2.11.0+cu130", "13.0")):
        found = INSTALLED.model_copy(update={"packages": {"torch": version}})
        assert f"CUDA used to build PyTorch: {cuda}" in lines(found)


def test_several_gpus_have_a_line_each() -> None:
    told = lines(INSTALLED.model_copy(update={"gpus": [H200, H200]}))
    at = told.index("GPU models and configuration:")
    assert told[at + 1 : at + 3] == ["GPU 0: NVIDIA H200", "GPU 1: NVIDIA H200"]


def test_without_torch_and_gpu() -> None:
    told = lines(Attestation(python="3.11.2", platform="Linux-6.1-x86_64-with-glibc2.36"))
    assert "PyTorch version: N/A" in told
    assert "Is CUDA available: False" in told
    assert "GPU models and configuration: Could not collect" in told
    assert "OS: Linux (x86_64)" in told


def test_what_the_case_pins_is_listed_and_what_is_nobodys_business_is_not() -> None:
    assert "[pip3] rich==14" not in lines(INSTALLED)
    assert "[pip3] rich==14" in lines(INSTALLED, "Rich==14")


def test_where_nobody_looked_what_was_declared_is_told() -> None:
    told = environment_block(ENVIRONMENT.model_copy(update={"attestation": None}))
    assert "Versions of relevant libraries (as declared):" in told
    assert "torch==2.2.2" in told
