"""The data plane's ASGI server: Daphne, extended (docs/decisions/0004-daphne-extended.md).

`gateway_server` owns sockets, limits per client and draining; beside it, a module a protocol.
"""
