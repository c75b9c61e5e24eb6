"""One run of any command, judged against a case: a predicate for minifiers and for `git bisect run`."""
