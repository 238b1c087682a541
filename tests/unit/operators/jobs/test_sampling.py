from __future__ import annotations

import httpx
import psutil
import pytest

from operators.jobs.sampling import phase, processes, prometheus


@pytest.mark.parametrize(
    ("doing", "found"),
    [
        ("reading the training set", "downloading"),
        ("epoch 3: 120,000 rows/s", "training"),
        ("saving a checkpoint", "checkpoint"),
        ("validating", "evaluating"),
    ],
)
def test_a_steps_own_words_say_its_phase(doing: str, found: str) -> None:
    assert phase(doing) == found


def client(answer: httpx.Response, asked: list[str]) -> httpx.Client:
    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["query"])
        return answer

    return httpx.Client(transport=httpx.MockTransport(respond))


def test_each_gpu_is_asked_by_what_its_multiprocessors_do() -> None:
    asked: list[str] = []
    series = [
        {"metric": {"pod": "fit-a1-0", "gpu": str(gpu)}, "value": [0, share]} for gpu, share in ((0, "0.9"), (1, "0.1"))
    ]
    answer = httpx.Response(200, json={"status": "success", "data": {"result": series}})
    assert prometheus("http://p", "perennial", "fit-a1-.*", client(answer, asked))() == (0.9, 0.1)
    assert asked == ['max by (pod, gpu) (DCGM_FI_PROF_SM_ACTIVE{namespace="perennial", pod=~"fit-a1-.*"})']


@pytest.mark.parametrize("answer", [httpx.Response(503), httpx.Response(200, json={}), httpx.Response(200, text="x")])
def test_without_an_answer_there_is_no_sample(answer: httpx.Response) -> None:
    assert prometheus("http://p", "perennial", "x", client(answer, []))() == ()


def test_the_first_look_at_processes_knows_no_rate_and_later_ones_a_share() -> None:
    busy = processes(lambda: [psutil.Process()], cores=1)
    assert busy() == ()
    found: tuple[float, ...] = (0.0,)
    while not sum(found):  # this very loop is the work
        found = busy()
    assert 0 < found[0] <= 1
