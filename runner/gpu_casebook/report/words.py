"""Single values as pages say them."""

from failure_signature.text import size
from failure_signature.trials import Rate
from gpu_casebook.evidence import Gpu, slug


def share(rate: Rate | None) -> str:
    return f"{rate.k} of {rate.n}" if rate and rate.n else "none"


def interval(rate: Rate) -> str:
    return f"95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def page_name(case: str) -> str:
    """Return the name of a case's page in the reports directory."""
    return f"{slug(case)}.md"


def gpu(found: Gpu) -> str:
    memory = [size(found.memory_bytes)] if found.memory_bytes else []
    return ", ".join([found.name, f"compute capability {found.compute_capability}", *memory])
