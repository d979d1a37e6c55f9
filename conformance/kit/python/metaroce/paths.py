"""Paths and planes of the sending direction: choice, change of route, retirement, revival (chapters 5 and 11)."""

from . import wire
from .codec import Packet
from .reliability import reported, vector_bits
from .serial import add, ahead
from .settings import MS, NEVER

OPS = wire.OPCODE


class Paths:
    def start_planes(self, now):
        self.plane_up = [True] * self.planes_agreed
        self.plane_proved = [n == 0 for n in range(self.planes_agreed)]
        self.plane_probe_at = [NEVER if n == 0 else now for n in range(self.planes_agreed)]
        self.plane_probe_pause = [100 * MS] * self.planes_agreed
        self.plane_probe_turn = 0

    # Choice.

    def plane_ok(self, plane):
        """Data may be sent in a plane once one of its probes has been answered (PLN-012)."""
        return self.plane_proved[plane]

    def has_room(self, path, now):
        """Whether window and plane let a new packet go."""
        if not path.alive or path.outside() or not self.plane_ok(path.plane):
            return False
        if path.in_flight and path.in_flight >= path.window:
            return False
        if path.window < 1 and path.srtt is not None and now < path.last_new + path.srtt / path.window:
            return False   # CC-011
        return True

    def any_room(self, now):
        if self.in_flight and self.in_flight >= self.window:
            return False
        self.lower_idle_windows(now)
        return any(self.has_room(p, now) for p in self.send_paths)

    def choose_path(self, now):
        """The paths in turn, those with a mark in their last SRTT only where no other has room (CC-012)."""
        paths = self.send_paths
        count = len(paths)
        open_paths = [p for p in paths if self.has_room(p, now)]
        clear = [p for p in open_paths if not self.marked_lately(p, now)]
        usable = clear or open_paths
        if not usable:
            return None
        if len(usable) > 1 or usable[0].number != self.path_turn:
            if self.path_run >= self.settings.spray_run:
                self.path_turn = (self.path_turn + 1) % count
                self.path_run = 0
        path = min(usable, key=lambda p: (p.number - self.path_turn) % count)
        if path.number != self.path_turn:
            self.path_turn, self.path_run = path.number, 0
        self.path_run += 1
        return path

    def marked_lately(self, path, now):
        return path.srtt is not None and now - path.ce_time < path.srtt

    def send_deadline(self, now):
        """When a pause of a path with a window below one packet is over."""
        if not self.moved and all(self.next_piece(s) is None for s in self.streams.values()):
            return NEVER
        due = self.hint_ready(now)
        for path in self.send_paths:
            if path.alive and path.window < 1 and path.srtt is not None and not path.in_flight:
                due = min(due, path.last_new + path.srtt / path.window)
        return due

    # Another route.

    def free_port(self, path):
        """A source port that no other path uses, other than the present one; None where there is none."""
        taken = {p.port for p in self.send_paths}
        at = self.ports.index(path.port)
        for step in range(1, len(self.ports)):
            port = self.ports[(at + step) % len(self.ports)]
            if port not in taken:
                return port
        return None

    def leave_route(self, path, now):
        """After a timeout the path tries another port (PATH-019)."""
        port = self.free_port(path)
        if port is not None and path.alive:
            self.move_path(path, port=port)

    def move_path(self, path, port=None, plane=None):
        """Changes the route of a path; PSNs, window and epoch go on (PATH-012)."""
        if port == path.port:
            port = None
        if plane == path.plane:
            plane = None
        if port is None and plane is None:
            return
        if port is not None:
            path.port = port
        if plane is not None:
            path.plane = plane
            if not self.plane_proved[plane]:
                self.plane_probe_at[plane] = min(self.plane_probe_at[plane], self.now)
        path.change_time = self.now
        path.route_psn = path.next_psn
        path.ecn_off = False
        if path.alive and self.agreed("change"):
            self.send(Packet(OPS["PATH_CHANGE"], psn=self.new_txid(), path=path.number, epoch=path.epoch,
                             source_port=path.port, plane=path.plane, next_psn=path.next_psn), path.plane, path.port)

    # Planes.

    def path_timers(self, now):
        for plane in range(1, self.planes_agreed):
            if not self.plane_proved[plane] and now >= self.plane_probe_at[plane]:
                paths = [p for p in self.send_paths if p.plane == plane and p.alive]
                if not paths:
                    self.plane_probe_at[plane] = NEVER
                    continue
                self.plane_probe_turn += 1
                path = paths[self.plane_probe_turn % len(paths)]
                self.send_probe(path)
                self.plane_probe_at[plane] = now + self.plane_probe_pause[plane]
                self.plane_probe_pause[plane] = min(2 * self.plane_probe_pause[plane], 2000 * MS)
        for path in self.send_paths:
            if now >= path.revival_at:
                self.probe_next_epoch(path, now)

    def path_deadline(self):
        return min([NEVER] + self.plane_probe_at + [p.revival_at for p in self.send_paths])

    def plane_answered(self, path, txid):
        """An answer to a probe shows that the address is one of the peer's. It speaks of the plane of the probe."""
        if path.change_time == -NEVER or path.probes_out.get(txid, (0, NEVER))[1] >= path.change_time \
                or not self.plane_proved[path.plane]:
            self.plane_proved[path.plane] = True
            self.plane_probe_at[path.plane] = NEVER

    def set_plane(self, plane, up):
        """The program knows whether an interface works."""
        self.plane_up[plane] = up
        if not up and self.agreed("retire"):
            for path in self.send_paths:
                if path.plane == plane and path.alive and self.other_alive(path):
                    self.retire(path, wire.RETIRE_PLANE)
        elif up:
            for path in self.send_paths:
                if path.plane == plane and path.state == "retired":
                    path.revival_pause = self.settings.revival
                    path.revival_at = max(self.now, path.last_revival + self.settings.revival)

    # Failure and retirement.

    def other_alive(self, path):
        return any(p is not path and p.alive for p in self.send_paths)

    def path_failed(self, path, now):
        """Seven timeouts, three while others live, or 64 transmissions in vain."""
        if self.agreed("retire") and self.other_alive(path):
            self.retire(path, wire.RETIRE_FAILED)
        else:
            path.state = "failed"
            self.fail("IBV_WC_RETRY_EXC_ERR", "no path is alive")

    def retire(self, path, reason):
        """Gives a path up; nothing of it is sent elsewhere before PATH_RETIRED has come (PATH-030)."""
        path.state = "retiring"
        for sent in path.unacked.values():
            self.in_flight -= path.leave_flight(sent)
        self.drop_window(path)
        self.event("path_alive", path=path.number, alive=False)
        self.ask("PATH_RETIRE", lambda packet: self.retired(path, packet),
                 lambda: self.fail("IBV_WC_RETRY_EXC_ERR", "PATH_RETIRE stays unanswered"),
                 path=path.number, epoch=path.epoch, highest_psn=path.highest_sent(), reason=reason)

    def on_path_retired(self, packet, plane, now):
        request = self.take_answer(packet, "PATH_RETIRE")
        if request is None:
            return
        if packet.path != request.fields["path"] or packet.epoch != request.fields["epoch"]:
            self.counters["ignored"] += 1   # PATH-039
            return
        del self.requests[request.txid]
        request.on_answer(packet)

    def retired(self, path, packet):
        """What has arrived, for good; what has not moves (PATH-031)."""
        cum, bits = packet.cum_psn, vector_bits(packet.sack)
        lacks = self.reports_the_future(path, cum, bits)
        psn = add(cum, 1)
        while not lacks and ahead(path.next_psn, psn) > 0:
            lacks = not reported(cum, bits, psn) and psn not in path.unacked
            psn = add(psn, 1)
        if lacks:
            self.fail("IBV_WC_RETRY_EXC_ERR", "PATH_RETIRED contradicts what was sent or reported")   # PATH-040
            return
        for sent in list(path.unacked.values()):
            if reported(cum, bits, sent.psn):
                self.packet_acked(path, sent)
                continue
            del path.unacked[sent.psn]
            sent.stream.psns -= 1
            if not sent.fill and sent.stream.state not in ("resetting", "reset", "void", "ended"):
                wait = sent.held_until if sent.held_until > self.now else 0
                self.move(sent.message, sent.index, wait)
        path.final_cum = cum
        path.retired_at[path.epoch] = self.now
        path.state = "retired"
        path.probes_out.clear()
        path.last_revival = self.now
        path.revival_pause = self.settings.revival
        path.revival_at = self.now + path.revival_pause

    def move(self, message, index, wait):
        """A packet takes the next PSN of another path or of a later epoch. A wait after a NAK RNR goes on."""
        self.moved.append((message, index))

    def probe_next_epoch(self, path, now):
        """Asks whether a retired path works again (PATH-036)."""
        epoch = (path.epoch + (1 if path.state == "retired" else 0)) & 15
        if path.state == "retired":
            rested = path.retired_at.get(epoch)
            if rested is not None and now < rested + self.settings.linger:
                path.revival_at = rested + self.settings.linger   # PATH-035
                return
            path.state, path.epoch = "reviving", epoch
        else:
            path.revival_pause = min(2 * path.revival_pause, self.settings.revival_max)
        path.port = self.free_port(path) or path.port
        path.last_revival = now
        path.revival_at = now + path.revival_pause
        packet = Packet(OPS["PATH_PROBE"], psn=self.new_txid(), path=path.number, epoch=path.epoch,
                        highest_psn=add(path.final_cum, 256))
        packet.probe = path
        path.probes += 1
        self.send(packet, path.plane, path.port)

    def revival_answer(self, path, packet, now):
        """The next epoch begins. Returns whether this packet was its answer."""
        probe = path.probes_out.get(packet.psn)
        if probe is None or packet.epoch != path.epoch or packet.timestamp_echo != probe[2] \
                or packet.cum_psn != add(path.final_cum, 256) or any(packet.sack):
            self.counters["ignored"] += 1
            return True
        self.take_hint(packet, now)
        path.state = "open"
        path.start_epoch(add(path.final_cum, 257))
        path.probes_out.clear()
        path.revival_at = NEVER
        path.change_time = -NEVER
        path.heard_at = path.last_report = now
        path.heard = True
        path.sample(max(1, now - probe[1]))
        self.plane_proved[path.plane] = True
        self.plane_probe_at[path.plane] = NEVER
        self.add_window(path)
        self.event("path_alive", path=path.number, alive=True)
        return True
