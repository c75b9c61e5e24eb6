"""The cases of a corpus to look at: list, show, match, export, and a site of them all. Nothing is run."""
