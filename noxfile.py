"""Sessions for people and CI. Thin: each calls the package (`casebook --help`).

`nox -s case-<id>` runs one case. Its options stand after `--`: see `casebook case --help`.
"""

import hashlib
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "check", "tests"]

ROOT = Path(__file__).parent
LOCK = ROOT / "runner" / "requirements.txt"
BUILDS = ("hatchling", "editables")
"""What an editable install of the runner is built with."""
SKIPPED = 14
STOP_S = 10.0
"""How long a session may take to stop after Ctrl-C before nox ends it."""
WORKERS = str(min(8, 2 * len(os.sched_getaffinity(0))))
"""Tests side by side: two for each core, as most wait for processes of theirs."""
NO_TESTS = 5
"""Pytest's status where the options leave no test in one of the suite's parts."""
QUICK = tuple(f"tests/{name}" for name in ("manifest", "reading", "judging", "report", "devices"))
PATHS = ("runner", "tests", "noxfile.py")


def environment(session: nox.Session, extra: str = "") -> str:
    """The Python of an environment that sessions share, with the locked packages; made again when those change."""
    home = ROOT / ".nox" / "-".join(["runner", *filter(None, extra.split(","))])
    python = home / "bin" / "python"
    stamp = home / "installed"
    project = (ROOT / "pyproject.toml").read_bytes()
    wanted = hashlib.sha256(project + LOCK.read_bytes()).hexdigest()
    if not (stamp.is_file() and stamp.read_text() == wanted):
        shutil.rmtree(home, ignore_errors=True)
        session.run(sys.executable, "-m", "virtualenv", "--quiet", str(home), external=True)
        asked = tomllib.loads(project.decode())["project"]
        extras = [one for name in filter(None, extra.split(",")) for one in asked["optional-dependencies"][name]]
        install = [str(python), "-m", "pip", "install", "--quiet"]
        # pip checks the hashes of a constraints file, but takes no directory beside them: hence two steps
        session.run(*install, "-c", str(LOCK), *BUILDS, *asked["dependencies"], *extras, external=True)
        session.run(*install, "--no-deps", "--no-build-isolation", "-e", str(ROOT), external=True)
        stamp.write_text(wanted)
    return str(python)


def call(
    session: nox.Session, *arguments: str, extra: str = "", skip_on: int | None = None, python: str | None = None
) -> None:
    """`python -m` with these arguments, in the shared environment or by `python`; Ctrl-C leaves it time to clean up."""
    session.run(
        python or environment(session, extra),
        "-m",
        *arguments,
        external=True,
        success_codes=[0] if skip_on is None else [0, skip_on],
        interrupt_timeout=STOP_S,
        terminate_timeout=STOP_S,
    )


def case_session(case: str, title: str) -> None:
    """Register `case-<id>`, with the case's title in `nox --list`."""

    def run(session: nox.Session) -> None:
        call(session, "gpu_casebook", "case", case, *session.posargs, skip_on=SKIPPED)

    run.__doc__ = title
    nox.session(name=f"case-{case}", venv_backend="none", default=False)(run)


def title_of(manifest: Path) -> str:
    """The title, read without a YAML parser: nox's own environment has none, and there may be a thousand cases."""
    with manifest.open("rb") as file:
        found = re.search(rb"^title:[ \t]*(.+?)[ \t]*$", file.read(4096), re.MULTILINE)
    title = found[1].decode("utf-8", "replace").strip("'\"") if found else ""
    return "".join(letter for letter in title if letter.isprintable())


for entry in sorted(os.scandir(ROOT / "cases"), key=lambda entry: entry.name):
    path = Path(entry.path, "case.yaml")
    if path.is_file():
        case_session(entry.name, title_of(path))


