# mypy: ignore-errors
"""A CUDA error is thrown as a C++ exception where nothing can catch it: the process aborts.

ctypes knows nothing of C++ exceptions, so the one that PyTorch's own synchronisation throws reaches main uncaught.
"""

import ctypes
import pathlib

import torch

library = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libc10_cuda.so"))
table = torch.zeros(4, device="cuda")
torch.cuda.synchronize()
rows = table[torch.tensor([7], device="cuda")]
print("launched=1", flush=True)
try:
    synchronize = library["_ZN3c104cuda18device_synchronizeEv"]
except AttributeError:
    check = library["_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"]
    check(710, b"somewhere.cpp", b"synchronize", 1, True)
else:
    synchronize()
print("still here")
