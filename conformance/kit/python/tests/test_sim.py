"""Random programs between two of these endpoints in simulated time, and what the checks are worth."""

import unittest

from metaroce import wire
from metaroce.receiver import Receiver
from metaroce.recvpath import RecvPath
from metaroce.reliability import Reliability
from metaroce.simrun import SimRun


class Good(unittest.TestCase):
    def test_seeds(self):
        """Every byte and every completion is right, and neither watch sees a rule broken."""
        for seed in range(12):
            with self.subTest(seed=seed):
                self.assertEqual(SimRun(seed).run(), [])

    def test_same_seed_same_run(self):
        runs = [SimRun(5), SimRun(5)]
        for run in runs:
            run.run()
        self.assertEqual(runs[0].network.count, runs[1].network.count)
        self.assertEqual(runs[0].sim.now, runs[1].sim.now)


class Broken(unittest.TestCase):
    """An endpoint that breaks a rule is found out."""

    def failures(self, seeds):
        return [f for seed in seeds for f in SimRun(seed).run()]

    def patched(self, owner, name, replacement):
        before = getattr(owner, name)
        setattr(owner, name, replacement)
        self.addCleanup(setattr, owner, name, before)
        return before

    def test_a_byte_too_far(self):
        place = None

        def broken(self, stream, packet, message):
            code = place(self, stream, packet, message)
            if code is None and packet.opcode == wire.OPCODE["WRITE"] and packet.payload:
                region = self.memory.keys[packet.rkey]
                region.data[packet.va - region.va + packet.offset] ^= 1
            return code
        place = self.patched(Receiver, "place", broken)
        self.assertIn("bytes differ", " ".join(self.failures(range(4))))

    def test_repairs_without_evidence(self):
        def broken(self, path, now):
            for sent in path.unacked.values():
                if sent.lost is None and sent.in_flight and sent.count == 1:
                    self.declare_lost(path, sent, "evidence", now)
        self.patched(Reliability, "look_for_losses", broken)
        self.assertIn("REL-032", " ".join(self.failures(range(4))))

    def test_acknowledges_what_never_came(self):
        before = RecvPath.take

        def broken(self, psn, ecn):
            opens = before(self, psn, ecn)
            self.cum = psn if not self.bits else self.cum
            if self.bits:
                self.cum, self.bits = (self.cum + 1) & 0xFFFFFFFF, self.bits >> 1
            return opens
        self.patched(RecvPath, "take", broken)
        self.assertIn("REL-007", " ".join(self.failures(range(12))))


if __name__ == "__main__":
    unittest.main()
