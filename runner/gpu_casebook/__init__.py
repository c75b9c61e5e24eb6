"""Casebook's runner: from a case's manifest to a verdict and a report.

    import gpu_casebook

    evidence = gpu_casebook.load("rwkv6-backward").run(environment="front-end")
    print(evidence.verdict, evidence.reasons[0])

What stands in `__all__` is the API. It is imported when it is first used; its types are in __init__.pyi.
"""

from importlib import import_module

__version__ = "0.2.0"
__all__ = ["CasebookError", "Evidence", "LoadedCase", "SkippedError", "Verdict", "__version__", "cases", "load"]

_WHERE = {
    **dict.fromkeys(("LoadedCase", "cases", "load"), "api"),
    **dict.fromkeys(("CasebookError", "SkippedError"), "errors"),
    **dict.fromkeys(("Evidence", "Verdict"), "evidence"),
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
