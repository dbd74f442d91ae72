"""A program on a node of a cluster, which reads and answers line by line.

It ends when its stdin does, so nothing stays behind when the driver or the node is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trafo.cluster.connect import unwrap_error
from trafo.errors import InputError
from trafo.runtime.process import SECONDS_TO_END, LineProgram


class NodeDiedError(Exception):
    """The node that a program ran on is gone, or its actor."""


class ProgramActor:
    """The actor on the node. Ray calls two of its methods at a time, so that it can be stopped."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: str, must_see: str
    ) -> None:
        if not Path(folder).is_dir() or not Path(must_see).exists():
            raise InputError(
                f"a node of the cluster does not see {must_see}",
                hint="runs need a folder that all nodes share, under the same path",
            )
        self._program = LineProgram(arguments, environment, folder)

    def ask(self, line: str) -> str:
        """Give the program a line and return its answer, "" if it has ended."""
        self._program.send(line)
        return self._program.wait_for_answer()

    def stop(self) -> None:
        """Ask it to save and end."""
        self._program.stop()

    def close(self) -> None:
        """Wait until it has ended."""
        self._program.close()


class RemoteProgram:
    """A program on a node that has `num_cpus` to spare."""

    def __init__(
        self,
        arguments: Sequence[str],
        num_cpus: int,
        environment: Mapping[str, str],
        must_see: Path,
    ) -> None:
        """Start Python with `arguments` on a node that sees the file `must_see` and our folder."""
        import ray

        self._ray = ray
        actor = ray.remote(num_cpus=num_cpus, max_restarts=0, max_concurrency=2)(ProgramActor)
        self._actor = actor.remote(
            list(arguments), dict(environment), str(Path.cwd()), str(must_see.resolve())
        )
        self._answer: Any = None
        self.is_alive = True

    def send(self, line: str) -> None:
        """Give it a line, after which it answers."""
        self._answer = self._actor.ask.remote(line)

    def answer(self) -> str | None:
        """Return the answer, None if there is none yet, "" if the program has ended.

        Raises NodeDiedError if its node has died.
        """
        ready, _ = self._ray.wait([self._answer], timeout=0)
        if not ready:
            return None
        try:
            line = str(self._ray.get(self._answer))
        except self._ray.exceptions.RayTaskError as error:
            raise unwrap_error(error) from None
        except self._ray.exceptions.RayError as error:
            self.is_alive = False
            cause = getattr(error, "cause", None)
            if isinstance(cause, InputError):
                raise cause from None
            if "does not see" in str(error):  # raised by the constructor, reported as a death
                raise InputError(_find_message(error)) from None
            raise NodeDiedError("its node died") from error
        self.is_alive = bool(line)
        return line

    def stop(self) -> None:
        """Ask it to save and end."""
        if self.is_alive:
            self._actor.stop.remote()

    def close(self) -> None:
        """Wait until it has ended, and give its CPUs back."""
        with suppress(Exception):
            if self.is_alive:
                self._ray.get(self._actor.close.remote(), timeout=SECONDS_TO_END)
        with suppress(Exception):
            self._ray.kill(self._actor)
        self.is_alive = False


def _find_message(error: Exception) -> str:
    line = next(line for line in str(error).splitlines() if "does not see" in line)
    return line.partition("InputError: ")[2] or line
