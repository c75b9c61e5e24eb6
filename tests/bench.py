"""What the runner adds to the work itself, as ratios within one run: `nox -s bench [-- NAME ...]`.

Each figure compares two things measured in turn, several times, and shows the ratio of their medians.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_casebook.manifest.case import Case

ROOT = Path(__file__).resolve().parents[1]
RUNNER = [sys.executable, "-m", "gpu_casebook"]
CASE = "rwkv6-backward"
ENVIRONMENT = "front-end"
ROUNDS = 3
TRIALS = 3
CASES = 1000


def run(command: Sequence[str], cwd: Path = ROOT, variables: dict[str, str] | None = None) -> float:
    """Seconds that `command` takes. Scripts of a case may fail: that is what they are for."""
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    took = time.perf_counter() - begun
    if done.returncode not in {0, 1}:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return took


def in_turn(*things: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """Medians of things measured in turn, so that a machine that slows down slows all of them."""
    samples = [[thing() for thing in things] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*samples, strict=True)]


def row(name: str, text: str) -> None:
    print(f"{name:<12} {text}", flush=True)


def case_command(engine: str, trials: int, reports: str) -> list[str]:
    options = ["--engine", engine, "--environment", ENVIRONMENT, "--trials", str(trials), "--reports", reports]
    return [*RUNNER, "case", CASE, *options]


def warm() -> None:
    """Through the venv engine against the bare scripts in the very same environment."""
    from failure_signature.kinds import Variant
    from gpu_casebook.engines.venv.engine import VenvEngine
    from gpu_casebook.manifest.case import find
    from gpu_casebook.trial import Recipe

    found = find(ROOT, CASE, [path.name for path in (ROOT / "images").iterdir()])
    lock = found.lock_path(ENVIRONMENT, Variant.REPRO).read_text(encoding="utf-8")
    with VenvEngine() as engine:
        python = engine.prepare(Recipe(image="cpu", lock=lock), lambda _line: None).python
    with tempfile.TemporaryDirectory() as reports:

        def bare() -> float:
            counts = {Variant.REPRO: TRIALS, Variant.FIXED: TRIALS + 1}
            scripts = [str(found.script(variant)) for variant, count in counts.items() for _ in range(count)]
            return sum(run([python, script], cwd=Path(reports)) for script in scripts)

        def ours() -> float:
            return run(case_command("venv", TRIALS, reports))

        bare_s, ours_s = in_turn(bare, ours)
    row("warm venv", f"{ours_s:.2f} s against {bare_s:.2f} s bare: {ours_s / bare_s:.2f} times as long")
    row("", f"allowed 1.10 times + 1 s = {1.1 * bare_s + 1:.2f} s")


def docker() -> None:
    """What one more trial costs in docker, against the same script bare in the container's Python."""
    with tempfile.TemporaryDirectory() as reports:
        run(case_command("docker", 1, reports))

        def few() -> float:
            return run(case_command("docker", 1, reports))

        def many() -> float:
            return run(case_command("docker", 1 + TRIALS, reports))

        few_s, many_s = in_turn(few, many)
        added = (many_s - few_s) / (2 * TRIALS)
        venv_few_s, venv_many_s = in_turn(
            lambda: run(case_command("venv", 1, reports)),
            lambda: run(case_command("venv", 1 + TRIALS, reports)),
        )
        plain = (venv_many_s - venv_few_s) / (2 * TRIALS)
    row(
        "docker",
        f"{added:.2f} s a trial against {plain:.2f} s in venv: {added / plain:.2f} times, {added - plain:.2f} s more",
    )


