"""The service in a process of its own: real sockets, real clients, real signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette")

KEY = "a-key"
OPEN = "trafo_open_requests"

# What `trafo serve` runs, with a tiny model instead of a run.
PROGRAM = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("tiny", sys.argv[1])
tiny = module_from_spec(spec)
spec.loader.exec_module(tiny)
from trafo.generate.engine import EngineConfig, build_engine
from trafo.serve import server
from trafo.serve.app import App
from trafo.generate.chat_template import ChatTemplate
from trafo.serve.config import ServeConfig
from trafo.serve.models import Models, ServedModel
from trafo.serve.server import Server, bind_port
from trafo.serve.worker import Worker
bundle = tiny.tiny_bundle()
worker = Worker(build_engine(bundle.model, EngineConfig(threads=1)))
model = ServedModel("tiny", Path("tiny"), bundle, [worker])
server.HEADER_SECONDS = server.STALL_SECONDS = 3.0
port, key, shutdown_seconds = int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
config = ServeConfig(
    port=port, api_key=key, max_tokens=100_000, shutdown_seconds=shutdown_seconds
)
Server(App(Models([model]), config)).run(bind_port(config))
"""


@contextmanager
def server(shutdown_seconds=10.0):
    """A server and its address; whatever happens, it is gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    conftest = Path(__file__).with_name("conftest.py")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(conftest), str(port), KEY, str(shutdown_seconds)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            assert any(line.startswith("serving") for line in process.stderr)
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def address():
    with server() as (_, address):
        yield address


def test_curl(address):
    command = ["curl", "-sN", f"{address}/v1/completions", "-H", f"Authorization: Bearer {KEY}"]
    body = json.dumps({"prompt": "Hi", "max_tokens": 3, "stream": True})
    try:
        done = subprocess.run([*command, "-d", body], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no curl")
    assert done.stdout.endswith("data: [DONE]\n\n")


def test_openai_sdk(address):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY)
    assert [model.id for model in client.models.list()] == ["tiny"]
    same = {"model": "tiny", "seed": 4, "max_tokens": 8}
    done = client.completions.create(prompt="Hi", logprobs=2, **same)
    assert len(done.choices[0].logprobs.tokens) == done.usage.completion_tokens == 8
    parts = list(client.completions.create(prompt="Hi", stream=True, **same))
    assert "".join(part.choices[0].text for part in parts) == done.choices[0].text

    messages = [{"role": "user", "content": "Hi"}]
    chat = client.chat.completions.create(messages=messages, logprobs=True, top_logprobs=3, **same)
    entries = chat.choices[0].logprobs.content
    assert all(len(entry.top_logprobs) == 3 for entry in entries)
    options = {"include_usage": True}
    parts = list(
        client.chat.completions.create(
            messages=messages, stream=True, stream_options=options, **same
        )
    )
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == chat.choices[0].message.content
    assert parts[-1].usage.completion_tokens == chat.usage.completion_tokens

    vectors = client.embeddings.create(model="tiny", input=["a", "bc"])
    assert [len(each.embedding) for each in vectors.data] == [24, 24]
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(messages=messages, tools=[], **same)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="Hi")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0).models.list()


def test_openai_sdk_async(address):
    openai = pytest.importorskip("openai")
    import asyncio

    async def ask(client, seed):
        same = {"model": "tiny", "prompt": "Hi", "seed": seed, "max_tokens": 20}
        done = await client.completions.create(**same)
        stream = await client.completions.create(stream=True, **same)
        text = "".join([part.choices[0].text async for part in stream])
        assert text == done.choices[0].text
        return text

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY) as client:
            return await asyncio.gather(*(ask(client, seed) for seed in range(12)))

    assert len(set(asyncio.run(ask_all()))) == 12


def test_litellm(address, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    program = f"""
import warnings; warnings.simplefilter("ignore")
import litellm
same = dict(model="openai/tiny", api_base="{address}/v1", api_key="{KEY}", seed=1, max_tokens=6)
messages = [{{"role": "user", "content": "Hi"}}]
whole = litellm.completion(messages=messages, **same)
parts = litellm.completion(messages=messages, stream=True, **same)
text = "".join(part.choices[0].delta.content or "" for part in parts)
assert text == whole.choices[0].message.content, (text, whole)
del same["seed"], same["max_tokens"]
(vector,) = litellm.embedding(input=["Hi"], **same).data
assert len(vector["embedding"]) == 24, vector
history = [*messages, {{"role": "assistant", "content": None}}, *messages]
litellm.completion(messages=history, response_format={{"type": "text"}}, store=True, **same)
much = "Hi " * 40
for ask in (
    lambda: litellm.completion(messages=[{{"role": "user", "content": much}}], **same),
    lambda: litellm.embedding(input=[much], **same),
):
    try:
        ask()
    except litellm.ContextWindowExceededError:
        print("too long")
print("agreed")
"""
    said = _in_process(program, "litellm")
    assert "agreed" in said
    assert said.count("too long") == 2


def test_langchain(address):
    program = f"""
