"""The templates' environment: whatever is no `Markdown` yet is escaped on its way into a page."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpu_casebook.report import escape, sentence
from gpu_casebook.report.words import gpu, interval, packages, share
from gpu_casebook.words import date, instant, seconds, size, spread


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gpu_casebook.report"),
        autoescape=False,  # noqa: S701  these are Markdown pages; `finalize` escapes for them
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["headline"] = lambda run: sentence.markdown(sentence.headline(run))
    environment.filters.update(code=escape.code, codes=escape.codes, fence=escape.fence, listed=escape.listed)
    for form in (seconds, size, share, interval, spread, date, instant, packages, gpu):
        environment.filters[form.__name__] = form
    return environment


def _finalize(value: Any) -> str:
    return escape.prose(value) if isinstance(value, str) else str(value)


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)
