"""Many machines: counting, encoding and experiments on a Ray cluster, the extra `cluster`.

Read connect (which cluster, and is there room), tasks (a function for each of many items, on all
nodes), then counting, encoding and runs. Results are those of one machine, to the bit. Ray runs a
task again when its worker or node dies, which is why every task here depends on nothing but its
arguments.
"""
