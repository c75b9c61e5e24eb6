"""What is put into a watched trial; `sitecustomize` is copied there, and never imported here."""
