"""Reports: evidence in, text out."""

from runner.report.index import index
from runner.report.markdown import case_page
from runner.report.pages import publish, render, render_all
from runner.report.summary import summary

__all__ = ["case_page", "index", "publish", "render", "render_all", "summary"]
