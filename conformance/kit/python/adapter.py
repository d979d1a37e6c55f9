#!/usr/bin/env python3
"""The adapter: lines of JSON on standard input and output, real UDP sockets below.

    python3 adapter.py

One loop serves both. While a `poll` waits, packets flow; all other requests are answered at once.
"""

import gc
import json
import os
import select
import signal
import sys
import time
from collections import deque

from metaroce.requests import BadRequest, check
from metaroce.session import Session
from metaroce.settings import NEVER
from metaroce.udp import Sockets

MAX_LINE = 8 << 20


def no_repetitions(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise BadRequest("bad_request", "a name stands twice")
    return out


class Adapter:
    def __init__(self):
        self.session = Session()
        self.sockets = None
        self.lines = deque()
        self.partial = b""
        self.too_long = False
        self.polling = None   # (id, deadline) of a poll that waits
        self.ended = False

    # Standard input and output.

    def read_input(self):
        data = os.read(0, 1 << 20)
        if not data:
            self.ended = True
            return
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            self.lines.append(None if self.too_long or len(line) > MAX_LINE else line)
            self.too_long = False
        if len(self.partial) > MAX_LINE:
            self.partial, self.too_long = b"", True

    def write(self, answer):
        try:
            sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self.ended = True

    def serve_line(self, line):
        request_id = None
        try:
            if line is None:
                raise BadRequest("bad_line", "the line is too long")
            try:
                request = json.loads(line, object_pairs_hook=no_repetitions)
            except (ValueError, RecursionError):
                raise BadRequest("bad_line", "the line is no JSON") from None
            if type(request) is not dict:
                raise BadRequest("bad_line", "the line is no object")
            found = request.get("id")
            if type(found) is not int or not 0 <= found < 1 << 64:
                raise BadRequest("bad_request", "id is missing")
            request_id = found
            op, args = check(request)
            if op == "poll":
                self.polling = (request_id, time.monotonic_ns() + args["timeout_ms"] * 1_000_000)
                return
            self.write({"id": request_id, "ok": self.answer(op, args)})
        except BadRequest as error:
            self.write({"id": request_id, "error": {"code": error.code, "message": str(error)}})

    def answer(self, op, args):
        now = time.monotonic_ns()
        if op == "open":
            if self.session.endpoint is not None:
                raise BadRequest("already_open", "open was asked for already")
            ok = self.session.open(now, **args)
            endpoint = self.session.endpoint
            try:
                self.sockets = Sockets([endpoint.local] + endpoint.settings.planes, endpoint.settings.port)
            except OSError as error:
                self.session.endpoint = None
                raise BadRequest("io", str(error)) from None
            return ok
        if op == "reset":
            self.close()
            self.session = Session()
            gc.collect()
            return {}
        return self.session.answer(op, args, now)

    def close(self):
        if self.sockets:
            self.sockets.close()
            self.sockets = None

    # The network.

    def send_some(self, count, new):
        """Sends up to `count` datagrams, new data among them if `new`; returns whether there may be more."""
        endpoint = self.session.endpoint
        for _ in range(count):
            sent = endpoint.poll_transmit(time.monotonic_ns(), new)
            if sent is None:
                return False
            self.sockets.send(*sent)
        return True

    def serve_network(self, readable):
        """One turn. Each datagram draws its answer before the next is looked at; new data wait until all are."""
        endpoint = self.session.endpoint
        for s in readable:
            for _ in range(64):
                taken = self.sockets.receive(s)
                if taken is None:
                    break
                data, source, own, ecn = taken
                endpoint.handle(data, source, own, ecn, time.monotonic_ns())
                self.send_some(16, False)
        now = time.monotonic_ns()
        if endpoint.deadline(now) <= now:
            endpoint.tick(now)
        return self.send_some(4, True)

    def run(self):
        gc.disable()   # a collection would hold up acknowledgments
        more = False
        while not self.ended:
            now = time.monotonic_ns()
            sockets = list(self.sockets.receiving) if self.sockets else []
            due = self.polling[1] if self.polling else NEVER
            if self.sockets:
                due = min(due, self.session.endpoint.deadline(now))
            wait = 0 if more or self.lines and not self.polling else min(max(0, due - now) / 1e9, 60)
            readable, _, _ = select.select([0] + sockets, [], [], wait)
            if 0 in readable:
                readable.remove(0)
                self.read_input()
            more = self.serve_network(readable) if self.sockets else False
            if self.polling:
                events = self.session.take_events()
                if events or time.monotonic_ns() >= self.polling[1]:
                    self.session.events = []
                    self.write({"id": self.polling[0], "ok": {"events": events}})
                    self.polling = None
            elif self.lines:
                self.serve_line(self.lines.popleft())
                more = True   # it may have been given something to send
        self.close()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Adapter().run()


if __name__ == "__main__":
    main()
