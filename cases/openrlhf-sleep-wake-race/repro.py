# /// script
# requires-python = "==3.11.*"
# dependencies = ["torch==2.13.0", "numpy==2.3.5", "requests==2.32.5", "tqdm==4.67.1", "openrlhf==0.6.0.post1"]
# [[tool.uv.dependency-metadata]]
# name = "openrlhf"
# requires-dist = []
# ///
"""Two ranks of OpenRLHF 0.6.0.post1 generate with two vLLM engines in sleep mode, and rank 0 comes later than rank 1.

What to look for: rank 1's engine serves "generate" before "wake_up" (generated_asleep=1), when vLLM has unmapped its
weights and its cache. Rank 0 alone wakes the engines, and rank 1 does not wait for that.

The released create_vllm_engines, LLMRayActor, batch_vllm_engine_call and RemoteExperienceMaker run, with gloo. Stand-ins
have the place of Ray (a thread per actor serves calls in the order in which they come, as Ray does) and of vLLM. Rank 0
begins when rank 1's engine has its request, or rank 1 waits for it in a barrier: no sleep can take a barrier's place.
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.managers import BaseManager
from threading import Event
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import openrlhf
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CALLS = ThreadPoolExecutor(8)


class Actor:
    """One thread, which serves calls in the order in which they come."""

    def __init__(self, instance):
        self.instance, self.turns, self.asked = instance, ThreadPoolExecutor(1), Event()

    def serve(self, name, *args, **kwargs):
        turn = self.turns.submit(getattr(self.instance, name), *args, **kwargs)
        if name == "add_requests":
            self.asked.set()
        return turn.result()

    def served(self):
        return [name for name, *_ in self.instance.llm.method_calls]

    def a_rank_waits(self):
        self.asked.set()

    def wait_for_a_rank(self):
        self.asked.wait(60)


def handle(actor):
    """What Ray gives for an actor: handle.method.remote(...) returns at once."""
    names = ("sleep", "wake_up", "add_requests", "get_responses")
    calls = {name: SimpleNamespace(remote=partial(CALLS.submit, actor.serve, name)) for name in names}
    return SimpleNamespace(actor=actor, **calls)


def stand_in():
    """Let OpenRLHF be imported without Ray, without vLLM, and without the models of the trainers."""

    def remote(what):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda **k: handle(Actor(what(**k)))))

    for name in ("ray.util.placement_group", "ray.util.scheduling_strategies", "openrlhf.models.actor"):
        sys.modules[name] = MagicMock()
    sys.modules["ray"] = MagicMock(remote=remote, get=lambda refs: [ref.result(60) for ref in refs])
    llm = {"generate.return_value": []}
    sys.modules["vllm"] = MagicMock(__version__="0.7.2", LLM=lambda **_: MagicMock(**llm), SamplingParams=dict)
    torch.cuda.synchronize = lambda: None  # there is no GPU
    for name in ("models", "trainer", "trainer/ppo_utils", "trainer/ray", "utils"):  # not all that each of them imports
        package = sys.modules[f"openrlhf.{name.replace('/', '.')}"] = ModuleType(name)
        package.__path__ = [f"{openrlhf.__path__[0]}/{name}"]


def engine(number, handles=[]):
    if not handles:  # all are made at once, in a process of their own
        stand_in()
        from openrlhf.trainer.ray.vllm_engine import create_vllm_engines

        handles += create_vllm_engines(2, 1, "model", 0, False, True, 8, num_total_actors=2, vllm_enable_sleep=True)
    return handles[number].actor


def run_rank(rank, engines, meeting):
    stand_in()
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    args = {"vllm_enable_sleep": True, "n_samples_per_prompt": 1, "micro_rollout_batch_size": 1, "perf": False}
    strategy = MagicMock(args=MagicMock(**args), ring_attn_group=None, ring_attn_size=1)
    tokenizer = MagicMock(return_value={"input_ids": [[1]]})
    maker = RemoteExperienceMaker(*[None] * 4, tokenizer, 8, None, strategy, vllm_engines=list(map(handle, engines)))
    barrier = dist.barrier
    barrier()
    if rank == 0:
        engines[1].wait_for_a_rank()  # late, as the rank that also writes logs and checkpoints
    dist.barrier = lambda: (engines[rank].a_rank_waits(), barrier())
    maker.make_experience_list(["a prompt"], ["a label"])


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    BaseManager.register("engine", engine)
    with BaseManager() as cluster, tempfile.TemporaryDirectory() as directory:
        engines = [cluster.engine(0), cluster.engine(1)]
        mp.spawn(run_rank, (engines, f"{directory}/meeting"), nprocs=2)
        served = [each.served() for each in engines]
    for number, calls in enumerate(served):
        print(f"engine {number} served: {', '.join(calls)}")
    print(f"generated={sum(calls.count('generate') for calls in served)}")
    print(f"generated_asleep={sum(calls[:2] == ['sleep', 'generate'] for calls in served)}")
