"""The corpus as a dataset: a row for each case, with a description and a card."""
