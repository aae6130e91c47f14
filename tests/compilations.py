"""How many programs XLA compiles, by JAX's own events."""

import contextlib

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
_heard = []


def _listener(event, seconds, **_):
    if event == _EVENT:
        _heard.append(seconds)


jax.monitoring.register_event_duration_secs_listener(_listener)


@contextlib.contextmanager
def counted():
    """A list that gets a number a program compiled within."""
    start, found = len(_heard), []
    yield found
    found += _heard[start:]