import warnings; warnings.simplefilter("ignore")
from langchain_openai import ChatOpenAI
chat = ChatOpenAI(model="tiny", base_url="{address}/v1", api_key="{KEY}", seed=1, max_tokens=6)
whole = chat.invoke("Hi").content
text = "".join(part.content for part in chat.stream("Hi"))
assert text == whole, (text, whole)
print("agreed")
"""
    assert "agreed" in _in_process(program, "langchain_openai")


def connect(address):
    host, port = address.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    connection.settimeout(60)
    return connection


def test_a_header_that_does_not_come_ends_the_connection(address):
    with connect(address) as silent, connect(address) as trickling:
        trickling.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        assert silent.recv(1) == b""
        assert trickling.recv(1) == b""


@pytest.mark.parametrize("line", [b"x" * 1000, b"x: x\r\n" * 200])
def test_endless_headers_end_the_connection(address, line):
    """One endless line, or endlessly many; also behind a request that is still being answered."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 50_000}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}"
    first = f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    for before in (b"", first):
        with connect(address) as endless:
            endless.sendall(before + b"GET /health HTTP/1.1\r\nX: ")
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                endless.sendall(line * 40_000)
    while open_requests(address):
        time.sleep(0.1)


def test_a_long_header_is_refused(address):
    with connect(address) as long:
        long.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * 70_000)
        head, _, content = rest_of(long).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(content)["error"]["code"] == "header_too_large"


def test_a_body_is_no_header(address):
    """However it is cut into packets."""
    body = json.dumps({"prompt": "x" * 400_000}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    with connect(address) as sender:
        sender.sendall(f"{head}Content-Length: {len(body)}\r\n".encode())
        for part in (b"\r\n", body[:150_000], body[150_000:]):
            time.sleep(0.05)
            sender.sendall(part)
        assert sender.recv(12) == b"HTTP/1.1 200"


def test_what_is_no_http_gets_json(address):
    with connect(address) as wrong:
        wrong.sendall(b"hello\r\n\r\n")
        head, _, content = rest_of(wrong).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/json" in head
    assert json.loads(content)["error"]["code"] == "invalid_http"


def test_a_client_that_stops_reading_blocks_no_other(address):
    """Its answer is larger than all buffers; others are answered, and it is cut off in the end."""
    endless = {"max_tokens": 50_000, "logit_bias": {"256": -100}}
    body = {"prompt": "Hi", "stream": True, "logprobs": 5} | endless
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    with connect(address) as slow:
        slow.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        assert slow.recv(12) == b"HTTP/1.1 200"
        other = urllib.request.Request(
            f"{address}/v1/completions",
            json.dumps({"prompt": "Hi", "max_tokens": 5}).encode(),
            {"Authorization": f"Bearer {KEY}"},
        )
        with urllib.request.urlopen(other, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 5
        while open_requests(address):
            time.sleep(0.1)
        assert b"[DONE]" not in rest_of(slow)


def open_requests(address):
    return num_open(address) > 1


def num_open(address):
    headers = {"Authorization": f"Bearer {KEY}"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/metrics", headers=headers)) as m:
        lines = m.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(OPEN))


def rest_of(connection):
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def _in_process(program, package):
    """These packages are slow to import and change global state."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"no {package}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(url):
    """Ask until the answer is 503, or there is none."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            return error.code == 503
        except urllib.error.URLError:
            return True


def test_sigterm_finishes_what_runs_and_refuses_the_rest():
    with server() as (process, address):
        request = urllib.request.Request(
            f"{address}/v1/completions",
            json.dumps({"prompt": "Hi", "max_tokens": 400, "stream": True}).encode(),
            {"Authorization": f"Bearer {KEY}"},
        )
        with urllib.request.urlopen(request) as stream:
            stream.readline()
            process.send_signal(signal.SIGTERM)
            assert refused(f"{address}/health")
            rest = stream.read()
        assert rest.endswith(b"data: [DONE]\n\n")
        assert process.wait(60) == 0


def test_what_sigterm_cuts_off_ends_with_an_error():
    """A stream ends with an event, a whole answer is a 503."""
    with server(shutdown_seconds=0.3) as (process, address):
        endless = {"prompt": "Hi", "max_tokens": 100_000, "logit_bias": {"256": -100}}
        streaming, waiting = (
            urllib.request.Request(
                f"{address}/v1/completions",
                json.dumps(endless | {"stream": stream}).encode(),
                {"Authorization": f"Bearer {KEY}"},
            )
            for stream in (True, False)
        )
        with ThreadPoolExecutor(1) as pool, urllib.request.urlopen(streaming) as stream:
            whole = pool.submit(urllib.request.urlopen, waiting)
            while not num_open(address) > 2:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            *_, last, nothing = stream.read().split(b"\n\n")
            error = whole.exception(60)
        assert nothing == b""
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "shutting_down"
        assert error.code == 503
        assert json.load(error)["error"]["code"] == "shutting_down"
        assert process.wait(60) == 0


def test_a_port_in_use_is_one_line_before_the_models_load(tmp_path):
    """The run does not even exist."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "trafo", "serve", str(tmp_path / "no-run"), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert port in line
    assert "--port" in line


def test_messages_to_a_full_disk_stop_nothing():
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    program = "from trafo.serve.errors import print_message as p; p('a'); p('b'); print('alive')"
    with full.open("w") as nowhere:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=nowhere, text=True
        )
    assert done.stdout == "alive\n"
