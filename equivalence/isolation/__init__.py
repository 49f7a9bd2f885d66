"""Run a target that may abort, hang or exhaust memory in a process of its own.

target.py     IsolatedTarget: the `Target` protocol, answered by a worker process
opening.py    open_target: which targets get a worker, and which run in this process
supervise.py  one exchange with a worker, under a time and a memory limit
spawning.py   starting worker processes: forked off a warm server, or fresh ones
server.py     that warm server
worker.py     the loop inside a worker
settling.py   what a worker sets up before it imports anything of the user's
wire.py       messages, arrays and the socket that they cross
"""

inside_worker: bool = False
"""Whether this process is a worker; it starts no workers of its own."""
