"""One Ray cluster in this machine for all tests here; nodes can be added to it and killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra cluster")

_SETTINGS = {
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
}
# A dead node is noticed after ten seconds. With four, a machine that paused to write its disk after
# the other tests lost the head of the cluster, and with it this process.
_QUICK = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 200,
    "health_check_failure_threshold": 50,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on a running cluster run alone.

    Ray ends the process that is connected to it when it takes a node for dead. Beside other tests
    on two cores a node may be without a sign of life for long.
    """
    for item in items:
        if "ray" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A head without CPUs, where the driver is, so that a node with tasks can always be killed."""
    for name in (
        "RAY_USAGE_STATS_ENABLED",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
        "RAY_worker_niceness",  # else workers wait for everything else on the machine
        "RAY_enable_metrics_collection",
    ):
        os.environ[name] = "0"
    from ray.cluster_utils import Cluster

    from trafo.cluster.connect import hide_ray_warnings

    with hide_ray_warnings():
        running = Cluster(
            initialize_head=True,
            head_node_args=_SETTINGS | {"num_cpus": 0, "_system_config": _QUICK},
        )
        running.add_node(**_SETTINGS)
        yield running
        running.shutdown()


@pytest.fixture(scope="session")
def ray(cluster: Any) -> Iterator[Any]:
    """Ray, connected to the cluster, as a program that calls trafo may be."""
    import ray

    from trafo.cluster.connect import hide_ray_warnings

    with hide_ray_warnings():
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        yield ray
        ray.shutdown()


class DoomedNode:
    """A node that dies as by a power cut, once."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._node = cluster.add_node(**_SETTINGS)
        self.id = self._node.node_id
        self.is_dead = False

    def kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self._cluster.remove_node(self._node, allow_graceful=False)


def get_ready() -> None:
    """A task: what a worker does before its first piece, so that no node is late."""
    from trafo.cluster import counting, encoding  # noqa: F401


@pytest.fixture
def doomed_node(cluster: Any, ray: Any) -> Iterator[DoomedNode]:
    """One more node, with a worker that is ready."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = DoomedNode(cluster)
    cluster.wait_for_nodes()
    here = NodeAffinitySchedulingStrategy(node.id, soft=False)
    ray.get(ray.remote(num_cpus=1)(get_ready).options(scheduling_strategy=here).remote())
    yield node
    node.kill()