def cold() -> None:
    """From `pip install nox` to the verdict, on a copy of the checkout with empty caches."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in tracked.stdout.split("\0")[:-1]:
            target = home / "checkout" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        variables = dict(os.environ) | {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "DOCKER_HOST": f"unix://{home}/nowhere.sock",
            "PATH": f"{home}/tools/bin:{os.environ['PATH']}",
        }
        begun = time.perf_counter()
        run([sys.executable, "-m", "venv", str(home / "tools")], variables=variables)
        run([str(home / "tools/bin/pip"), "install", "--quiet", "nox"], variables=variables)
        installed_s = time.perf_counter() - begun
        nox = str(home / "tools/bin/nox")
        run([nox, "-s", f"case-{CASE}", "--", "--environment", ENVIRONMENT], home / "checkout", variables)
        total_s = time.perf_counter() - begun
    row("cold", f"{total_s:.1f} s from nothing to the verdict, {installed_s:.1f} s of it for nox itself (allowed 60 s)")


def copies(home: Path, count: int) -> None:
    """`count` copies of one case under ids of their own, no script the same as another."""
    for name in ("images", "cases"):
        shutil.copytree(ROOT / name, home / name, ignore=lambda _d, names: [n for n in names if n in cases_of(names)])
    source = ROOT / "cases" / CASE
    for number in range(count):
        target = home / "cases" / f"copy-{number}"
        shutil.copytree(source, target)
        manifest = target / "case.yaml"
        manifest.write_text(manifest.read_text().replace(f"id: {CASE}", f"id: copy-{number}"))
        for script in target.glob("*.py"):
            script.write_text(f"{script.read_text()}\n# {number}\n")


def cases_of(names: Iterable[str]) -> set[str]:
    return {name for name in names if (ROOT / "cases" / name / "case.yaml").is_file()}


def listing() -> None:
    """`nox --list` with many cases, against as many sessions that are nothing."""
    with tempfile.TemporaryDirectory() as directory:
        full, empty = Path(directory, "full"), Path(directory, "empty")
        full.mkdir()
        copies(full, CASES)
        shutil.copy2(ROOT / "noxfile.py", full)
        empty.mkdir()
        sessions = "import nox\nfor n in range({}):\n    nox.session(lambda s: None, name=f'case-{{n}}')\n"
        (empty / "noxfile.py").write_text(sessions.format(CASES))
        ours_s, plain_s = in_turn(
            lambda: run([sys.executable, "-m", "nox", "--list"], full),
            lambda: run([sys.executable, "-m", "nox", "--list"], empty),
        )
    ratio = ours_s / plain_s
    row("nox --list", f"{ours_s:.2f} s for {CASES} cases against {plain_s:.2f} s: {ratio:.2f} times (allowed 1.5)")


def check() -> None:
    """`check` of many cases, and of one."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        copies(home, CASES)
        all_s, one_s = in_turn(
            lambda: run([*RUNNER, "check"], home), lambda: run([*RUNNER, "check", "--static", "copy-0"], home)
        )
    # Both scripts of each are parsed and compared statement by statement.
    row("check", f"{all_s:.2f} s for {CASES} cases (allowed 12 s), {one_s:.2f} s for one: {all_s / one_s:.1f} times")


RELEASES = ("21.3", "23.1")
"""Of packaging, one of the smallest packages: what is left is what a step adds."""


def bisect() -> None:
    """What one step of a bisection adds to installing a version and running the script."""
    from casebook_workbench.releases.records import bisections
    from gpu_casebook.packages.uv import program
    from tests.releases.test_bisect_real import lay_out

    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        script = lay_out(home)
        variables = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
        words = ["legacy-version", "--package", "packaging", "--good", RELEASES[0], "--bad", RELEASES[1]]

        def ours() -> float:
            return run([*RUNNER, "bisect", *words, "--engine", "venv", "--restart"], home, variables)

        ours()  # fetches what uv has not in its cache
        [found] = bisections(home / "local", "legacy-version")

        def bare() -> float:
            return sum(bare_step(step.version, step.trials) for step in found.steps)

        def bare_step(version: str, trials: int) -> float:
            made = run([program(), "venv", "--quiet", "--clear", "--python", "3.11", "made"], home)
            install = [program(), "pip", "install", "--quiet", "--compile-bytecode", "--python", "made/bin/python"]
            installed = run([*install, f"packaging=={version}"], home)
            return made + installed + sum(run(["made/bin/python", str(script)], home) for _ in range(trials))

        ours_s, bare_s = in_turn(ours, bare)
        steps = len(found.steps)
    added = (ours_s - bare_s) / steps
    row("bisect", f"{ours_s:.2f} s for {steps} steps against {bare_s:.2f} s bare: {added:.2f} s a step (allowed 2 s)")


