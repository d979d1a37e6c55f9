"""Windows of one side: the largest ones that the rules of congestion allow, and what is in flight against them."""

FIRST, MOST, GRANTED = 16, 256, 2


class Window:
    """What a path is allowed by the rules, and what it would be if one of them were left out."""

    def __init__(self):
        self.size, self.alpha, self.start = float(FIRST), 1.0, True
        self.like_start = self.not_cut = None     # grown as in a start since the cut; without the cut
        self.marks = 0                            # CE_Count taken last
        self.fresh = 0                            # newly acknowledged since that count was taken
        self.period_at = self.cut_at = None
        self.period = [0, 0]                      # newly acknowledged, marked
        self.out = False                          # retired: no part of the connection's window any more


class Windows:
    """The windows of the direction that one side sends in."""

    def __init__(self, sender):
        self.s, self.judge = sender, sender.judge
        self.of = {(path, 0): Window() for path in range(sender.c.paths)}
        self.connection = float(FIRST * sender.c.paths)
        self.log = []

    def window(self, key):
        if key not in self.of:
            self.of[key] = Window()
            self.connection += FIRST
        return self.of[key]

    def sum(self):
        return sum(w.size for w in self.of.values() if not w.out)

    def lower(self, by):
        self.connection = max(1.0, self.connection - by)

    # --- what comes back ----------------------------------------------------------------------------------------------

    def newly(self, key, count):
        """A report, by an acknowledgment or the answer to a probe."""
        w = self.window(key)
        w.fresh += count
        w.period[0] += count
        for _ in range(count):
            step = 1.0 if w.start else 1 / max(self.sum(), 1)
            w.size = min(MOST, w.size + step)
            self.connection = min(max(self.sum(), 1), self.connection + (1.0 if w.start else 1 / max(self.connection, 1)))
            if w.like_start is not None:
                w.like_start += 1
                w.not_cut += 1

    def counted(self, key, path, marks):
        """The counts of an acknowledgment that advances, after what it newly reports."""
        w, now = self.window(key), self.judge.now
        new = (marks - w.marks) % 2**32
        if new > w.fresh:
            new = 0
        w.marks, w.fresh = marks, 0
        w.period[1] += new
        if w.period_at is None:
            # The first period begins with the first sample: there is no SRTT before.
            w.period_at, w.period = now, [0, 0]
        elif now - w.period_at >= path.srtt:
            w.alpha = 15 / 16 * w.alpha + w.period[1] / w.period[0] / 16
            w.period_at, w.period = now, [0, 0]
            self.judge.exercised.add("CC-006")
        if new:
            w.start = False
            if w.cut_at is None or now - w.cut_at >= path.srtt:
                w.cut_at, before = now, w.size
                w.size = max(1 / 16, w.size * (1 - w.alpha / 2))
                w.like_start, w.not_cut = w.size, before
                self.lower(before - w.size)
        self.log.append((now, key, w.alpha, w.size, self.connection))

    def timed_out(self, key):
        w = self.window(key)
        w.start = False
        if w.size > 1:
            self.lower(w.size - 1)
            w.size = 1.0
        w.like_start = w.not_cut = None

    def retired(self, key):
        w = self.window(key)
        if not w.out:
            w.out = True
            self.lower(w.size)

    # --- what goes out ------------------------------------------------------------------------------------------------

    def in_flight(self, key, path):
        held = self.s.c.work[self.s.side].refusals.named
        return sum(1 for psn in path.open() if (*key, psn) not in held and not self.s.lost(path, path.sent[psn][-1][0]))

    def new_packet(self, key, path):
        """A new packet goes out on a path: is there room?"""
        check, w = self.judge.check, self.window(key)
        here = self.in_flight(key, path)
        everywhere = here + sum(self.in_flight(k, p) for k, p in self.s.outgoing.items() if p is not path and not p.frozen)
        if here:
            fits = check("CC-001", here < w.size + GRANTED)
            if w.like_start is not None:
                if not fits and here < w.like_start + GRANTED:
                    check("CC-003", False)
                elif not fits and here < w.not_cut + GRANTED:
                    check("CC-005", False)
                else:
                    self.judge.exercised |= {"CC-003", "CC-005"}
            elif w.start and path.ever_heard:
                check("CC-004", fits)
        if everywhere and (fits if here else True):
            check("CC-002", everywhere < self.connection + GRANTED)
