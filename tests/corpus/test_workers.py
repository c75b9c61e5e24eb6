from gpu_casebook.corpus.model import End, Finished, Lost
from gpu_casebook.corpus.workers import given_up
from tests.corpus.pool_jobs import job


def test_a_job_that_kills_its_workers_ends_as_its_own_result() -> None:
    lost = [Lost(worker="w1", reason="it was killed", after_s=1.5), Lost(worker="w2", reason="it left", after_s=2.0)]
    finished = given_up(job("bomb"), lost)
    assert finished.end is End.BROKE
    assert finished.verdict is None
    assert finished.reason == "2 workers were lost with it, the last: w2: it left"
    assert finished.lost == lost
    assert finished.duration_s == 3.5
    assert Finished.model_validate_json(finished.model_dump_json()) == finished
