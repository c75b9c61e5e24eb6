"""What Ray adds to a run on one machine; part of tests/bench.py.

`python -m tests.bench_fleet CORES` is a cluster of one node, until its standard input is closed; it prints its address.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.bench import ROOT, in_turn, row, run
from tests.bench_corpus import WAIT

CASES, JOBS = 100, 2


def fleet() -> None:
    """Cases of 1 s through a cluster that is there, against none. Starting one takes some seconds, once."""
    from tests.corpus.world import FIXED, REPRO, make_world

    with tempfile.TemporaryDirectory() as directory:
        world = make_world(Path(directory) / "checkout", Path(directory) / "cache")
        for number in range(CASES):
            world.write(f"case-{number:03}", WAIT + REPRO, WAIT + FIXED)

        def timed(*options: str) -> float:
            command = world.command("--jobs", str(JOBS), "--max-age", "0", "--no-probes", *options)
            return run(command, world.root, dict(world.environment()))

        timed("case-000")  # builds the environment
        with cluster(world.environment()) as address:
            local_s, there_s = in_turn(timed, lambda: timed("--fleet", address), rounds=1)
    text = f"{CASES} cases of 1 s, {JOBS} at once: {there_s:.1f} s on Ray against {local_s:.1f} s without"
    row("fleet", f"{text}: {there_s / local_s:.2f} times (allowed 1.15)")


@contextmanager
def cluster(variables: Mapping[str, str]) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench_fleet", str(JOBS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=variables, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdin
        address = process.stdout.readline().strip()
        if not address:
            sys.exit("no cluster came up")
        yield address
        process.stdin.close()


def serve(cores: int) -> None:
    from ray.cluster_utils import Cluster

    Path(tempfile.gettempdir(), "ray").mkdir()  # where Ray writes down which cluster is there
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as place:  # sockets want short names
        head = {"num_cpus": cores, "object_store_memory": 100 * 2**20, "temp_dir": place}
        there = Cluster(initialize_head=True, head_node_args=head)
        print(there.address, flush=True)
        sys.stdin.read()
        there.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    serve(int(sys.argv[1]))
