"""Reports of a run of the corpus: what became of all its cases. One summary, and text of every kind made from it."""

from casebook_workbench.corpus.report.files import as_json, read, write
from casebook_workbench.corpus.report.junit import junit
from casebook_workbench.corpus.report.markdown import comment, job_summary, page
from casebook_workbench.corpus.report.model import RunSummary
from casebook_workbench.corpus.report.summary import summarise

__all__ = ["RunSummary", "as_json", "comment", "job_summary", "junit", "page", "read", "summarise", "write"]