@nox.session(venv_backend="none", default=False)
def corpus(session: nox.Session) -> None:
    """Run all cases that can run here, or some (options after --); --resume goes on with a run that was killed."""
    extra = "ray" if any(word.startswith("--fleet") for word in session.posargs) else ""
    call(session, "gpu_casebook", "corpus", *session.posargs, extra=extra, skip_on=SKIPPED)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Ruff, mypy --strict and the layers of the package; actionlint and zizmor over the workflows."""
    python = environment(session, "dev")
    session.run(python, "-m", "ruff", "check", *PATHS, external=True)
    session.run(python, "-m", "ruff", "format", "--check", *PATHS, external=True)
    session.run(python, "-m", "mypy", external=True)
    session.run(str(Path(python).with_name("lint-imports")), "--no-logo", external=True)
    session.run(str(Path(python).with_name("actionlint")), external=True)
    session.run(
        str(Path(python).with_name("zizmor")), "--offline", "--no-progress", "--quiet", ".github", external=True
    )


@nox.session(venv_backend="none", default=False)
def new(session: nox.Session) -> None:
    """Begin a case: -- CASE --from SCRIPT --issue URL."""
    call(session, "gpu_casebook", "new", *session.posargs)


@nox.session(venv_backend="none", default=False)
def add(session: nox.Session) -> None:
    """Add a whole case, tried and reviewed: -- CASE --from SCRIPT --issue URL; what is missing is asked."""
    call(session, "gpu_casebook", "add", *session.posargs)


@nox.session(venv_backend="none")
def check(session: nox.Session) -> None:
    """Check all manifests, scripts and locks (-- CASE ... to review some, with their trials)."""
    call(session, "gpu_casebook", "check", *session.posargs)


@nox.session(venv_backend="none", default=False)
def match(session: nox.Session) -> None:
    """Find the case that a failure is: -- LOG, or words for it."""
    call(session, "gpu_casebook", "match", *session.posargs)


@nox.session(venv_backend="none", default=False)
def grade(session: nox.Session) -> None:
    """Grade a fix of a case on fresh inputs: -- CASE candidate.py (without it: the task)."""
    call(session, "gpu_casebook", "grade", *session.posargs)


@nox.session(name="grade-table", venv_backend="none", default=False)
def grade_table(session: nox.Session) -> None:
    """Candidates that are no fix, of all cases that can be graded: each must be refused (-- CASE ... for some)."""
    call(session, "tests.grade_table", *session.posargs, extra="dev")


@nox.session(venv_backend="none", default=False)
def export(session: nox.Session) -> None:
    """Write the corpus as a dataset: -- DIR."""
    call(session, "gpu_casebook", "export", *session.posargs)


@nox.session(venv_backend="none", default=False)
def issue(session: nox.Session) -> None:
    """A bug report for upstream from the evidence that is there: -- CASE (--gist DIR for the files to attach)."""
    call(session, "gpu_casebook", "issue", *session.posargs)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """The test suite (options of pytest after --): what can runs side by side, then what needs the machine alone."""
    suite(session, environment(session, "dev"))


@nox.session(name="tests-newest", default=False)
def tests_newest(session: nox.Session) -> None:
    """The test suite with the newest releases of all dependencies, whatever the lock has."""
    session.install("--upgrade", "-e", ".[dev]")
    session.run("python", "-m", "pip", "freeze", "--exclude-editable")
    suite(session, "python")


def suite(session: nox.Session, python: str) -> None:
    """Run the suite in two parts; both run, whatever fails. `-n 0` among the options: one by one in both."""
    options = session.posargs
    if "--alone" in options:
        call(session, "pytest", *options, python=python)
        return
    failed = False
    together = ["--alone", "no", "-n", WORKERS, "--dist", "worksteal", *options]
    for part in (together, ["--alone", "only", *options, "-n0"]):
        try:
            call(session, "pytest", *part, python=python, skip_on=NO_TESTS)
        except CommandFailed:
            failed = True
    if failed:
        session.error("some tests failed: see above")


@nox.session(venv_backend="none", default=False)
def quick(session: nox.Session) -> None:
    """The tests of what a change touches most often, in a minute: manifest, reading, judging, report, devices."""
    call(session, "pytest", "-q", "-n", WORKERS, "--dist", "worksteal", *QUICK, *session.posargs, extra="dev")


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Break cases in every way, and see that each gets the right verdict (-- TEXT for those with it in their name)."""
    call(session, "tests.mutants", *session.posargs, extra="dev")


@nox.session(venv_backend="none", default=False)
def lock(session: nox.Session) -> None:
    """Write the locks of all cases (-- CASE ... for some)."""
    call(session, "gpu_casebook", "lock", *session.posargs)


