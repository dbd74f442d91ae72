"""Limits and security: who is refused, with which status, and what that costs the others."""

import asyncio
import json
import threading

import pytest

from trafo.generate import GenerationConfig
from trafo.generate.request import Request
from trafo.serve.errors import ApiError
from trafo.serve.guard import RateLimit
from trafo.serve.worker import Worker

BODY = {"prompt": "a", "max_tokens": 1}


def test_keys(serve):
    client = serve(api_key="sécret")
    assert client.post("/v1/completions", json=BODY).status_code == 401
    for wrong in ("Bearer x", "Bearer", "Basic sécret", "sécret"):
        headers = {"Authorization": wrong.encode()}
        answer = client.get("/v1/models", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert client.get("/metrics").status_code == 401
    headers = {"Authorization": "Bearer sécret".encode()}
    assert client.post("/v1/completions", json=BODY, headers=headers).status_code == 200
    for public in ("/", "/health"):
        assert client.get(public).status_code == 200


def test_large_bodies_are_not_read(serve):
    client = serve(max_body_bytes=100)
    assert client.post("/v1/completions", json=BODY | {"user": "x" * 100}).status_code == 413

    def chunks():
        for _ in range(50):
            yield b"x" * 10

    assert client.post("/v1/completions", content=chunks()).status_code == 413
    assert client.post("/v1/completions", json=BODY).status_code == 200


def test_a_full_queue_says_when_to_come_back(serve):
    client = serve(max_queue=3)
    answer = client.post("/v1/completions", json=BODY | {"n": 4})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1


def test_all_completions_that_wait_count(bundle, engine):
    """Also those that the engine has not heard of yet."""

    async def scenario():
        worker = Worker(engine, max_queue=10)  # not started: nothing is taken in
        four = GenerationConfig(max_new_tokens=1, num_samples=4)
        for _ in range(2):
            worker.submit([Request([1], four)]).close()
        with pytest.raises(ApiError) as refused:
            worker.submit([Request([1], four)])
        assert refused.value.status == 429

    asyncio.run(scenario())


def test_an_abandoned_computation_keeps_its_place(client):
    """Its thread continues, so the next one begins after it; the queue counts it."""
    service = client.app.service
    begun, go_on, log = threading.Event(), threading.Event(), []

    def slow(_):
        begun.set()
        go_on.wait(60)
        log.append("first")

    async def scenario():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(service.compute(slow), 0.05)
        assert begun.is_set()
        assert service.num_jobs == 1
        second = asyncio.ensure_future(service.compute(lambda _: log.append("second")))
        await asyncio.sleep(0.05)
        go_on.set()
        await second
        assert log == ["first", "second"]
        assert service.num_jobs == 0

    client.portal.call(scenario)


def test_rates(serve):
    client = serve(requests_per_minute=2)
    statuses = [client.get("/v1/models").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert 1 <= int(client.get("/v1/models").headers["retry-after"]) <= 61
    assert client.get("/health").status_code == 200


def test_a_rate_is_one_of_any_minute():
    rate = RateLimit(2)
    assert [rate.wait("a", now) for now in (0.0, 30.0)] == [0.0, 0.0]
    assert rate.wait("a", 45.0) == 15.0
    assert rate.wait("b", 45.0) == 0.0
    assert rate.wait("a", 60.0) == 0.0
    assert rate.wait("a", 61.0) == 29.0


def test_pages_from_elsewhere(serve):
    client = serve()
    headers = {"Origin": "https://evil.example"}
    assert client.post("/v1/completions", json=BODY, headers=headers).status_code == 403
    own = {"Origin": "http://127.0.0.1"}
    answer = client.post("/v1/completions", json=BODY, headers=own)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    open_one = serve(cors_origins=("https://evil.example",))
    answer = open_one.post("/v1/completions", json=BODY, headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://evil.example"


LOCAL = ("localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:80", "[::1]:8000")
REBOUND = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.", "::1", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_names_that_point_here_by_dns_rebinding(serve, host):
    """The page's origin equals the host: only the name shows that it is another site."""
    client = serve(host=host)
    for name in LOCAL:
        assert client.get("/v1/models", headers={"Host": name}).status_code == 200
    for name in REBOUND:
        headers = {"Host": name, "Origin": f"http://{name}"}
        for path in ("/v1/models", "/"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "host_not_allowed"


def test_host_names_of_a_service_for_others(serve):
    for settings in ({"host": "0.0.0.0"}, {"allowed_hosts": ("Example.org",)}):
        client = serve(**settings)
        for name in ("example.org", "example.org:443", "localhost"):
            assert client.get("/health", headers={"Host": name}).status_code == 200
    client = serve(host="0.0.0.0", allowed_hosts=("example.org",))
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 403


def test_shutting_down(serve):
    client = serve()
    client.app.guard.closing = True
    answer = client.post("/v1/completions", json=BODY)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "shutting_down"
    assert "retry-after" in answer.headers


def test_time_is_limited(serve):
    client = serve(max_seconds=0)
    answer = client.post("/v1/completions", json=BODY)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "timeout"
    stream = client.post("/v1/completions", json=BODY | {"stream": True})
    assert '"code":"timeout"' in stream.text
    assert "[DONE]" not in stream.text
    assert client.app.num_active == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_place(serve, engine, stream):
    """Spoken to by hand: the connection ends right after the body."""
    client = serve(max_tokens=100_000)
    app = client.app
    gone = threading.Event()

    async def receive():
        if not gone.is_set():
            gone.set()
            body = {"prompt": "a", "max_tokens": 100_000, "stream": stream}
            return {"type": "http.request", "body": json.dumps(body).encode()}
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "raw_path": b"/v1/completions",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    client.portal.call(app, scope, receive, send)
    assert app.num_active == 0
    # The engine hears of it before its next step; another request shows that it is free.
    assert client.post("/v1/completions", json=BODY).status_code == 200
    assert engine.pool.num_free == engine.pool.num_blocks
