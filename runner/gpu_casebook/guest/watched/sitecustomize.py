"""Lets every Python process of a watched trial write where it stands, even one that hangs in C code or holds the GIL.

The engine puts this directory on PYTHONPATH, so that Python imports it at its start, in children too. It asks
faulthandler, whose signal handler is written in C and waits for nothing, to write the stacks of all threads to a file
without a name when SIGNAL comes; `gpu_casebook.guest.sampler` sends it, and reads the file through /proc. Then it
imports the environment's own sitecustomize. Whatever goes wrong here must not be seen in the trial.

It stands alone, for Python 3.8 and later.
"""

import faulthandler
import os
import sys

# A real-time signal that no convention uses; without a handler it would kill, so the sampler checks for one first.
SIGNAL = 61

MARK = "casebook-stacks-"
# The file's descriptor: out of the way of those that a script gets, and below the usual limit of 1024.
_NUMBER = 1000


def register() -> None:
    """Register this process; a forked child does it again, as it would write into its parent's file."""
    try:
        path = "{}/{}{}".format(os.environ.get("TMPDIR", "/tmp"), MARK, os.getpid())  # noqa: S108
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = os.open(path, flags, 0o600)
        os.unlink(path)  # noqa: PTH108 pathlib is slow to import, and this is every Python's start
        os.dup2(file, _NUMBER, inheritable=False)
        os.close(file)
        faulthandler.register(SIGNAL, file=_NUMBER, all_threads=True)
    except Exception:  # noqa: BLE001, S110 see above
        pass


def step_aside() -> None:
    """Import the sitecustomize that would have been imported without this one; its errors are its own."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 see above
    sys.path[:] = [place for place in sys.path if place != here]
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


if __name__ == "sitecustomize":
    register()
    os.register_at_fork(after_in_child=register)
    step_aside()
