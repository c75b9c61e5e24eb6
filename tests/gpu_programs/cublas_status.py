# mypy: ignore-errors
"""cuBLAS itself, without PyTorch in between, refuses an argument."""

import ctypes
import glob
import pathlib

import torch

nvidia = pathlib.Path(torch.__file__).parent.parent / "nvidia"
path = sorted(glob.glob(f"{nvidia}/**/libcublas.so.*", recursive=True))[0]
cublas = ctypes.CDLL(path)
cublas.cublasGetStatusName.restype = ctypes.c_char_p
cublas.cublasGetStatusString.restype = ctypes.c_char_p
for status in (*range(16), 16):
    print(
        status,
        (cublas.cublasGetStatusName(status) or b"?").decode(),
        (cublas.cublasGetStatusString(status) or b"?").decode(),
    )
status = cublas.cublasSetStream_v2(None, None)
raise RuntimeError(f"cublasSetStream: {cublas.cublasGetStatusName(status).decode()}")
