"""What a cluster counts and encodes is what one machine does, to the bit, whatever dies."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trafo.cluster import counting, encoding
from trafo.cluster.connect import connected, num_cpus, wait_for_cpu
from trafo.cluster.counting import counting_on
from trafo.cluster.encoding import encoding_on
from trafo.cluster.processes import NodeDiedError, RemoteProgram
from trafo.cluster.tasks import Tasks, map_in_order
from trafo.errors import ConfigError, InputError
from trafo.runtime import progress
from trafo.tokenizer import Tokenizer, encode_files, train_tokenizer

END = "<|endoftext|>"
KILOBYTE = 1 << 10


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kind of file; one is large enough for many pieces."""
    folder = tmp_path_factory.mktemp("texts")
    lines = [f"The {i}th cat sat on mat {i % 97}; Größe {i % 13} 猫{END}" for i in range(6000)]
    text = "\n".join(lines)
    (folder / "a.txt").write_text(text)
    (folder / "b.txt.gz").write_bytes(gzip.compress(text[:50_000].encode()))
    records = "".join(json.dumps({"text": line}) + "\n" for line in lines[:500])
    (folder / "c.jsonl").write_text(records)
    for i in range(5):
        (folder / f"small{i}.txt").write_text(lines[i] if i != 2 else "")
    return folder


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (counting, encoding):
        monkeypatch.setattr(module, "SMALLEST_PIECE", 16 * KILOBYTE)
        monkeypatch.setattr(module, "LARGEST_PIECE", 16 * KILOBYTE)


@pytest.fixture(scope="module")
def alone(texts: Path) -> Any:
    """The training on this machine."""
    return train_tokenizer(texts, 600, [END])


