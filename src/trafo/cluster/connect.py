"""A Ray cluster for the length of a block: this machine's own, or one at an address."""

from __future__ import annotations

import os
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

from trafo.errors import ConfigError, InputError, TrafoError, missing_package
from trafo.runtime.console import say
from trafo.tokenizer.inputs import Inputs

_ADDRESS = re.compile(r"(?:ray://)?([^:/]+):(\d{1,5})/?")
_SECONDS_TO_CONNECT = 10.0
_SECONDS_FOR_A_CPU = 10.0
_OBJECT_STORE = 1 << 30  # bytes, of a cluster that is started here
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray's warning about GPUs asks for
    "RAY_DEDUP_LOGS": "0",
}


@contextmanager
def connected(on: str, num_workers: int | None = None) -> Iterator[None]:
    """Connect to a cluster for the block, and leave no task behind.

    `on` is `ray` for this machine's cluster, which is started with `num_workers` CPUs if there is
    none, or the address of one: `ray://host:port` from outside, `host:port` from one of its nodes.
    """
    ray = _import_ray()
    if ray.is_initialized():  # by the calling program, which stays connected
        _check_once(ray.get_runtime_context().get_job_id())
        yield
        return
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with hide_ray_warnings():
        _connect(ray, on, num_workers)
    try:
        wait_for_cpu()
        yield
    finally:
        with suppress(Exception), hide_ray_warnings():
            ray.shutdown()


def _import_ray() -> Any:
    try:
        with hide_ray_warnings():
            import ray
    except ImportError as error:
        raise missing_package(error.name or "ray", "--on ray needs") from error
    return ray


@contextmanager
def hide_ray_warnings() -> Iterator[None]:
    """Hide Ray's warnings about its own future and open files, which do not concern our users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _connect(ray: Any, on: str, num_workers: int | None) -> None:
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if on == "ray":
        try:
            ray.init("auto", **settings)
        except ConnectionError:
            say("starting a Ray cluster on this machine")
            with _ray_errors("Ray does not start", "this machine", "run it without --on"):
                ray.init(
                    "local",
                    num_cpus=num_workers,
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE,
                    _node_ip_address="127.0.0.1",
                    **settings,
                )
        return
    hint = "check that `ray status` on its head node is fine"
    with _ray_errors("no Ray cluster answers", on, hint):
        _check_port(on)
        ray.init(on, **settings)


@contextmanager
def _ray_errors(what: str, where: str, hint: str) -> Iterator[None]:
    try:
        yield
    except TrafoError:
        raise
    except Exception as error:  # of many classes, Ray's and those of what it uses
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{what}: {reason}", where=where, hint=hint) from error


def _check_port(on: str) -> None:
    """Raise if nothing listens at an address: Ray itself would try for minutes."""
    address = _ADDRESS.fullmatch(on)
    if address is None:
        raise ConfigError(f"--on is {on!r}", hint="write ray, ray://host:port or host:port")
    socket.create_connection((address[1], int(address[2])), _SECONDS_TO_CONNECT).close()


def num_cpus() -> int:
    """CPUs of all nodes that are alive."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


@lru_cache(maxsize=1)
def _check_once(_job: str) -> None:
    """A program that stays connected need not wait for a task before each of its jobs."""
    wait_for_cpu()


def wait_for_cpu() -> None:
    """Refuse a cluster without CPUs, or wait for one that is busy, and say so.

    The first task also shows whether the nodes have the same version of trafo.
    """
    import ray

    if num_cpus() < 1:
        raise InputError(
            "the cluster has no CPUs for tasks",
            hint="add a node with `ray start --address=HEAD:PORT`, or start it with --num-cpus",
        )
    answer = ray.remote(num_cpus=1, max_retries=-1)(_version).remote()
    ready, _ = ray.wait([answer], timeout=_SECONDS_FOR_A_CPU)
    if not ready:
        free = int(ray.available_resources().get("CPU", 0))
        say(f"waiting for a worker: {free} of {num_cpus()} CPUs of the cluster are free")
    try:
        found = ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        raise unwrap_error(error) from None
    if found != _version():
        raise InputError(
            f"a node of the cluster has trafo {found}, this machine has {_version()}",
            hint="install the same version everywhere",
        )


def _version() -> str:
    # By name: to import-linter, `import trafo` is to import all that it offers, torch included.
    return str(import_module("trafo").__version__)


def unwrap_error(error: Any) -> Exception:
    """The error that a task raised: our own error, if it was one."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, TrafoError):
        return cause
    if isinstance(cause, ModuleNotFoundError) or "ModuleNotFoundError" in str(error):
        missing = str(error).strip().splitlines()[-1]
        hint = "install the same trafo on every node"
        return InputError(f"a node of the cluster cannot run trafo: {missing}", hint=hint)
    return cause if isinstance(cause, Exception) else error


def check_shared_files(inputs: Inputs) -> None:
    """Refuse text that only this process can read."""
    for file in inputs.files:
        if str(file.path).startswith("memory://"):
            raise InputError(
                "only this process can read it, not the workers of a cluster",
                where=str(file.path),
                hint="use a folder that all nodes share, or s3://",
            )
