import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook_workbench.redact import Private, redact

KNOWN = Private(
    places={"/srv/checkouts/casebook": "casebook", "/var/people/mwinter": "~"},
    users=frozenset({"mwinter"}),
    hosts=frozenset({"gpubox-17"}),
)
TOKENS = [
    "hf_" + "AbCdEfGh" * 4,
    "ghp_" + "a1B2c3D4" * 4,
    "gho_" + "a1B2c3D4" * 4,
    "github_pat_" + "11ABCDEFG0" * 4,
    "sk-" + "proj-a1B2c3D4" * 3,
    "glpat-" + "a1B2c3D4e5F6g7H8",
    "AKIA" + "ABCDEFGH12345678",
    "ASIA" + "ABCDEFGH12345678",
    "xoxb-" + "1234567890-abcdef",
    "AIza" + "a1B2c3D4e5" * 4,
    "npm_" + "a1B2c3D4e5" * 4,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
]
ROOT = "/" + "root"
PLANTED = {
    **{token: token for token in TOKENS},
    "Authorization: Bearer a1b2c3d4e5f6g7h8i9": "a1b2c3d4e5f6g7h8i9",
    "HF_TOKEN=zzzsecretzzz": "zzzsecretzzz",
    "AWS_SECRET_ACCESS_KEY = 'wJalrXUtnFEMIK7MDENG/bPx'": "wJalrXUtnFEMIK7MDENG",
    '"api_key": "zzz-secret-zzz"': "zzz-secret-zzz",
    "password: hunter2hunter2": "hunter2hunter2",
    'passphrase = "correct horse battery"': "horse",
    "MY_SERVICE_TOKEN=abcdefgh12345678ijkl": "abcdefgh12345678ijkl",
    "auth_token: 'zzzzzzzz'": "zzzzzzzz",
    "WANDB_API_KEY=0123456789abcdef0123": "0123456789abcdef0123",
    "https://joe:s3cr3t@index.example.org/simple": "s3cr3t",
    "redis://:s3cr3tpw@cache:6379/0": "s3cr3tpw",
    "https://ghostuser@host.example.org/x": "ghostuser",
    "/home/jdoe/code/train.py": "jdoe",
    "/Users/Jane.Doe/code/train.py": "Jane.Doe",
    r"C:\Users\jdoe\train.py": "jdoe",
    f"{ROOT}/project/train.py": ROOT,
    "/srv/checkouts/casebook/cases/x": "checkouts",
    "/var/people/mwinter/run.log": "people",
    "written by mwinter": "mwinter",
    "USER=somebody7": "somebody7",
    "HOSTNAME=node-a17": "node-a17",
    "[gpubox-17]: rank 3": "gpubox-17",
    "jdoe@trainer-3:~$ python x.py": "trainer-3",
    "node4.cluster.internal said": "node4",
    "connect to 10.24.3.17:29500": "10.24.3.17",
    "peer 192.168.0.12 left": "192.168.0.12",
    "listening on fe80:0:0:0:202:b3ff:fe1e:8329": "b3ff",
    "2001:db8::8a2e:370:7334 left": "8a2e",
    "mac 52:54:00:12:34:56": "52:54:00",
    "jane.doe@example.org wrote": "jane.doe",
    "<joe+x@company.co.uk>": "joe+x",
    "GPU-8f1a2b3c-1111-2222-3333-444455556666": "8f1a2b3c",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----": "b3BlbnNzaC1rZXk",
}
KEPT = [
    "[pip3] nvidia-cublas-cu12==12.1.3.1",
    'dependencies = ["nvidia-cudnn-cu12==8.9.2.26"]',
    "cuDNN version: 9.10.2.21",
    "init_method='tcp://127.0.0.1:29500'",
    "listening on 0.0.0.0",
    "y = x@w.mT",
    "y = q@k.transpose(-1, -2)",
    "y = a@b.to(torch.float32)",
    "@triton.jit\ndef kernel(x):",
    "c10::cuda::CUDAStream at::native::copy_",
    "00:12:34 elapsed",
    "GPU 00000000:00:06.0 fell off",
    "tokens=17",
    'SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}',
    "PreTrainedTokenizerFast(tokenizer_object=words, unk_token=WORDS[0], pad_token='<|endoftext|>')",
    "tokenizer.pad_token = tokenizer.eos_token",
    "image_token = 'IMG_CONTEXT'",
    "eos_token: 151645, bos_token_id=151643",
    "secret = config.secret_value",
    "password = getpass.getpass()",
    "api_key = os.environ['API_KEY']",
    "max_new_tokens: 20000",
    "tokenizer = AutoTokenizer",
    "token = None",
    "root cause: the user passes a mask",
    'File "/usr/lib/python3.12/ast.py", line 407',
    'File "/case/repro.py", line 78',
    "https://github.com/owner/name/issues/12",
    "mail-free text with an @ sign",
    "sk-learn and task-specific",
    "sha256:2a02aba9ed12e4ac4eb3ea9421c420301a0c6460d9830d74a9df87efa4912010",
]


@pytest.mark.parametrize(("text", "secret"), PLANTED.items())
def test_what_is_private_goes(text: str, secret: str) -> None:
    done = redact(text, KNOWN)
    assert secret not in done.text
    assert sum(done.counts.values()) >= 1


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert redact(text, KNOWN) == (text, {})


def test_a_name_told_by_a_home_path_goes_wherever_it_stands() -> None:
    text = 'File "/home/jdoe/x.py"\n[jdoe] rank 0 of job-jdoe'
    assert redact(text).text == 'File "~/x.py"\n[[user name]] rank 0 of job-[user name]'


def test_common_names_are_words_and_stay() -> None:
    private = Private(users=frozenset({"root", "user"}), hosts=frozenset({"localhost"}))
    assert redact("the root cause; a user on localhost", private).counts == {}


def test_the_longest_place_goes_first() -> None:
    private = Private(places={"/data/me": "~", "/data/me/casebook": "casebook"})
    assert redact("/data/me/casebook/cases /data/me/x /data/meadow", private).text == "casebook/cases ~/x /data/meadow"


def test_it_is_said_what_went() -> None:
    done = redact(f"{TOKENS[0]} and {TOKENS[1]} in /home/jdoe/x")
    assert done.counts == {"token": 2, "home path": 1}


BEFORE = st.text(alphabet=" \n\t\"'<>(),;", min_size=1, max_size=3)
BEHIND = st.text(alphabet=" \n\t\"'<>),;", min_size=1, max_size=3)  # what a "(" follows is a function's name
AROUND = st.text(max_size=60)


@given(before=AROUND, left=BEFORE, planted=st.sampled_from(sorted(PLANTED)), right=BEHIND, after=AROUND)
def test_whatever_stands_around_a_secret_it_goes(before: str, left: str, planted: str, right: str, after: str) -> None:
    secret = PLANTED[planted]
    if secret in f"{before} {after}" or "\n" in planted:
        return
    assert secret not in redact(f"{before}\n{left}{planted}{right}\n{after}", KNOWN).text


@given(text=st.text(max_size=300), planted=st.lists(st.sampled_from(sorted(PLANTED)), max_size=4))
def test_a_second_time_changes_nothing(text: str, planted: list[str]) -> None:
    once = redact("\n".join([text, *planted]), KNOWN).text
    assert redact(once, KNOWN).text == once


def test_it_takes_no_long_time_over_a_long_line() -> None:
    text = "a1:" * 40_000 + "/home/" * 5_000 + "=" * 40_000 + "token" * 10_000
    assert len(re.sub(r"\s", "", redact(text).text)) > 0
