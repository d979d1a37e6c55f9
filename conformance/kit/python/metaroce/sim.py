"""Two endpoints in simulated time, with a network between them that loses, delays, repeats and marks."""

import heapq
import itertools
import random

from .endpoint import Endpoint
from .recvpath import CE, ECT0
from .settings import NEVER, US


class Network:
    """What happens to packets, by chance and by seed. Delays are ns, chances from 0 to 1."""

    def __init__(self, seed, loss=0.0, ack_loss=None, duplicate=0.0, reorder=0.0, mark=0.0, delay=50 * US):
        self.rng = random.Random(seed)
        self.loss, self.ack_loss = loss, loss if ack_loss is None else ack_loss
        self.duplicate, self.reorder, self.mark, self.delay = duplicate, reorder, mark, delay
        self.dead_ports = set()       # source ports whose packets vanish
        self.dead_addresses = set()   # planes that are down, by address
        self.count = 0

    def arrivals(self, now, source, port, ecn):
        """[(time, ecn)] at which a packet arrives."""
        self.count += 1
        rng = self.rng
        if port in self.dead_ports or source in self.dead_addresses:
            return []
        if rng.random() < (self.loss if ecn else self.ack_loss):
            return []
        at = now + self.delay
        if rng.random() < self.reorder:
            at += rng.randrange(4 * self.delay)
        if ecn == ECT0 and rng.random() < self.mark:
            ecn = CE
        out = [(at, ecn)]
        if rng.random() < self.duplicate:
            out.append((at + rng.randrange(1, 4 * self.delay), ecn))
        return out


class Simulation:
    """Runs endpoints against each other; each packet takes its sender a microsecond."""

    def __init__(self, endpoints, network, watch=None):
        self.endpoints = endpoints          # address -> Endpoint
        self.network, self.watch = network, watch
        self.now = 1_000_000
        self.queue = []
        self.serial = itertools.count()
        self.busy = {id(e): 0 for e in endpoints.values()}
        self.unique = list({id(e): e for e in endpoints.values()}.values())
        self.events = {id(e): [] for e in self.unique}
        self.at = []                        # (time, call): what the program does

    def do(self, delay, call):
        heapq.heappush(self.at, (self.now + delay, next(self.serial), call))

    def flush(self):
        """Lets every endpoint that is free send what it has."""
        for endpoint in self.unique:
            while self.busy[id(endpoint)] <= self.now:
                sent = endpoint.poll_transmit(self.now)
                if sent is None:
                    break
                source, port, destination, ecn, datagram = sent
                self.busy[id(endpoint)] = self.now + US
                if self.watch:
                    self.watch.left(self.now, *sent)
                for when, mark in self.network.arrivals(self.now, source, port, ecn):
                    heapq.heappush(self.queue, (when, next(self.serial), source, port, destination, mark, datagram))
            self.events[id(endpoint)].extend(endpoint.poll_events())

    def step(self, until):
        """Goes on to the next thing that happens. Returns False when nothing does before `until`."""
        self.flush()
        due = min([self.queue[0][0] if self.queue else NEVER, self.at[0][0] if self.at else NEVER]
                  + [max(e.deadline(self.now), self.busy[id(e)]) for e in self.unique]
                  + [b for b in self.busy.values() if b > self.now])
        if due > until:
            self.now = until
            return False
        self.now = int(max(self.now, due)) if due == int(due) else int(max(self.now, due)) + 1
        while self.at and self.at[0][0] <= self.now:
            heapq.heappop(self.at)[2]()
        while self.queue and self.queue[0][0] <= self.now:
            _, _, source, port, destination, ecn, datagram = heapq.heappop(self.queue)
            if self.watch:
                self.watch.arrived(self.now, source, port, destination, ecn, datagram)
            self.endpoints[destination].handle(datagram, source, destination, ecn, self.now)
            self.flush()
        for endpoint in self.unique:
            if endpoint.deadline(self.now) <= self.now:
                endpoint.tick(self.now)
        return True

    def run(self, condition, limit):
        """Until the condition holds, at most for `limit` ns; returns whether it does."""
        until = self.now + limit
        while not condition():
            if not self.step(until):
                return condition()
        return True


def pair(settings_a, settings_b, network, seed, addresses=("10.0.0.1", "10.0.0.2"), watch=None):
    """An initiator and an acceptor that are setting up a connection."""
    a = Endpoint(settings_a, addresses[0], addresses[1], seed * 2 + 1)
    b = Endpoint(settings_b, addresses[1], addresses[0], seed * 2 + 2)
    endpoints = {addresses[0]: a, addresses[1]: b}
    endpoints.update({p: a for p in settings_a.planes})
    endpoints.update({p: b for p in settings_b.planes})
    simulation = Simulation(endpoints, network, watch)
    b.listen()
    a.connect(simulation.now)
    return simulation, a, b
