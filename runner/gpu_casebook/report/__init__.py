"""Reports: evidence in, text out."""

from gpu_casebook.report.index import index
from gpu_casebook.report.markdown import case_page
from gpu_casebook.report.pages import publish, render, render_all
from gpu_casebook.report.summary import summary

__all__ = ["case_page", "index", "publish", "render", "render_all", "summary"]
