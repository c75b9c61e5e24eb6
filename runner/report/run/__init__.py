"""Reports of a run of the corpus: what became of all its cases. One summary, and text of every kind made from it."""

from runner.report.run.files import as_json, read, write
from runner.report.run.junit import junit
from runner.report.run.markdown import comment, job_summary, page
from runner.report.run.model import Summary
from runner.report.run.summary import summarise

__all__ = ["Summary", "as_json", "comment", "job_summary", "junit", "page", "read", "summarise", "write"]
