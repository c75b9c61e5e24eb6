"""What of the accused project ran: the word that a manifest has for it, as a sentence."""

from gpu_casebook.evidence import CaseFacts, Evidence
from gpu_casebook.revision import SEMANTICS

_RAN = {
    "release": "Releases of {} ran, one with the defect and one without it.",
    "release-workaround": "A release of {} ran, with the defect; the fixed script works around it.",
    "sources": "Files of {} ran, as they are at a commit.",
    "distilled": "No code of {} ran: the scripts are minimal code with the same defect, written for this corpus.",
    "pattern": "No code of {} ran: the scripts illustrate a mechanism.",
}
_TOLD_SINCE = 3
"""The semantics from which on evidence has these words; before, it had two of them for everything."""


def what_ran(provenance: str, project: str, semantics: int = SEMANTICS) -> str:
    """Return what of the accused project ran, in a sentence. `semantics` is that of the evidence, if it is from any."""
    if semantics < _TOLD_SINCE or provenance not in _RAN:
        return f"Recorded as {provenance}, before the record said what of {project} ran."
    return _RAN[provenance].format(project)


def then(run: Evidence, case: CaseFacts) -> list[str]:
    """Return what of the project ran then, where that is recorded and is not what the case has by now."""
    told = run.semantics >= _TOLD_SINCE or case.provenance == "sources"  # which nothing was, before that was told
    if not told or run.case.provenance == case.provenance:
        return []
    return [f"Then: {what_ran(run.case.provenance, case.upstream.project, run.semantics)}"]
