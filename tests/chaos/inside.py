"""Answers questions from within a distribution's mounts and network, and holds its port.

One JSON list a line on stdin, one JSON value a line on stdout, null for what cannot be had.
``["get", URL, LIMIT_S]`` gives a body; ``["sql", STATEMENT]`` rows of the history; ``["take"]``
listens on gpud's port where it is free, and ``["release"]`` ends that.
"""

import contextlib
import http.client
import json
import socket
import sqlite3
import sys
import urllib.request
from collections.abc import Callable

PORT = 9945
HISTORY = "file:/var/lib/gpud/gpud.db?mode=ro"
taken: list[socket.socket] = []


def get(url: str, limit_s: float) -> str:
    with urllib.request.urlopen(url, timeout=limit_s) as answer:
        body: bytes = answer.read()
        return body.decode()


def sql(statement: str) -> list[list[object]]:
    with contextlib.closing(sqlite3.connect(HISTORY, uri=True, timeout=1.0)) as history:
        return [list(row) for row in history.execute(statement)]


def take() -> bool:
    taken.append(socket.create_server(("127.0.0.1", PORT)))
    return True


def release() -> bool:
    while taken:
        taken.pop().close()
    return True


QUESTIONS: dict[str, Callable[..., object]] = {
    "get": get,
    "sql": sql,
    "take": take,
    "release": release,
}

for line in sys.stdin:
    name, *arguments = json.loads(line)
    answer = None
    with contextlib.suppress(OSError, http.client.HTTPException, sqlite3.Error):
        answer = QUESTIONS[name](*arguments)
    print(json.dumps(answer), flush=True)
