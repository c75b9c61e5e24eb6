"""The corpus as a static site: manifests, READMEs and evidence become pages; zensical builds them, pagefind indexes.

Nothing is fetched, neither while it is built nor while it is read.
"""
