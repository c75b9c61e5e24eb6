"""The verbs that this package adds to `casebook`. To remove one, delete its folder and its line here."""

from gpu_casebook.cli.verbs import Verb

_PLACES = {
    "author": {
        "new": "Begin a case from a script, with marked blanks.",
        "add": "Add a whole case: try it, lock it, write it and review it.",
        "check": "Check manifests, scripts and locks; review named cases.",
    },
    "upkeep": {
        "images": "Build the images of all environments; show their sizes.",
        "refresh-bases": "Pin the base images to what their registry has now.",
        "report": "Render every report again from the evidence.",
    },
    "corpus": {
        "corpus": "Run many cases, each in every environment that can run here.",
    },
    "corpus.cli_runs": {
        "run-report": "Write the pages of a run of the corpus again.",
        "run-merge": "Merge runs that several machines made into one.",
        "matrix": "Print a matrix for GitHub Actions.",
    },
    "releases": {
        "bisect": "Find the release that introduced a failure, or fixed it.",
        "watch": "Try the newest releases: do the cases still fail?",
    },
    "catalogue": {
        "list": "List the cases.",
        "show": "Show a case: what users saw, why, environments, evidence.",
        "match": "Find the case that a failure is, from its log or from words.",
        "export": "Write the corpus as a dataset.",
        "site": "Build a static site of all cases, with a search.",
    },
    "issue": {"issue": "Write a bug report in the upstream project's own form."},
    "judge": {"judge": "Run a command: does it show the failure of a case?"},
    "grade": {"grade": "Grade a fix of a case on fresh inputs."},
    "doctor": {"doctor": "Say what this machine lacks for the cases, and what fixes it."},
    "bundle": {
        "bundle": "Pack cases and runner for a host without a network.",
        "bundle-run": "Run a bundle, and write one file to bring back.",
        "bundle-join": "Put evidence from such a host beside that of runs here.",
    },
}

VERBS = {
    name: Verb(f"casebook_workbench.{place}" + ".cli" * ("." not in place), line)
    for place, verbs in _PLACES.items()
    for name, line in verbs.items()
}
