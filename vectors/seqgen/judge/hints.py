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
        self.sent = {}        # connection -> [(time, bytes)] of new data since the hint

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

    def hint_came(self, number, body):
        self.heard[number] = self.judge.now, body["rate_hint"]
        self.sent[number] = []

    def data_sent(self, number, step):
        if number not in self.heard:
            return
        since, rate = self.heard[number]
        self.sent[number].append(self.size(step))
        allowed = rate * (self.judge.now - since) / 8000 + GRANTED * 2000
        self.judge.check("HINT-008", rate == wire.NO_HINT or sum(self.sent[number]) <= allowed)
