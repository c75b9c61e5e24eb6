"""Reports: evidence in, text out."""

from gpu_casebook.report.case_page import case_page
from gpu_casebook.report.headline import summary
from gpu_casebook.report.index import index
from gpu_casebook.report.pages import publish, render

__all__ = ["case_page", "index", "publish", "render", "summary"]