def test_the_same_tokenizer(texts: Path, alone: Any, ray: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(counting, "PIECES_PER_WAVE", 7)
    with counting_on("ray") as backend:
        training = train_tokenizer(texts, 600, [END], backend=backend)
    assert training.spec == alone.spec
    assert (training.num_bytes, training.num_words, training.num_distinct_words) == (
        alone.num_bytes,
        alone.num_words,
        alone.num_distinct_words,
    )


def encoded(texts: Path, spec: Any, out: Path, **options: Any) -> list[bytes]:
    encode_files(Tokenizer.from_spec(spec), texts, out, end_of_document=END, **options)
    return [Path(f"{out}{suffix}").read_bytes() for suffix in ("", ".documents", ".json")]


def test_the_same_token_file_to_the_byte(texts: Path, alone: Any, ray: Any, tmp_path: Path) -> None:
    with encoding_on("ray") as backend:
        there = encoded(texts, alone.spec, tmp_path / "x.tokens", backend=backend)
    assert there == encoded(texts, alone.spec, tmp_path / "y.tokens")


def test_only_a_few_pieces_are_under_way(ray: Any) -> None:
    """What bounds the memory of the driver, whatever the size of the corpus."""
    begun: list[int] = []

    def items() -> Iterator[int]:
        for i in range(30):
            begun.append(i)
            yield i

    for i, result in enumerate(map_in_order(Tasks(doubled, None), items())):
        assert result == 2 * i
        assert len(begun) - i <= 2 * num_cpus() + 1


def doubled(_: Any, number: int) -> int:
    return 2 * number


class Killing:
    """Kills a node as soon as it works on a piece, which is noted in a file."""

    def __init__(self, node: Any, notes: Path, patch: pytest.MonkeyPatch) -> None:
        self.node, self.notes, self.share_done = node, notes, 1.0
        notes.touch()
        advance = progress.Bar.advance

        def advance_and_kill(bar: Any, amount: float = 1) -> None:
            advance(bar, amount)
            if not node.is_dead and node.id in notes.read_text():
                self.share_done = bar.completed / bar.total
                node.kill()

        patch.setattr(progress.Bar, "advance", advance_and_kill)

    def noted(self, task: Callable[..., Any]) -> Callable[..., Any]:
        """The task, slower, and with a note of the node it ran on."""
        notes = self.notes

        def noting(*arguments: Any) -> Any:
            import ray

            with notes.open("a") as file:
                file.write(ray.get_runtime_context().get_node_id() + "\n")
            time.sleep(0.1)
            return task(*arguments)

        return noting


def test_a_node_that_dies_while_counting_changes_nothing(
    texts: Path, alone: Any, doomed_node: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    killing = Killing(doomed_node, tmp_path / "notes", monkeypatch)
    monkeypatch.setattr(counting, "count_piece", killing.noted(counting.count_piece))
    with counting_on("ray") as backend:
        training = train_tokenizer(texts, 600, [END], backend=backend)
    assert doomed_node.is_dead
    assert killing.share_done < 1
    assert training.spec == alone.spec
    assert training.num_words == alone.num_words


def test_a_node_that_dies_while_encoding_changes_nothing(
    texts: Path, alone: Any, doomed_node: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    here = encoded(texts, alone.spec, tmp_path / "y.tokens")
    killing = Killing(doomed_node, tmp_path / "notes", monkeypatch)
    monkeypatch.setattr(encoding, "encode_piece", killing.noted(encoding.encode_piece))
    with encoding_on("ray") as backend:
        there = encoded(texts, alone.spec, tmp_path / "x.tokens", backend=backend)
    assert doomed_node.is_dead
    assert killing.share_done < 1
    assert there == here


def test_a_worker_that_dies_is_replaced(
    texts: Path, alone: Any, ray: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    died = tmp_path / "died"
    encode_piece = encoding.encode_piece

    def dies_once(shared: Any, piece: Any) -> Any:
        if not died.exists():
            died.touch()
            os._exit(1)
        return encode_piece(shared, piece)

    monkeypatch.setattr(encoding, "encode_piece", dies_once)
    with encoding_on("ray") as backend:
        there = encoded(texts, alone.spec, tmp_path / "x.tokens", backend=backend)
    assert died.exists()
    assert there == encoded(texts, alone.spec, tmp_path / "y.tokens")


def test_what_is_wrong_with_a_text_is_said_as_on_one_machine(ray: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good \n" * 9000 + b"\xff\n")
    with counting_on("ray") as backend, pytest.raises(InputError) as there:
        train_tokenizer(bad, 300, backend=backend)
    with pytest.raises(InputError) as here:
        train_tokenizer(bad, 300)
    assert str(there.value) == str(here.value)
    assert "54,000" in str(here.value)


def test_text_that_no_worker_can_read_is_refused(ray: Any) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("memory://a.txt", b"low lower")
    with (
        counting_on("ray") as backend,
        pytest.raises(InputError, match=r"memory://a\.txt: only this process can read it"),
    ):
        train_tokenizer("memory://a.txt", 300, backend=backend)


def test_a_cluster_without_room_says_so(ray: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"memory": 1e9})
    with pytest.raises(InputError, match="the cluster has no CPUs for tasks; add a node"):
        wait_for_cpu()


def wait_until(happens: Callable[[], bool]) -> None:
    while not happens():
        time.sleep(0.1)


@pytest.mark.slow
def test_ctrl_c_leaves_no_job_behind(cluster: Any, ray: Any, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The cat sat on the mat. " * 2_000_000)
    pattern = r"\w+|\W"  # of the package regex, which is slow
    verb = ["tokenizer", "train", str(tmp_path / "text.txt"), "--pattern", pattern]
    more = ["--vocab-size", "300", "--out", str(tmp_path / "tok"), "--on", cluster.address]

    def busy() -> float:
        return float(ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0))

    wait_until(lambda: busy() == 0)
    with subprocess.Popen(
        [sys.executable, "-m", "trafo", *verb, *more], stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: busy() > 0 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "interrupted"
    wait_until(lambda: busy() == 0)


@pytest.fixture
def client_address(cluster: Any) -> Iterator[str]:
    """Where programs from outside connect to the cluster, as `ray start --head` offers it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    module = [sys.executable, "-m", "ray.util.client.server", "--mode", "proxy"]
    where = ["--host", "127.0.0.1", "--port", str(port), "--address", cluster.address]
    with subprocess.Popen([*module, *where], stderr=subprocess.DEVNULL) as server:
        wait_until(lambda: listens(port) or server.poll() is not None)
        yield f"ray://127.0.0.1:{port}"
        server.terminate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_commands_from_outside_of_the_cluster(
    texts: Path, alone: Any, client_address: str, ray: Any, tmp_path: Path
) -> None:
    def trafo(*arguments: str | Path) -> None:
        verb = [sys.executable, "-m", "trafo", "tokenizer", *map(str, arguments)]
        subprocess.run([*verb, "--on", client_address], check=True)

    specials = ["--vocab-size", "600", "--special-tokens", END]
    trafo("train", texts, *specials, "--out", tmp_path / "tok")
    assert Tokenizer.load(tmp_path / "tok").spec == alone.spec
    out = tmp_path / "x.tokens"
    trafo("encode", tmp_path / "tok", texts, "--end-of-document", END, "--out", out)
    there = [Path(f"{out}{suffix}").read_bytes() for suffix in ("", ".documents", ".json")]
    assert there == encoded(texts, alone.spec, tmp_path / "y.tokens")


_SHOUT = ["-c", "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"]


def answer_of(program: RemoteProgram) -> str:
    while (line := program.answer()) is None:
        time.sleep(0.05)
    return line


def test_a_program_on_a_node_answers_until_it_is_closed(ray: Any, tmp_path: Path) -> None:
    program = RemoteProgram(_SHOUT, 1, {}, tmp_path)
    for word in ("one", "two"):
        program.send(word)
        assert answer_of(program) == word.upper() + "\n"
    assert program.is_alive
    program.close()
    assert not program.is_alive


def test_a_node_that_does_not_see_the_folder_is_told(ray: Any, tmp_path: Path) -> None:
    program = RemoteProgram(_SHOUT, 1, {}, tmp_path / "elsewhere")
    program.send("one")
    with pytest.raises(InputError, match=r"does not see .*elsewhere; runs need a folder that all"):
        answer_of(program)
    program.close()


@pytest.mark.slow
def test_a_program_whose_node_died_is_lost(doomed_node: Any, ray: Any, tmp_path: Path) -> None:
    """Two programs, one on each node with a CPU: one is lost and the other is not."""
    programs = [RemoteProgram(_SHOUT, 1, {}, tmp_path) for _ in range(2)]
    for program in programs:
        program.send("one")
        assert answer_of(program) == "ONE\n"
    doomed_node.kill()
    lost: list[RemoteProgram] = []
    while not lost:  # the process on the node notices its end a little later
        for program in programs:
            program.send("two")
            try:
                assert answer_of(program) == "TWO\n"
            except NodeDiedError:
                lost.append(program)
    assert len(lost) == 1
    for program in programs:
        program.close()


def test_a_ray_that_does_not_start_is_not_a_bug_of_ours(monkeypatch: Any) -> None:
    import ray

    def refuse(address: str, **_: Any) -> None:
        if address == "auto":
            raise ConnectionError
        raise RuntimeError("the raylet failed to start:\n  no shared memory")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    reason = "Ray does not start: the raylet failed to start: no shared memory"
    with pytest.raises(InputError, match=reason), connected("ray"):
        pass


def test_an_address_where_nothing_listens_is_reported_at_once(monkeypatch: Any) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as free:  # bound, but it does not listen
        free.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{free.getsockname()[1]}"
        with (
            pytest.raises(InputError, match=f"{address}: no Ray cluster answers"),
            connected(address),
        ):
            pass


@pytest.mark.parametrize("on", ["spark", "", "host:", "http://host:80"])
def test_an_address_must_be_one(on: str, monkeypatch: Any) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match="--on is"), connected(on):
        pass