@nox.session(name="lock-runner", default=False)
def lock_runner(session: nox.Session) -> None:
    """Write runner/requirements.txt, the lock of the runner's packages (--upgrade after -- for the newest releases)."""
    session.install("uv")
    builds = Path(session.create_tmp()) / "builds.in"
    builds.write_text("\n".join(BUILDS))
    extras = ["--extra", "dev", "--extra", "ray", "--extra", "site"]
    how = ["--universal", "--generate-hashes", "--no-annotate", "--custom-compile-command", "nox -s lock-runner"]
    compile_ = ["uv", "pip", "compile", "--quiet", "--python-version", "3.11", *how, *extras, *session.posargs]
    session.run(*compile_, "--output-file", str(LOCK), "pyproject.toml", str(builds))


@nox.session(venv_backend="none", default=False)
def schema(session: nox.Session) -> None:
    """Write the JSON Schema that editors complete case.yaml from."""
    call(session, "gpu_casebook", "schema", *session.posargs)


@nox.session(venv_backend="none", default=False)
def images(session: nox.Session) -> None:
    """Build all images, show their sizes and what they share (--remove-unused after --)."""
    call(session, "gpu_casebook", "images", *session.posargs)


@nox.session(name="refresh-bases", venv_backend="none", default=False)
def refresh_bases(session: nox.Session) -> None:
    """Pin the base images to what their registry has now."""
    call(session, "gpu_casebook", "refresh-bases", *session.posargs)


@nox.session(venv_backend="none", default=False)
def report(session: nox.Session) -> None:
    """Render every report again from the evidence, with nothing run."""
    call(session, "gpu_casebook", "report", *session.posargs)


@nox.session(venv_backend="none", default=False)
def site(session: nox.Session) -> None:
    """All cases as a static site in build/site (-- OUT for another directory)."""
    call(session, "gpu_casebook", "site", *(session.posargs or ["build/site"]), extra="site")


@nox.session(venv_backend="none", default=False)
def bundle(session: nox.Session) -> None:
    """Pack cases with their environments and the runner, for a GPU host without a network (-- CASE ...)."""
    call(session, "gpu_casebook", "bundle", *session.posargs)


@nox.session(name="bundle-run", venv_backend="none", default=False)
def bundle_run(session: nox.Session) -> None:
    """Run a bundle, and write one file to bring back (-- FILE ...)."""
    call(session, "gpu_casebook", "bundle-run", *session.posargs, skip_on=SKIPPED)


@nox.session(name="bundle-join", venv_backend="none", default=False)
def bundle_join(session: nox.Session) -> None:
    """Put evidence from hosts without a network beside that of runs here (-- FILE ...)."""
    call(session, "gpu_casebook", "bundle-join", *session.posargs)


@nox.session(venv_backend="none", default=False)
def bisect(session: nox.Session) -> None:
    """Which release brought a failure, or fixed it (-- CASE --package NAME --good VERSION --bad VERSION)."""
    call(session, "gpu_casebook", "bisect", *session.posargs)


@nox.session(venv_backend="none", default=False)
def watch(session: nox.Session) -> None:
    """Try the newest releases of what the cases pin: does it still fail? (-- CASE ... for some)."""
    call(session, "gpu_casebook", "watch", *session.posargs)


@nox.session(venv_backend="none", default=False)
def doctor(session: nox.Session) -> None:
    """What this machine lacks for the cases, and the command that fixes it (-- CASE ... for some)."""
    call(session, "gpu_casebook", "doctor", *session.posargs)


@nox.session(venv_backend="none", default=False)
def clean(session: nox.Session) -> None:
    """Remove what runs that were killed left behind."""
    call(session, "gpu_casebook", "clean", *session.posargs)


@nox.session(venv_backend="none", default=False)
def simulate(session: nox.Session) -> None:
    """How often a race of known rate gets a wrong verdict, exactly and drawn."""
    session.run(environment(session, "dev"), "-m", "tests.simulation", *session.posargs, external=True)


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure what the runner adds, as ratios within one run."""
    python = environment(session, "dev")
    session.run(python, "tests/bench.py", *session.posargs, external=True, env={"PYTHONPATH": str(ROOT)})
