"""Reports of a run of the corpus: what became of all its cases. One summary, and text of every kind made from it."""

from gpu_casebook.corpus.report.files import as_json, read, write
from gpu_casebook.corpus.report.junit import junit
from gpu_casebook.corpus.report.markdown import comment, job_summary, page
from gpu_casebook.corpus.report.model import RunSummary
from gpu_casebook.corpus.report.summary import summarise

__all__ = ["RunSummary", "as_json", "comment", "job_summary", "junit", "page", "read", "summarise", "write"]
