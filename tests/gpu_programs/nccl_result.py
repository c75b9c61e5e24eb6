# mypy: ignore-errors
"""NCCL itself refuses a rank: its text for the result, and its last error."""

import ctypes
import glob
import pathlib

import torch

nvidia = pathlib.Path(torch.__file__).parent.parent / "nvidia"
nccl = ctypes.CDLL(sorted(glob.glob(f"{nvidia}/**/libnccl.so.*", recursive=True))[0])
nccl.ncclGetErrorString.restype = ctypes.c_char_p
nccl.ncclGetLastError.restype = ctypes.c_char_p
for result in range(8):
    print(result, nccl.ncclGetErrorString(result).decode())


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


torch.cuda.init()
communicator = ctypes.c_void_p()
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
result = nccl.ncclCommInitRank(ctypes.byref(communicator), 2, UniqueId(), 5)
last = (nccl.ncclGetLastError(None) or b"").decode()
raise RuntimeError(f"ncclCommInitRank: {nccl.ncclGetErrorString(result).decode()}: {last}")