def disk() -> None:
    """What cases add to the engine's disk, one after the other: it grows with distinct locks, not with cases.

    Of the images that are there: nothing is built.
    """
    from casebook_workbench.upkeep import usage as shares
    from failure_signature.text import size
    from gpu_casebook.daemon.client import connect
    from gpu_casebook.errors import EngineError
    from gpu_casebook.run.plan import recipes

    try:
        client = connect()
    except EngineError as error:
        return row("disk", f"not measured: {error}")
    found, _ = shares.layers(client, ROOT, {case.id: recipes(case) for case in every_case()})
    there = {case: chains for case, chains in found.items() if chains}
    before = 0
    for number in range(1, len(there) + 1):
        whole = shares.disk(dict(list(there.items())[:number]))
        case = list(there)[number - 1]
        row(
            "disk" if number == 1 else "",
            f"{number:3} cases, {whole.images:3} images: {size(whole.bytes):>8}, "
            f"{size(whole.bytes - before):>8} of it added by {case}",
        )
        before = whole.bytes
    whole = shares.disk(there)
    per_image = whole.bytes / whole.images if whole.images else 0
    return row(
        "",
        f"{size(whole.unshared_bytes)} if each case had its own: {whole.unshared_bytes / (before or 1):.1f} times "
        f"as much; {size(round(per_image))} an image; {len(found) - len(there)} cases have no image here",
    )


def every_case() -> "list[Case]":
    from gpu_casebook.manifest.case import discover, find, known_images

    return [find(ROOT, case, known_images(ROOT)) for case in discover(ROOT)]


def fleet() -> None:
    from tests import bench_fleet

    bench_fleet.fleet()


def match() -> None:
    """How well real reports are told apart, and a search among 1,000 cases against one among those of the corpus."""
    sys.path.insert(0, str(ROOT))
    from tests.catalogue.match.reports import table

    for line in table().splitlines():
        row("match", line)
    with tempfile.TemporaryDirectory() as home:
        copies(Path(home), CASES)
        command = [*RUNNER, "match", "an illegal memory access was encountered"]
        for place in (ROOT, Path(home)):
            run(command, place)  # fills the cache
        few_s, many_s = in_turn(lambda: run(command), lambda: run(command, Path(home)))
        log = Path(home, "train.log")
        log.write_text("".join(path.read_text() for path in sorted(ROOT.glob("runner/*/*/*.py")))[:200_000])
        long_s, _ = in_turn(lambda: run([*RUNNER, "match", str(log)], Path(home)), lambda: run(command))
    row("", f"{many_s:.2f} s among {CASES:,} cases: {many_s / few_s:.2f} times as long (allowed 1 s)")
    row("", f"{long_s:.2f} s of {log.name} with 200 kB")


def gpu_share() -> None:
    from tests import bench_gpus

    bench_gpus.gpu_share()


def site() -> None:
    """The site of the corpus and of 1,000 cases: how long it takes, and its size for each case."""
    sys.path.insert(0, str(ROOT))
    from casebook_workbench.catalogue.site.build import build

    with tempfile.TemporaryDirectory() as home:
        many = Path(home, "many")
        many.mkdir()
        copies(many, CASES)
        copied_evidence(many, CASES)
        for root in (ROOT, many):
            begun = time.perf_counter()
            made = build(root, root / "reports", Path(home, "out"))
            took = time.perf_counter() - begun
            parts = f"pages {made.wrote_s:.0f} s, generator {made.built_s:.0f} s, search {made.indexed_s:.0f} s"
            each = f"{1000 * took / made.cases:.0f} ms and {made.bytes / made.cases / 1000:.0f} kB a case"
            row("site", f"{took:.1f} s for {made.cases:,} cases, {made.bytes / 1e6:.0f} MB: {each} ({parts})")


def copied_evidence(home: Path, count: int) -> None:
    """The evidence of that case for each copy, under its id."""
    for path in (ROOT / "reports" / "evidence" / CASE).iterdir():
        text = path.read_text()
        for number in range(count):
            target = home / "reports" / "evidence" / f"copy-{number}" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.replace(f'"id": "{CASE}"', f'"id": "copy-{number}"'))


def of_corpus(name: str) -> Callable[[], None]:
    def measure() -> None:
        from tests import bench_corpus

        getattr(bench_corpus, name)()

    return measure


BENCHES: dict[str, Callable[[], None]] = {
    "warm": warm,
    "docker": docker,
    "list": listing,
    "check": check,
    "bisect": bisect,
    "disk": disk,
    "corpus": of_corpus("corpus"),
    "jobs": of_corpus("jobs"),
    "resume": of_corpus("resume"),
    "gpus": of_corpus("gpus"),
    "gpu-share": gpu_share,
    "fleet": fleet,
    "cold": cold,
    "match": match,
    "site": site,
}


def main(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no bench named {', '.join(unknown)} (there are: {', '.join(BENCHES)})")
    for name in names or BENCHES:
        BENCHES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
