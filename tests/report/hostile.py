"""Evidence in which everything that a trial, a manifest or a machine may name is against us."""

from functools import cache

from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from gpu_casebook.evidence import Evidence, Gpu, UpstreamFacts
from tests.report.example import ATTESTATION, CASE, ENVIRONMENT, evidence

HOSTILE = (
    "``` `````````` ~~~\n</details></summary></code></pre><script>alert(1)</script><!--\n"
    "| a | b |\n|---|---|\n# heading\n> quote\n- item\n[x]: http://evil.example\n"
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\x07\x08 \u202eturned round\u2028 \x9b31m\r\n"
    "progress 1 %\rprogress 99 %\n@octocat fixes #123\n$a$ :boom: &lt; &#124;\n"
)


LONG = "x" * 1_000_000 + "\n"


@cache
def hostile() -> Evidence:
    name = "| ``` </details> @octocat #1"
    gpu = Gpu(name=name, compute_capability=name, driver=name)
    environment = ENVIRONMENT.model_copy(
        update={
            "name": name,
            "requirements": [name],
            "attestation": ATTESTATION.model_copy(update={"gpus": [gpu], "platform": name}),
            "drift": [name],
        }
    )
    signature = {
        Variant.REPRO: [f"message: {HOSTILE[:200]}", f"exception: {name}", f"figure {name}: < 1"],
        Variant.FIXED: [f"{name}"],
    }
    upstream = UpstreamFacts(project=name, issue=name, introduced=name, fixed=name, status="open", links=[name])
    case = CASE.model_copy(
        update={"title": name, "upstream": upstream, "signature": signature, "fix_diff": HOSTILE, "failure": name}
    )
    result = TrialResult(
        stdout=HOSTILE + LONG + "a=1\n",
        stderr=f'Traceback (most recent call last):\n  File "x", line 1, in <module>\nE: {HOSTILE}',
        duration_s=1.0,
        exit_status=1,
    )
    return evidence(
        result,
        result,
        case=case,
        environment=environment,
        command=HOSTILE[:200],
        runner=name,
        reasons=[HOSTILE, HOSTILE],
    )
