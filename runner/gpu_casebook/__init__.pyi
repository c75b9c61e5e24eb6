from failure_signature.trials import Verdict
from gpu_casebook.api import LoadedCase, cases, load
from gpu_casebook.errors import CasebookError, SkippedError
from gpu_casebook.evidence import Evidence

__version__: str
__all__ = ["CasebookError", "Evidence", "LoadedCase", "SkippedError", "Verdict", "__version__", "cases", "load"]
