"""Many machines: counting, encoding and experiments on a Ray cluster, the extra `cluster`.

Read connect (which cluster, and does it have free CPUs), tasks (a function for each of many items,
on all nodes), then counting, encoding and processes. Results equal those of one machine to the bit.
Ray runs a task again when its worker or node dies, so every task depends only on its arguments.
"""
