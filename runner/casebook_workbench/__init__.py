"""What people do with many cases: write, run, find, publish and grade them. Each verb stands in `verbs.VERBS`."""
