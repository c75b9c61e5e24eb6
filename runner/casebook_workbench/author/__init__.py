"""Writing a case: a draft from a script, and what a reviewer would say of it."""
