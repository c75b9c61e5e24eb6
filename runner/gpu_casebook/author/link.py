"""Links to a report on GitHub: an issue, a pull request or a discussion. Pure; nothing is asked of the network."""

import re
from typing import NamedTuple

from gpu_casebook.errors import UsageError

_NAME = r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}"
_URL = re.compile(
    rf"(?:https?://)?(?:www\.)?github\.com/(?P<project>{_NAME})/(?P<kind>issues|pull|discussions)/(?P<number>[1-9][0-9]*)"
    r"(?:/[a-z]+)?/?(?:\?[^\s#]*)?(?:#\S*)?",
    re.IGNORECASE,
)
_SHORT = re.compile(rf"(?P<project>{_NAME})#(?P<number>[1-9][0-9]*)")
_FORMS = "https://github.com/OWNER/NAME/issues/NUMBER (or pull/NUMBER, discussions/NUMBER), or OWNER/NAME#NUMBER"


class Report(NamedTuple):
    """Where a failure was reported: "owner/name", "issues", "pull" or "discussions", and the number."""

    project: str
    kind: str
    number: int

    @property
    def url(self) -> str:
        return f"https://github.com/{self.project}/{self.kind}/{self.number}"


def parse(text: str) -> Report:
    """Raises UsageError, with the forms that are understood, for anything else."""
    match = _URL.fullmatch(text.strip()) or _SHORT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--issue {text}: not a report on GitHub; write {_FORMS}, or leave it out")
    return Report(match["project"], match.groupdict().get("kind", "issues").lower(), int(match["number"]))
