"""Which known case is a failure? From a log, a trace or words, offline."""
