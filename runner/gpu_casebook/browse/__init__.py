"""Reading the corpus: which cases there are, and what is known of one."""
