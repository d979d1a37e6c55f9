"""Rate hints: what a receiver with several senders has to tell each of them."""

from .. import wire

GRANTED = 16


def max_min(total, demands):
    """Max-min shares; a demand of None is without limit."""
    shares, left, open_ = {}, total, dict(demands)
    while open_:
        even = left / len(open_)
        met = {n: d for n, d in open_.items() if d is not None and d <= even}
        if not met:
            return shares | {n: even for n in open_}
        for n, demand in met.items():
            shares[n], left = demand, left - demand
            del open_[n]
    return shares


class Hints:
    """The hints of all connections that end at one receiver."""

    def __init__(self, judge):
        self.judge = judge
        self.came = {}        # connection -> [(time, bytes of the IP packet)]
        self.told = {}        # connection -> [(time, epoch, rate)]
        self.heard = {}       # connection -> (time, rate)
        self.stamp = {}       # connection -> (timestamp, hint epoch) of the packet that the hint came in
        self.sent = {}        # connection -> bytes of data packets since the hint
        self.waiting = set()  # connections that are paused and have not probed yet

    @staticmethod
    def size(step):
        return len(step["datagram"]) // 2 + 28

    def arrived(self, number, step):
        self.came.setdefault(number, []).append((self.judge.now, self.size(step)))

    def shares(self, given):
        """What each active sender has to be told now."""
        interval = given["hint_interval_us"] * 1000
        return max_min(0.95 * given["capacity_mbps"], self.demands(interval, self.judge.now // interval * interval))

    def steady(self, given):
        """Whether the demands have been the same for three intervals."""
        interval = given["hint_interval_us"] * 1000
        start = self.judge.now // interval * interval
        return start >= 4 * interval and all(
            self.demands(interval, start - n * interval) == self.demands(interval, start) for n in (1, 2))

    def demands(self, interval, start):
        """What each sender active in the interval before `start` could use, by what it has used."""
        demands = {}
        for number, packets in self.came.items():
            last = sum(size for at, size in packets if start - interval <= at < start)
            before = [rate for at, _, rate in self.told.get(number, ()) if at < start]
            arrived_now = any(start <= at < start + interval for at, _ in packets)
            if not last and not arrived_now:
                continue
            used = last * 8000 / interval
            full = not before or not last or used >= 0.9 * before[-1]
            demands[number] = None if full else 1.25 * used
        return demands

    def hint_sent(self, number, given, body):
        check, now = self.judge.check, self.judge.now
        epoch, rate = body["hint_epoch"], body["rate_hint"]
        if not check("HINT-001", rate != wire.NO_HINT):
            return
        told = self.told.setdefault(number, [])
        if told:
            check("HINT-002", epoch == (told[-1][1] + (told[-1][2] != rate)) % 256)
        told.append((now, epoch, rate))
        shares = self.shares(given)
        share = shares.get(number)
        if share is not None and self.steady(given):
            check("HINT-005", abs(rate - share) <= 1 + share / 100)
        interval = given["hint_interval_us"] * 1000
        start = now // interval * interval
        # What a sender gets with its first packets counts from the next renewal on.
        current = [] if start == 0 else [entries[-1][2] for n, entries in self.told.items() if n in shares and entries[-1][0] >= start]
        check("HINT-004", sum(current) <= 0.95 * given["capacity_mbps"])
        if len({r for _, _, r in told}) > 1:
            self.judge.exercised.add("HINT-007")

    def hint_came(self, connection, side, stamp, body):
        number, epoch = connection.number, body["hint_epoch"]
        if number in self.stamp:
            before, last = self.stamp[number]
            later = wire.ahead(stamp, before)
            if later < 0 or (later == 0 and wire.ahead(epoch, last, 8) < 0):
                self.judge.exercised.add("HINT-010")
                return
        self.stamp[number] = stamp, epoch
        again = number in self.heard and self.heard[number][1] == 0 == body["rate_hint"]
        self.heard[number] = self.judge.now, body["rate_hint"]
        self.sent[number] = []
        if body["rate_hint"] != 0:
            self.waiting.discard(number)
            self.judge.void(lambda key: key == ("hint probe", number))
        elif not again:
            self.posted(connection, side)

    def paused(self, number, side):
        """Whether the sender has been told to pause. Hints go to the initiator here."""
        return side == "initiator" and self.heard.get(number, (0, None))[1] == 0

    def posted(self, connection, side):
        """A probe is due one RTT after a hint of 0 where there is work that waits for another hint."""
        number = connection.number
        if not self.paused(number, side) or number in self.waiting:
            return
        messages, queues = connection.senders[side].messages, connection.work[side].queues
        left = any(not messages.all_sent((stream, False, work["msn"])) for stream, queue in queues.items() for work in queue)
        trips = [path.srtt for path in connection.senders[side].outgoing.values() if path.srtt and not path.frozen]
        if left and trips:
            self.waiting.add(number)
            self.judge.due("HINT-013", ("hint probe", number), max(self.judge.now, self.heard[number][0] + min(trips)))

    def probe_sent(self, number, side):
        if self.paused(number, side):
            self.judge.met(("hint probe", number))

    def data_again(self, number, step):
        if number in self.heard:
            self.sent[number].append(self.size(step))
            if self.heard[number][1] == 0:
                self.judge.exercised.add("HINT-012")

    def data_sent(self, number, step):
        if number not in self.heard or step["from"] != "initiator":
            return
        since, rate = self.heard[number]
        self.sent[number].append(self.size(step))
        self.judge.check("HINT-011", rate != 0)
        if rate == 0:
            return
        allowed = rate * (self.judge.now - since) / 8000 + GRANTED * 2000
        self.judge.check("HINT-008", rate == wire.NO_HINT or sum(self.sent[number]) <= allowed)
