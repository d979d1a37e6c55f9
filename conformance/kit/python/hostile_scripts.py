"""The scripts of `hostile.py`: each a function of a connected `Tester`, with the rule as its description."""

import time

from metaroce import codec, wire
from metaroce.codec import Packet
from metaroce.handshake import planes_field
from metaroce.serial import add
from metaroce.tester import OURS, PORT, SCRIPTS, THEIRS, need, script  # noqa: F401

NO_RESET = ["imm", "inv", "retire", "change"]


# Reads and atomics.

@script()
def read_is_answered(t):
    """OPS-016, OPS-017: a Read is answered by one message with the bytes asked for"""
    region = t.region(fill=5, remote_read=True)
    request = t.data("READ_REQ", msn=1, length=600, va=region["va"], rkey=region["rkey"])
    t.ack_of(request)
    pieces = [p for p in t.gather(100) + t.seen if p.name == "READ_RESP" and not p.flags & wire.RTX]
    need({p.offset: p.payload for p in pieces} == {0: b"\5" * 256, 256: b"\5" * 256, 512: b"\5" * 88}, f"{pieces}")
    need(all(p.msn == 1 and p.len == 600 for p in pieces), f"{pieces}")


@script(read_depth=2)
def read_beyond_depth(t):
    """OPS-014, and held responses count until they are sent: here nothing is acknowledged, but all can be sent"""
    region = t.region(fill=5, remote_read=True)
    # The first message is missing, so that Reads wait.
    for msn in (2, 3):
        t.ack_of(t.data("READ_REQ", msn=msn, length=10, va=region["va"], rkey=region["rkey"], flags=wire.AR))
    t.nak_of(t.data("READ_REQ", msn=4, length=10, va=region["va"], rkey=region["rkey"]), wire.REM_INV_REQ)
    t.silence(50, "READ_RESP")


@script()
def read_without_right(t):
    """OPS-019: a Read of a region that is not open for it draws REM_ACCESS and no response"""
    region = t.region(remote_read=False)
    request = t.data("READ_REQ", msn=1, length=10, va=region["va"], rkey=region["rkey"])
    t.nak_of(request, wire.REM_ACCESS)
    t.silence(50, "READ_RESP", "ACK", "ACK_SACK")


@script()
def read_closed_meanwhile(t):
    """OPS-044: a region that is closed before the Read is carried out draws REM_ACCESS although it was acknowledged"""
    region = t.region(remote_read=True)
    request = t.data("READ_REQ", msn=2, length=10, va=region["va"], rkey=region["rkey"], flags=wire.AR)
    t.ack_of(request)
    t.adapter.ask("deregister", mr=region["mr"])
    other = t.region()
    t.data("WRITE", msn=1, payload=b"x" * 10, va=other["va"], rkey=other["rkey"])
    t.nak_of(request, wire.REM_ACCESS)
    t.silence(50, "READ_RESP")


@script()
def read_of_nothing(t):
    """MEM-005: a Read of length 0 is answered whatever its address and key"""
    t.data("READ_REQ", msn=1, length=0, va=12345, rkey=99)
    answer = t.expect("READ_RESP")
    need(answer.len == 0 and answer.payload == b"" and answer.mflags == wire.SOM | wire.EOM | wire.RESP, f"{answer}")


@script()
def atomic_once(t):
    """OPS-026 to OPS-029: atomics are carried out once, however often their packet comes"""
    region = t.region(remote_atomic=True)
    first = t.data("FETCH_ADD", msn=1, length=8, va=region["va"], rkey=region["rkey"], swap_or_add=5)
    t.ack_of(first)
    t.data("FETCH_ADD", psn=first.psn, msn=1, length=8, va=region["va"], rkey=region["rkey"], swap_or_add=5, flags=wire.RTX)
    t.data("CMP_SWAP", msn=2, length=8, va=region["va"], rkey=region["rkey"], swap_or_add=77, compare=5)
    t.data("CMP_SWAP", msn=3, length=8, va=region["va"], rkey=region["rkey"], swap_or_add=88, compare=5)
    answers = {p.msn: p.original for p in t.gather(150) + t.seen if p.name == "ATOMIC_RESP"}
    need(answers == {1: 0, 2: 5, 3: 77}, f"{answers}")
    need(int.from_bytes(t.memory(region, 0, 8), "little") == 77, t.memory(region, 0, 8).hex())


@script()
def atomic_again_under_another_number(t):
    """MEM-011: a request whose MSN has arrived as a whole is refused under another PSN, and not carried out again"""
    region = t.region(remote_atomic=True)
    t.ack_of(t.data("FETCH_ADD", msn=1, length=8, va=region["va"], rkey=region["rkey"], swap_or_add=5))
    again = t.data("FETCH_ADD", msn=1, length=8, va=region["va"], rkey=region["rkey"], swap_or_add=5)
    t.nak_of(again, wire.REM_INV_REQ)
    need(int.from_bytes(t.memory(region, 0, 8), "little") == 5, "carried out twice")


@script(atomic_depth=0)
def atomic_not_agreed(t):
    """OPS-002: an atomic request that was not agreed to draws REM_INV_REQ"""
    region = t.region(remote_atomic=True)
    t.nak_of(t.data("FETCH_ADD", msn=1, length=8, va=region["va"], rkey=region["rkey"], swap_or_add=5), wire.REM_INV_REQ)


@script()
def response_to_nothing(t):
    """OPS-023, OPS-040: responses that fit no request draw REM_INV_REQ"""
    t.nak_of(t.data("READ_RESP", msn=1, payload=b"x" * 10), wire.REM_INV_REQ)
    t.nak_of(t.data("ATOMIC_RESP", path=1, msn=2, length=8, original=1), wire.REM_INV_REQ)


# Messages.

@script()
def another_length(t):
    """MEM-010: a packet whose MsgLen contradicts its message draws REM_INV_REQ"""
    region = t.region()
    t.ack_of(t.data("WRITE", msn=1, payload=b"a" * 256, length=512, va=region["va"], rkey=region["rkey"], flags=wire.AR))
    t.nak_of(t.data("WRITE", msn=1, offset=256, payload=b"a" * 256, length=768, va=region["va"], rkey=region["rkey"]),
             wire.REM_INV_REQ)
    need(t.memory(region, 256, 256) == bytes(256), "it was placed")


@script()
def cut_wrongly(t):
    """MEM-008, MEM-009: a packet that is not cut at multiples of P draws REM_INV_REQ"""
    region = t.region()
    t.nak_of(t.data("WRITE", msn=1, offset=100, payload=b"a" * 100, length=200, va=region["va"], rkey=region["rkey"]),
             wire.REM_INV_REQ)


@script(msg_window=4)
def beyond_message_window(t):
    """MEM-011: a request beyond the message window draws REM_INV_REQ, one within it does not"""
    region = t.region()
    t.ack_of(t.data("WRITE", msn=4, payload=b"a", va=region["va"], rkey=region["rkey"]))
    t.nak_of(t.data("WRITE", msn=5, payload=b"a", va=region["va"], rkey=region["rkey"]), wire.REM_INV_REQ)


@script()
def beyond_credit(t):
    """RCV-008: a Send beyond its credit draws REM_INV_REQ"""
    t.nak_of(t.data("SEND", msn=1, rqsn=0, payload=b"abc"), wire.REM_INV_REQ)


@script()
def receive_taken_away(t):
    """RCV-009, RCV-011: a promised receive that is not there draws NAK RNR, and its packet is taken when it is"""
    region = t.region(remote_write=False)
    t.adapter.ask("post_recv", conn=0, stream=0, wr_id=1, mr=region["mr"], offset=0, len=100)
    t.expect("RQ_CREDIT", where=lambda p: p.kind == wire.TELL and p.rq_limit == 1)
    t.adapter.ask("withdraw_recv", conn=0, stream=0, wr_id=1)
    packet = t.data("SEND", msn=1, rqsn=0, payload=b"abc")
    nak = t.nak_of(packet, wire.RNR)
    need(10 <= nak.detail <= 1_000_000, f"{nak}")
    t.adapter.ask("post_recv", conn=0, stream=0, wr_id=2, mr=region["mr"], offset=10, len=100)
    t.data("SEND", psn=packet.psn, msn=1, rqsn=0, payload=b"abc", flags=wire.RTX)
    t.ack_of(packet)
    done = [e for e in t.adapter.events(50) if e["type"] == "completion"]
    need([(e["wr_id"], e["status"], e["byte_len"]) for e in done] == [(2, "IBV_WC_SUCCESS", 3)], f"{done}")
    need(t.memory(region, 10, 3) == b"abc", "not placed")


@script()
def invalidation(t):
    """OPS-009 to OPS-012: a key is closed with its Send, not before, and only one that exists and may be"""
    region, key, closed = t.region(remote_write=False), t.region(invalidate=True), t.region(invalidate=False)
    for n in range(3):
        t.adapter.ask("post_recv", conn=0, stream=0, wr_id=n, mr=region["mr"], offset=0, len=100)
    t.gather(20)
    t.ack_of(t.data("SEND_INV", msn=2, rqsn=0, payload=b"x", rkey=key["rkey"]))
    t.ack_of(t.data("WRITE", msn=3, payload=b"ok", va=key["va"], rkey=key["rkey"]))   # message 1 is still missing
    t.ack_of(t.data("WRITE", msn=1, payload=b"ok", va=key["va"], rkey=key["rkey"]))
    done = [e for e in t.adapter.events(50) if e["type"] == "completion"]
    need([e.get("invalidated") for e in done] == [key["rkey"]], f"{done}")
    t.nak_of(t.data("WRITE", msn=4, payload=b"no", va=key["va"], rkey=key["rkey"]), wire.REM_ACCESS)
    t.ack_of(t.data("WRITE", msn=5, payload=b"", length=0, va=key["va"], rkey=key["rkey"]))   # an empty message is not checked
    t.nak_of(t.data("SEND_INV", msn=6, rqsn=1, payload=b"x", rkey=closed["rkey"]), wire.REM_ACCESS)
    t.nak_of(t.data("SEND_INV", msn=7, rqsn=2, payload=b"x", rkey=0x12345), wire.REM_ACCESS)


@script(domain=3)
def other_domain(t):
    """MEM-006: a key of another protection domain draws REM_ACCESS"""
    good, bad = t.region(domain=3), t.region(domain=4)
    t.ack_of(t.data("WRITE", msn=1, payload=b"ok", va=good["va"], rkey=good["rkey"]))
    t.nak_of(t.data("WRITE", msn=2, payload=b"no", va=bad["va"], rkey=bad["rkey"]), wire.REM_ACCESS)


# Refusals and resets.

@script()
def nak_is_repeated(t):
    """ERR-003, ERR-004, ERR-028: a NAK comes again, seven times, and then STREAM_RESET of code 0"""
    region = t.region()
    packet = t.data("WRITE", msn=1, payload=b"a" * 256, length=512, va=region["va"], rkey=region["rkey"] ^ 1)
    first = t.nak_of(packet, wire.REM_ACCESS)
    second = t.data("WRITE", msn=1, offset=256, payload=b"a" * 256, length=512, va=region["va"], rkey=region["rkey"] ^ 1)
    t.silence(8, "NAK", "ACK", "ACK_SACK")
    t.gather(10)
    again = t.data("WRITE", psn=second.psn, msn=1, offset=256, payload=b"a" * 256, length=512, va=region["va"],
                   rkey=region["rkey"] ^ 1, flags=wire.RTX)
    t.nak_of(again, wire.REM_ACCESS, milliseconds=50)
    reset = t.expect("STREAM_RESET", milliseconds=1500)
    naks = [p for p in t.seen if p.name == "NAK"]
    need(reset.code == 0 and reset.msn == 0 and reset.stream == 0, f"{reset}")
    need(naks[-1].offending_psn == second.psn, f"names {naks[-1].offending_psn}, refused last {second.psn}")
    need(len(naks) == 9, f"{len(naks)} NAKs, first at {first.when}: {[round(p.when - first.when, 3) for p in naks]}")
    t.answer_reset(reset)


@script()
def data_of_a_reset_stream(t):
    """ERR-010 to ERR-012, ERR-025: packets of a stream that was reset are acknowledged and not placed"""
    region = t.region()
    t.ack_of(t.data("WRITE", msn=1, payload=b"a" * 256, length=512, va=region["va"], rkey=region["rkey"], flags=wire.AR))
    reset = t.send("STREAM_RESET", stream=0, code=0, msn=0)
    t.expect("STREAM_RESET_ACK", where=lambda p: p.psn == reset.psn)
    packet = t.data("WRITE", msn=1, offset=256, payload=b"b" * 256, length=512, va=region["va"], rkey=region["rkey"])
    t.ack_of(packet)
    need(t.memory(region, 256, 256) == bytes(256), "it was placed")
    t.send("STREAM_RESET", psn=reset.psn, stream=0, code=0, msn=0)
    t.expect("STREAM_RESET_ACK", where=lambda p: p.psn == reset.psn)
    fill = t.data("FILL", msn=0, flags=wire.AR)
    t.ack_of(fill)


@script()
def data_while_resetting(t):
    """ERR-025: what comes for the first time between STREAM_RESET and its answer is neither placed nor acknowledged"""
    region = t.region()
    t.adapter.ask("reset_stream", conn=0, stream=0)
    reset = t.expect("STREAM_RESET")
    packet = t.data("WRITE", msn=1, payload=b"a", va=region["va"], rkey=region["rkey"])
    t.silence(60, "ACK", "ACK_SACK", "NAK")
    t.answer_reset(reset)
    t.gather(20)
    t.data("WRITE", psn=packet.psn, msn=1, payload=b"a", va=region["va"], rkey=region["rkey"], flags=wire.RTX)
    t.ack_of(packet)
    need(t.memory(region, 0, 1) == b"\0", "it was placed")


@script()
def reset_of_nothing(t):
    """ERR-010: STREAM_RESET of a stream that is not there is answered"""
    reset = t.send("STREAM_RESET", stream=40, code=0, msn=0)
    t.expect("STREAM_RESET_ACK", where=lambda p: p.psn == reset.psn and p.stream == 40)


@script()
def open_after_reset(t):
    """STRM-048: a STREAM_OPEN with an earlier transaction id than an answered STREAM_RESET opens nothing"""
    early, late = t.new_txid(), t.new_txid()
    t.send("STREAM_RESET", psn=late, stream=2, code=0, msn=0)
    t.expect("STREAM_RESET_ACK")
    t.send("STREAM_OPEN", psn=early, stream=2, first_msn=1)
    t.silence(80, "STREAM_OPEN_ACK")
    need(t.open_stream(2).status == 0, "a later STREAM_OPEN is refused")


@script()
def id_rests(t):
    """ERR-018: the id of a stream that was reset rests"""
    reset = t.send("STREAM_RESET", stream=0, code=0, msn=0)
    t.expect("STREAM_RESET_ACK", where=lambda p: p.psn == reset.psn)
    need(t.open_stream(0).status == wire.STREAM_IN_USE, "opened anew at once")


@script(streams=2)
def streams_refused(t):
    """STRM-039, STRM-040: streams beyond the limit and wrong ids are refused, repetitions answered alike"""
    need(t.open_stream(1).status == wire.STREAM_IN_USE, "an id of the acceptor's own")
    need(t.open_stream(0).status == wire.STREAM_IN_USE, "an id that is open")
    need(t.open_stream(2).status == 0, "the second of two")
    third = t.open_stream(4)
    need(third.status == wire.STREAM_NO_RESOURCE and third.rq_limit == 0 and third.src_qpn == 0, f"{third}")
    t.send("STREAM_OPEN", psn=third.psn, stream=4, first_msn=1, src_qpn=1)
    again = t.expect("STREAM_OPEN_ACK", where=lambda p: p.psn == third.psn)
    need(again.status == third.status, f"{again}")


@script(features=NO_RESET)
def fill_not_agreed(t):
    """errors table: FILL is passed over in silence where RESET has not been agreed"""
    t.data("FILL", msn=0, flags=wire.AR)
    t.silence(60)


@script(features=NO_RESET)
def refused_without_reset(t):
    """ERR-004, ERR-032: without RESET the NAK has scope connection, comes eight times, and CLOSE of reason ERROR follows"""
    region = t.region()
    packet = t.data("WRITE", msn=1, payload=b"a", va=region["va"], rkey=region["rkey"] ^ 1)
    t.nak_of(packet, wire.REM_ACCESS, scope=wire.SCOPE_CONNECTION)
    close = t.expect("CLOSE", milliseconds=1500)
    need(close.reason == wire.ERROR, f"{close}")
    need(sum(p.name == "NAK" for p in t.seen) == 8, f"{sum(p.name == 'NAK' for p in t.seen)} NAKs")


# Paths.

@script()
def retirement(t):
    """PATH-025 to PATH-028, PATH-033, PATH-034, PATH-037: an epoch ends for good, and the next one begins 257 past it"""
    region = t.region()
    def write(**more):
        return t.data("WRITE", payload=b"a", va=region["va"], rkey=region["rkey"], path=1, **more)
    t.ack_of(write(msn=1))
    gap = t.next_psn[1]
    t.next_psn[1] = add(gap, 1)
    t.ack_of(write(msn=2))
    retire = t.send("PATH_RETIRE", path=1, epoch=0, highest_psn=add(t.next_psn[1], -1), reason=2)
    answer = t.expect("PATH_RETIRED", where=lambda p: p.psn == retire.psn)
    need(answer.cum_psn == add(gap, -1) and answer.sack == b"\x40" + bytes(31) and answer.epoch == 0, f"{answer}")
    late = t.data("WRITE", psn=gap, msn=3, payload=b"late", va=region["va"] + 100, rkey=region["rkey"], path=1)
    t.silence(40, "ACK", "ACK_SACK")
    need(t.memory(region, 100, 4) == bytes(4), "placed after PATH_RETIRED")
    t.send("PATH_PROBE", path=1, epoch=0, highest_psn=late.psn)
    t.silence(40, "PATH_PROBE_ACK")
    t.send("PATH_RETIRE", psn=retire.psn, path=1, epoch=0, highest_psn=add(t.next_psn[1], -1), reason=2)
    again = t.expect("PATH_RETIRED", where=lambda p: p.psn == retire.psn)
    need((again.cum_psn, again.sack) == (answer.cum_psn, answer.sack), f"{again}")
    base = add(answer.cum_psn, 256)
    probe = t.send("PATH_PROBE", path=1, epoch=1, highest_psn=base)
    told = t.expect("PATH_PROBE_ACK", where=lambda p: p.psn == probe.psn)
    need(told.cum_psn == base and told.sack == bytes(32) and told.epoch == 1 and told.highest_psn == base, f"{told}")
    packet = t.data("WRITE", psn=add(base, 1), epoch=1, msn=3, payload=b"a", va=region["va"], rkey=region["rkey"], path=1)
    ack = t.ack_of(packet)
    need(ack.psn == packet.psn and ack.ect_count == 1, f"{ack}")
    t.send("PATH_RETIRE", path=1, epoch=5, highest_psn=0, reason=2)
    t.silence(40, "PATH_RETIRED")


@script(features=["imm", "reset"])
def retire_not_agreed(t):
    """errors table: PATH_RETIRE is passed over where it has not been agreed"""
    t.send("PATH_RETIRE", path=1, epoch=0, highest_psn=add(t.isn, -1), reason=2)
    t.silence(60)
    t.sane(path=1)


@script(planes=1)
def wrong_plane(t):
    """PLN-003, PLN-004: data are taken in every plane, and not across planes"""
    region = t.region()
    t.ack_of(t.data("WRITE", msn=1, path=0, payload=b"a", va=region["va"], rkey=region["rkey"], plane=1))
    bad = t.data("WRITE", msn=2, path=0, payload=b"a", va=region["va"], rkey=region["rkey"], plane=0, to=1)
    t.silence(60, "ACK", "ACK_SACK", "NAK")
    t.data("WRITE", psn=bad.psn, msn=2, path=0, payload=b"a", va=region["va"], rkey=region["rkey"], plane=1)
    ack = t.ack_of(bad)
    need(ack.own == "127.12.1.1", f"the acknowledgment goes to {ack.own}")


@script()
def forged_reports(t):
    """REL-044, REL-046, CONN-043, PATH-039: reports that fit nothing change nothing"""
    before = t.adapter.ask("stats", conn=0, path=0)["path"]
    t.send("PATH_PROBE_ACK", path=0, epoch=0, cum_psn=add(t.peer_isn, 50), highest_psn=0, sack=bytes(32))
    t.send("PATH_RETIRED", path=0, epoch=0, cum_psn=add(t.peer_isn, -1), sack=bytes(32))
    t.send("ACK", psn=add(t.peer_isn, 50), path=0, epoch=0, ack_flags=wire.ECHO_VALID, stream=0)
    t.send("ACK", psn=add(t.peer_isn, -1), path=200, epoch=0, ack_flags=wire.ECHO_VALID, stream=0)
    t.send("CLOSE_ACK", reason=0)
    t.send("STREAM_RESET_ACK", stream=0)
    t.silence(40)
    after = t.adapter.ask("stats", conn=0, path=0)["path"]
    need(before == after, f"{before} {after}")
    t.sane()


# Work of the implementation that is refused.

@script()
def unknown_code(t):
    """ERR-008, ERR-006: a NAK of scope stream with a code that is not known fails the work with REM_OP_ERR"""
    region = t.region()
    t.adapter.ask("post_write", conn=0, stream=0, wr_id=9, mr=region["mr"], offset=0, len=10, va="0x1000", rkey=5)
    packet = t.expect("WRITE")
    t.send("NAK", psn=0, code=0x66, scope=wire.SCOPE_STREAM, stream=0, msn=packet.msn, path=packet.path, offending_psn=packet.psn)
    reset = t.expect("STREAM_RESET")
    need(reset.code == 0x66 and reset.msn == packet.msn, f"{reset}")
    done = [e for e in t.adapter.events(50) if e["type"] == "completion"]
    need([(e["wr_id"], e["status"]) for e in done] == [(9, "IBV_WC_REM_OP_ERR")], f"{done}")
    t.answer_reset(reset)
    fill = t.expect("FILL", milliseconds=50)
    need(fill.psn == packet.psn and fill.stream == 0 and fill.flags & wire.RTX, f"{fill}")


@script()
def forged_naks(t):
    """ERR-007, ERR-022: NAKs that name nothing under way, and hints, fail nothing"""
    region = t.region()
    t.adapter.ask("post_write", conn=0, stream=0, wr_id=9, mr=region["mr"], offset=0, len=10, va="0x1000", rkey=5)
    packet = t.expect("WRITE")
    def nak(**changes):
        fields = {"code": wire.REM_ACCESS, "scope": wire.SCOPE_STREAM, "stream": 0, "msn": packet.msn, "path": packet.path,
                  "epoch": 0, "offending_psn": packet.psn, **changes}
        t.send("NAK", psn=0, **fields)
    nak(msn=packet.msn + 1)
    nak(offending_psn=add(packet.psn, 1))
    nak(path=(packet.path + 1) % 4)
    nak(stream=2)
    nak(epoch=1)
    for code in (wire.PSN_OOW, wire.CLOSING, wire.BAD_EPOCH):
        nak(code=code, scope=wire.SCOPE_PACKET)
    nak(scope=wire.SCOPE_PATH)
    nak(code=0x66, scope=wire.SCOPE_PACKET)
    t.silence(30, "STREAM_RESET", "CLOSE")
    done = [e for e in t.adapter.events(20) if e["type"] == "completion"]
    need(not done, f"{done}")


@script()
def rnr_wait(t):
    """RCV-012, RCV-013: a packet that was refused with RNR goes again after the time named, and not before"""
    region = t.region()
    t.adapter.ask("post_write", conn=0, stream=0, wr_id=9, mr=region["mr"], offset=0, len=10, va="0x1000", rkey=5)
    packet = t.expect("WRITE")
    t.send("NAK", psn=0, code=wire.RNR, scope=0, stream=0, msn=packet.msn, path=packet.path, offending_psn=packet.psn,
           detail=150_000)
    start = time.monotonic()
    again = t.expect("WRITE", milliseconds=500, where=lambda p: p.when > start)
    need(0.149 <= again.when - start <= 0.31, f"after {again.when - start:.3f} s")


@script()
def contradicting_retirement(t):
    """PATH-040: PATH_RETIRED that lacks what was reported as arrived fails the connection"""
    region = t.region()
    t.adapter.ask("post_write", conn=0, stream=0, wr_id=9, mr=region["mr"], offset=0, len=10, va="0x1000", rkey=5)
    packet = t.expect("WRITE")
    t.send("ACK", psn=packet.psn, path=packet.path, ack_flags=wire.ECHO_VALID, timestamp_echo=packet.timestamp, ect_count=1)
    t.gather(10)
    t.adapter.ask("retire_path", conn=0, path=packet.path)
    retire = t.expect("PATH_RETIRE")
    t.send("PATH_RETIRED", psn=retire.psn, path=packet.path, epoch=0, cum_psn=add(packet.psn, -1), sack=bytes(32))
    close = t.expect("CLOSE")
    need(close.reason == wire.ERROR, f"{close}")


@script()
def moved_packet(t):
    """PATH-030 to PATH-032: what PATH_RETIRED lacks goes on another path, new and with the same content"""
    region = t.region()
    t.adapter.ask("post_write", conn=0, stream=0, wr_id=9, mr=region["mr"], offset=0, len=10, va="0x1000", rkey=5)
    packet = t.expect("WRITE")
    t.adapter.ask("retire_path", conn=0, path=packet.path)
    retire = t.expect("PATH_RETIRE")
    need(retire.highest_psn == packet.psn and retire.reason == wire.RETIRE_LOCAL, f"{retire}")
    t.silence(30, "WRITE")
    t.send("PATH_RETIRED", psn=retire.psn, path=packet.path, epoch=0, cum_psn=add(packet.psn, -1), sack=bytes(32))
    moved = t.expect("WRITE")
    need(moved.path != packet.path and not moved.flags & wire.RTX and moved.psn == t.peer_isn
         and (moved.msn, moved.offset, moved.len, moved.va, moved.rkey, moved.payload)
         == (packet.msn, packet.offset, packet.len, packet.va, packet.rkey, packet.payload), f"{moved}")
    probe = t.expect("PATH_PROBE", milliseconds=1800, where=lambda p: p.path == packet.path and p.epoch == 1)
    need(probe.highest_psn == add(packet.psn, 255), f"{probe}; final CumPSN {add(packet.psn, -1)}")
    need(probe.when - moved.when > 0.95, f"after {probe.when - moved.when:.3f} s")


# Set-up.

@script(connect=False)
def bad_offers(t):
    """CONN-034, CONN-053, CONN-010, CONN-009: what is wrong with an OPEN decides what it draws"""
    def reason(**changes):
        planes = changes.pop("planes", None)
        sent = t.open(t.params(**changes), planes)
        answer = t.expect("REJECT", "ACCEPT", where=lambda p: p.psn == sent.psn)
        if answer.name == "REJECT":
            need(answer.nonce == t.offer["nonce"] and answer.dcid == t.offer["scid"], f"{answer}")
            return answer.reason
        return 0
    wrong = []
    for changes, expected in (
            ({}, 0), ({"features": 0xFFFF}, 0), ({"ver_min": 2, "ver_max": 3}, 1), ({"service_id": 99}, 2),
            ({"payload_size": 300}, 4), ({"paths": 0}, 4), ({"paths": 257}, 4), ({"streams": 0}, 4),
            ({"msg_window": 40000}, 4), ({"vector_width": 128}, 4), ({"ts_unit": 0}, 4), ({"ts_unit": 1001}, 4),
            ({"ack_delay": 50001}, 4), ({"hint_interval": 100}, 4), ({"hint_support": 1}, 4), ({"hint_support": 2}, 4),
            ({"hint_support": 1, "hint_interval": 9}, 4), ({"hint_support": 1, "hint_interval": 10}, 0),
            ({"extra_planes": 1}, 4), ({"extra_planes": 8}, 4), ({"planes": planes_field(["10.0.0.1"])}, 4),
            ({"ver_min": 2, "ver_max": 3, "service_id": 99, "paths": 0}, 1), ({"service_id": 99, "paths": 0}, 2),
            ({"ver_min": 0, "ver_max": 1}, 4), ({"ver_min": 1, "ver_max": 9}, 0), ({"ver_min": 2, "ver_max": 1}, 1),
            ({"rsvd_a": 0, "read_depth": 255, "atomic_depth": 255}, 0), ({"scid": 0}, 4)):
        try:
            found = reason(**changes)
        except Exception as error:
            found = f"{error}"[:60]
        if expected is not None and found != expected:
            wrong.append(f"{changes} draws {found}, not {expected}")
    need(not wrong, "; ".join(wrong))


@script(connect=False)
def cookies(t):
    """CONN-016, CONN-017, CONN-018, SEC-003, SEC-008: cookies hold for one connection with just these values"""
    t.open()
    accept = t.expect("ACCEPT")
    need(accept.params["service_id"] == 7 and accept.params["ver_min"] == accept.params["ver_max"] == 1, f"{accept}")
    for at in (0, 9, 31):
        broken = bytearray(accept.cookie)
        broken[at] ^= 1
        sent = t.confirm(accept, cookie=bytes(broken))
        need(t.expect("REJECT", where=lambda p: p.psn == sent.psn).reason == 5, "a changed cookie")
    sent = t.confirm(accept, accepted={**accept.params, "paths": 1})
    need(t.expect("REJECT", where=lambda p: p.psn == sent.psn).reason == 5, "other parameters")
    sent = t.confirm(accept, dcid=accept.params["scid"] ^ 1)
    need(t.expect("REJECT", where=lambda p: p.psn == sent.psn).reason == 5, "another DCID")
    sent = t.confirm(accept)
    t.expect("CONFIRM_ACK", where=lambda p: p.psn == sent.psn)
    sent = t.confirm(accept)
    t.expect("CONFIRM_ACK", where=lambda p: p.psn == sent.psn)
    t.dcid = accept.params["scid"]
    t.isn, t.next_psn = t.offer["isn"], {p: t.offer["isn"] for p in range(4)}
    t.open_stream(0)
    t.sane()
    offer = dict(t.offer)
    sent = t.open({**offer, "nonce": offer["nonce"] ^ 1})
    need(t.expect("REJECT", "ACCEPT", where=lambda p: p.psn == sent.psn).name == "REJECT", "an id in use (CONN-048)")


@script()
def close_and_rest(t):
    """CONN-026, CONN-029, CONN-025: CLOSE is answered, also later; nothing else is"""
    close = t.send("CLOSE", reason=0)
    t.expect("CLOSE_ACK", where=lambda p: p.psn == close.psn and p.reason == 0)
    region = t.region()
    t.data("WRITE", msn=1, payload=b"a", va=region["va"], rkey=region["rkey"])
    t.send("PATH_PROBE", path=0, epoch=0, highest_psn=t.isn)
    t.silence(60)
    t.send("CLOSE", psn=close.psn, reason=0)
    t.expect("CLOSE_ACK", where=lambda p: p.psn == close.psn)
    sent = t.confirm(t.accept)
    t.expect("CONFIRM_ACK", where=lambda p: p.psn == sent.psn)


@script()
def close_waits_for_work(t):
    """CONN-041, CONN-049, CONN-040: CLOSE_ACK waits for work that has begun; what has not is flushed"""
    region = t.region()
    t.adapter.ask("post_write", conn=0, stream=0, wr_id=1, mr=region["mr"], offset=0, len=10, va="0x1000", rkey=5)
    first = t.expect("WRITE")
    t.adapter.ask("post_send", conn=0, stream=0, wr_id=2, mr=region["mr"], offset=0, len=10)   # without credit
    close = t.send("CLOSE", reason=0)
    t.silence(40, "CLOSE_ACK")
    packet = t.data("WRITE", msn=1, payload=b"a", va=region["va"], rkey=region["rkey"])   # begins after CLOSE
    t.silence(40, "ACK", "ACK_SACK")
    t.send("ACK", psn=first.psn, path=first.path, ack_flags=wire.ECHO_VALID, timestamp_echo=first.timestamp, ect_count=1)
    t.expect("CLOSE_ACK", where=lambda p: p.psn == close.psn)
    done = [(e["wr_id"], e["status"]) for e in t.adapter.events(50) if e["type"] == "completion"]
    need(done == [(1, "IBV_WC_SUCCESS"), (2, "IBV_WC_WR_FLUSH_ERR")], f"{done}")
    need(packet is not None, "")


# Probes and unknown things.

@script()
def probes(t):
    """REL-037 to REL-039: a probe is answered at once with what has arrived"""
    region = t.region()
    t.data("WRITE", path=2, msn=1, payload=b"a", va=region["va"], rkey=region["rkey"])
    t.next_psn[2] = add(t.next_psn[2], 1)
    t.data("WRITE", path=2, msn=2, payload=b"a", va=region["va"], rkey=region["rkey"])
    probe = t.send("PATH_PROBE", path=2, epoch=0, highest_psn=0x1234)
    answer = t.expect("PATH_PROBE_ACK", where=lambda p: p.psn == probe.psn)
    need(answer.cum_psn == t.isn and answer.sack == b"\x40" + bytes(31) and answer.highest_psn == 0x1234
         and answer.timestamp_echo == probe.timestamp, f"{answer}")
    t.send("PATH_PROBE", path=77, epoch=0, highest_psn=0)
    t.send("PATH_PROBE", path=2, epoch=1, highest_psn=0)
    t.send("RQ_CREDIT", stream=20, kind=wire.ASK, rq_limit=0)
    t.silence(60, "PATH_PROBE_ACK", "RQ_CREDIT")


@script()
def window_edge(t):
    """REL-004, REL-005: 256 past CumPSN arrives, 257 does not and is told"""
    region = t.region()
    def at(ahead, msn, **more):
        return t.data("WRITE", psn=add(t.isn, ahead - 1), msn=msn, payload=b"a", va=region["va"], rkey=region["rkey"], **more)
    t.gather(5)
    at(257, 1)
    t.silence(40)
    ack = t.ack_of(at(256, 1))
    need(ack.sack == bytes(31) + b"\x01" and ack.ack_flags & wire.OUT_OF_WINDOW_SEEN, f"{ack}")
    ack = t.ack_of(at(1, 2))
    need(not ack.ack_flags & wire.OUT_OF_WINDOW_SEEN, f"{ack}")


@script()
def credit_asked(t):
    """STRM-029, RCV-017: an asking RQ_CREDIT is answered, and new receives are told of"""
    region = t.region(remote_write=False)
    ask = t.send("RQ_CREDIT", stream=0, kind=wire.ASK, rq_limit=0)
    answer = t.expect("RQ_CREDIT", where=lambda p: p.psn == ask.psn)
    need(answer.kind == wire.TELL and answer.rq_limit == 0, f"{answer}")
    t.adapter.ask("post_recv", conn=0, stream=0, wr_id=1, mr=region["mr"], offset=0, len=100)
    told = t.expect("RQ_CREDIT", where=lambda p: p.kind == wire.TELL and p.rq_limit == 1)
    need(told.psn != ask.psn, f"{told}")


# Congestion, repair and hints of the implementation as a sender.

@script(paths=1)
def mark_halves(t):
    """CC-005, CC-008: the first mark cuts the window by alpha / 2 with alpha 1, and such a report lets nothing grow"""
    t.post_write(256 * 30)
    packets = sorted([p for p in t.gather(30) if p.name == "WRITE"], key=lambda p: p.psn)
    need(len(packets) == 16, f"{len(packets)} before any report (PATH-010)")
    t.ack(packets[3], ce=1, ect=3)
    t.gather(20)
    stats = t.stats()
    need(stats["path"]["window"] == 8.0 and stats["path"]["alpha"] == 1.0, f"{stats}")
    need(stats["connection"]["window"] == 8.0, f"{stats}")
    need(stats["path"]["marks"] == 1, f"{stats}")


@script(paths=1)
def grows_in_its_start(t):
    """CC-004: in its start a window grows by one for each packet acknowledged"""
    t.post_write(256 * 200)
    packets = sorted([p for p in t.gather(30) if p.name == "WRITE"], key=lambda p: p.psn)
    t.ack(packets[15], ect=16)
    more = [p for p in t.gather(2) if p.name == "WRITE" and not p.flags & wire.RTX]
    window = t.stats()["path"]["window"]
    need(16 < window <= 32, f"window {window}")
    print(f"        16 packets acknowledged, {len(more)} sent since, window {window}")
    need(len(more) <= 32, f"{len(more)} new packets after a report of 16")


@script(paths=1)
def marks_beyond_what_was_sent(t):
    """ECN-014: a rise of CE_Count beyond the packets newly acknowledged is not reacted to"""
    t.post_write(256 * 30)
    packets = sorted([p for p in t.gather(30) if p.name == "WRITE"], key=lambda p: p.psn)
    t.ack(packets[3], ce=5, ect=0)
    t.gather(20)
    need(t.stats()["path"]["window"] >= 16, f"{t.stats()}")


@script(paths=1)
def bleached_path(t):
    """ECN-012, CC-010: counts that fall behind turn ECN off, and a gap halves the window then"""
    t.post_write(256 * 30)
    packets = sorted([p for p in t.gather(30) if p.name == "WRITE"], key=lambda p: p.psn)
    t.ack(packets[0], ect=0)
    t.gather(5)
    need(t.stats()["path"]["ecn_off"], f"{t.stats()}")
    before = t.stats()["path"]["window"]
    t.ack(packets[3], cum=packets[0].psn, sack=b"\x20" + bytes(31), ect=0)
    t.gather(5)
    after = t.stats()["path"]["window"]
    need(after <= before / 2 + 1, f"{before} then {after}")


@script(paths=1)
def gap_without_marks(t):
    """ECN-011: a gap without CE does not shrink the window where ECN is on; what is missing goes again at once, once"""
    t.post_write(256 * 30)
    packets = sorted([p for p in t.gather(30) if p.name == "WRITE"], key=lambda p: p.psn)
    before = t.stats()["path"]["window"]
    t.ack(packets[3], cum=packets[0].psn, sack=b"\x20" + bytes(31), ect=2)
    t.ack(packets[3], cum=packets[0].psn, sack=b"\x20" + bytes(31), ect=2)
    again = [p.psn for p in t.gather(2) if p.flags & wire.RTX]
    need(again == [packets[1].psn, packets[2].psn], f"{again}")
    need(t.stats()["path"]["window"] >= before, f"{before} {t.stats()}")


@script(paths=1, source_ports=4)
def grace_period(t):
    """PATH-012 to PATH-015: after a change of port a gap of older packets proves nothing for a while"""
    t.post_write(256 * 16)
    packets = sorted([p for p in t.gather(60) if p.name == "WRITE"], key=lambda p: p.psn)[:16]
    t.ack(packets[0], ect=1, timestamp_echo=packets[0].timestamp)   # a round trip of some 60 ms
    t.gather(1)
    srtt = t.stats()["path"]["srtt_ns"] / 1e9
    t.adapter.ask("move_path", conn=0, path=0, port=51002)
    change = t.expect("PATH_CHANGE")
    need(change.source_port == 51002 and change.next_psn == add(packets[-1].psn, 1), f"{change}")
    moved = change.when
    t.ack(packets[3], cum=packets[0].psn, sack=b"\x20" + bytes(31), ect=2)
    again = t.expect("WRITE", milliseconds=300, where=lambda p: p.flags & wire.RTX and p.psn == packets[1].psn)
    probed = [p for p in t.seen if p.name == "PATH_PROBE"]
    need(again.when - moved >= 9 / 8 * srtt - 0.001, f"after {again.when - moved:.4f} s, SRTT {srtt:.4f} s, probes {probed}")


@script(paths=1)
def lost_retransmission(t):
    """REL-033, REL-034: a retransmission is repeated when what was sent after it has arrived, and not before"""
    t.post_write(256 * 40)
    packets = sorted([p for p in t.gather(20) if p.name == "WRITE"], key=lambda p: p.psn)
    t.ack(packets[2], cum=packets[0].psn, sack=b"\x40" + bytes(31), ect=2)
    again = t.expect("WRITE", where=lambda p: p.flags & wire.RTX and p.psn == packets[1].psn)
    t.ack(packets[4], cum=packets[0].psn, sack=b"\x70" + bytes(31), ect=4)   # sent before the retransmission
    t.silence(1, "WRITE", where=lambda p: p.psn == packets[1].psn)
    later = max((p for p in t.seen if p.name == "WRITE" and not p.flags & wire.RTX and p.when > again.when - 0.0005
                 and p.psn - packets[0].psn & 0xFFFFFFFF > 15), key=lambda p: p.when, default=None) \
        or t.expect("WRITE", milliseconds=5, where=lambda p: not p.flags & wire.RTX)
    need(later.timestamp - again.timestamp & 0xFFFFFFFF < 1 << 31, f"{later} left before {again}")
    bits = int.from_bytes(b"\x70" + bytes(31), "big") | 1 << 255 - (later.psn - packets[0].psn - 1 & 0xFFFFFFFF)
    t.ack(later, cum=packets[0].psn, sack=bits.to_bytes(32, "big"), ect=5)
    third = t.expect("WRITE", milliseconds=20, where=lambda p: p.flags & wire.RTX and p.psn == packets[1].psn)
    need(third.timestamp != again.timestamp, f"{third}")


@script(paths=2, hints=True)
def hint_of_zero(t):
    """HINT-011 to HINT-014: after a hint of 0 nothing new goes; probes come at growing pauses; four in vain end it"""
    t.post_write(256 * 300)
    t.gather(20)
    for path in (0, 1):
        last = max((p for p in t.seen if p.name == "WRITE" and p.path == path), key=lambda p: p.psn)
        t.ack(last, ect=last.psn - t.peer_isn + 1 & 0xFFFFFFFF, hint_epoch=1, rate_hint=0)
    start = time.monotonic()
    t.gather(5)
    came = t.gather(1500)
    new = [p for p in came if p.name == "WRITE" and not p.flags & wire.RTX]
    probes = [p for p in t.seen if p.name == "PATH_PROBE" and p.when > start]
    need(len(probes) >= 4, f"{len(probes)} probes")
    need(new, "it stays paused although no probe is answered")
    before = [p for p in probes if p.when < new[0].when]
    need(len(before) >= 4, f"new data after {len(before)} probes, {new[0].when - start:.4f} s after the hint")


@script(paths=2, hints=True)
def low_hint(t):
    """HINT-008: the rate keeps to the hint"""
    t.post_write(256 * 4000)
    sent, count = 0, {}
    t.gather(20)
    for path in (0, 1):
        last = max((p for p in t.seen if p.name == "WRITE" and p.path == path), key=lambda p: p.psn)
        t.ack(last, ect=last.psn - t.peer_isn + 1 & 0xFFFFFFFF, hint_epoch=1, rate_hint=2)   # 25,000 bytes in 100 ms
    t.gather(20)
    start, total = time.monotonic(), 0
    epoch, highest = 1, {}
    while time.monotonic() - start < 0.4:
        for p in t.gather(4):
            if p.name == "WRITE" and not p.flags & wire.RTX:
                total += 256 + 48 + 4 + 28
                count[p.path] = count.get(p.path, 0) + 1
                highest[p.path] = p
        for p in highest.values():
            t.ack(p, ect=p.psn - t.peer_isn + 1 & 0xFFFFFFFF, hint_epoch=epoch, rate_hint=2)
        highest.clear()
    allowed = 0.4 * 250_000 + 16 * (256 + 80)
    need(total <= allowed * 1.02, f"{total} bytes in 0.4 s, {allowed:.0f} allowed")
    need(total >= 0.4 * 250_000 * 0.5, f"{total} bytes in 0.4 s of {allowed:.0f}: far below the hint")
    need(sent == 0, "")


@script(paths=1)
def eight_transmissions(t):
    """REL-060, REL-061: from the ninth time on a packet waits for the retransmission timeout"""
    t.post_write(256 * 16)
    packets = sorted([p for p in t.gather(20) if p.name == "WRITE"], key=lambda p: p.psn)
    t.ack(packets[15], cum=add(packets[0].psn, -1), sack=b"\x7f\xff" + bytes(30), ect=15)
    times = []
    for _ in range(12):   # each probe is answered without it
        p = t.expect("WRITE", milliseconds=1500, where=lambda p: p.psn == packets[0].psn and p.flags & wire.RTX)
        times.append(p.when)
        probe = t.expect("PATH_PROBE", milliseconds=1500, where=lambda q: q.when > p.when)
        t.send("PATH_PROBE_ACK", psn=probe.psn, path=0, epoch=0, timestamp_echo=probe.timestamp,
               cum_psn=add(packets[0].psn, -1), highest_psn=probe.highest_psn, rate_hint=wire.NO_LIMIT,
               sack=b"\x7f\xff" + bytes(30))
    pauses = [round(1000 * (b - a), 1) for a, b in zip(times, times[1:])]
    need(all(p >= 9.5 for p in pauses[7:]), f"pauses {pauses} ms")


# The implementation as initiator.

def initiator(t, **changes):
    """Takes its OPEN, and answers with ACCEPT."""
    t.their_open = t.expect("OPEN", milliseconds=500)
    t.accepted = {**t.their_open.params, "scid": t.rng.randrange(1, 1 << 24), "nonce": t.rng.getrandbits(64),
                  "isn": t.rng.getrandbits(32), "ver_max": 1, **changes}
    fields = {"psn": t.their_open.psn, "dcid": t.their_open.params["scid"], "params": t.accepted,
              "planes": planes_field([]), "cookie": t.rng.randbytes(32)}
    return fields


@script(role="initiator")
def accept_of_what_was_not_offered(t):
    """CONN-039: an ACCEPT of more than was offered draws no CONFIRM, and ends the attempt"""
    t.send("ACCEPT", **initiator(t, paths=5))
    t.silence(80, "CONFIRM")
    events = t.adapter.events(50)
    need([e["type"] for e in events] == ["failed"], f"{events}")


@script(role="initiator", features=["imm"])
def accept_of_a_feature(t):
    """CONN-039: an ACCEPT with a feature that was not offered draws no CONFIRM"""
    t.send("ACCEPT", **initiator(t, features=wire.FEATURES["imm"] | wire.FEATURES["inv"]))
    t.silence(80, "CONFIRM")


@script(role="initiator")
def forged_answers(t):
    """CONN-038, CONN-013, CONN-019: answers to other attempts are passed over; the first ACCEPT counts"""
    fields = initiator(t)
    scid, nonce = t.their_open.params["scid"], t.their_open.params["nonce"]
    t.send("ACCEPT", **{**fields, "psn": add(fields["psn"], 1)})
    t.send("REJECT", psn=fields["psn"], dcid=scid, reason=2, ver_min=1, ver_max=1, nonce=nonce ^ 1)
    t.send("REJECT", psn=add(fields["psn"], 5), dcid=scid, reason=2, ver_min=1, ver_max=1, nonce=nonce)
    t.send("CONFIRM_ACK", psn=fields["psn"], dcid=scid, nonce=nonce)
    t.silence(20, "CONFIRM", "STREAM_OPEN")
    t.send("ACCEPT", **fields)
    confirm = t.expect("CONFIRM")
    need(confirm.params == t.their_open.params and confirm.accepted == t.accepted and confirm.cookie == fields["cookie"]
         and confirm.dcid == t.accepted["scid"] and confirm.psn != fields["psn"], f"{confirm}")
    t.send("ACCEPT", **{**fields, "params": {**t.accepted, "scid": t.accepted["scid"] ^ 1}, "cookie": bytes(32)})
    t.send("CONFIRM_ACK", psn=confirm.psn, dcid=scid, nonce=nonce ^ 1)
    t.send("CONFIRM_ACK", psn=add(confirm.psn, 1), dcid=scid, nonce=nonce)
    t.silence(20, "STREAM_OPEN")
    again = t.expect("CONFIRM", milliseconds=100)
    need(again.psn == confirm.psn and again.cookie == confirm.cookie, f"{again}")
    t.send("CONFIRM_ACK", psn=confirm.psn, dcid=scid, nonce=nonce)
    opened = t.expect("STREAM_OPEN")
    need(opened.stream % 2 == 0 and opened.status == 0 and opened.dcid == t.accepted["scid"], f"{opened}")


@script(role="initiator")
def repetition_bears_its_own_time(t):
    """table CBH: the timestamp is that of the time of sending, also when a request is repeated"""
    first = t.expect("OPEN", milliseconds=500)
    again = t.expect("OPEN", milliseconds=300, where=lambda p: p.when > first.when)
    need(again.psn == first.psn, f"{again}")
    need(again.timestamp != first.timestamp, f"both bear {first.timestamp}, {again.when - first.when:.3f} s apart")


@script(role="initiator")
def refused_set_up(t):
    """connections: a REJECT ends the attempt"""
    fields = initiator(t)
    t.send("REJECT", psn=fields["psn"], dcid=t.their_open.params["scid"], reason=2, ver_min=1, ver_max=1,
           nonce=t.their_open.params["nonce"])
    t.silence(120)
    need([e["type"] for e in t.adapter.events(20)] == ["failed"], "the attempt is not given up")


@script(role="initiator")
def bad_accepts(t):
    """CONN-039, packets: an ACCEPT with values that are not allowed or were not offered draws no CONFIRM"""
    wrong = []
    for changes in ({"ts_unit": 0}, {"ts_unit": 1001}, {"payload_size": 128}, {"payload_size": 512}, {"hint_interval": 50},
                    {"hint_support": 1}, {"hint_support": 2, "hint_interval": 100}, {"extra_planes": 1}, {"scid": 0},
                    {"ver_max": 2}, {"ver_min": 0}, {"ver_min": 2, "ver_max": 2}, {"vector_width": 128}, {"ack_delay": 50001},
                    {"paths": 0}, {"streams": 0}, {"streams": 3}, {"msg_window": 0}, {"msg_window": 5}, {}):
        t.send("ACCEPT", **initiator(t, **changes))
        came = [p for p in t.gather(30) if p.name == "CONFIRM"]
        if bool(came) != (not changes):
            wrong.append(f"{changes}: {'CONFIRM' if came else 'no CONFIRM'}")
        t.adapter.ask("reset")
        t.gather(5)
        t.adapter.ask("open", **t.args)
    need(not wrong, "; ".join(wrong))


@script()
def unknown_codes(t):
    """chapter 2: code points that are not known, and flags where they do not belong, are passed over"""
    region = t.region()
    packet = t.data("WRITE", msn=1, payload=b"a", va=region["va"], rkey=region["rkey"], flags=wire.RTXE | wire.AR)
    t.ack_of(packet)
    retire = t.send("PATH_RETIRE", path=3, epoch=0, highest_psn=add(t.isn, -1), reason=77)
    t.expect("PATH_RETIRED", where=lambda p: p.psn == retire.psn)
    opened = t.send("STREAM_OPEN", stream=2, first_msn=1, status=5, src_qpn=1)
    need(t.expect("STREAM_OPEN_ACK", where=lambda p: p.psn == opened.psn).status == 0, "the status of STREAM_OPEN is not looked at")
    ask = t.send("RQ_CREDIT", stream=0, kind=wire.ASK, rq_limit=77)
    t.expect("RQ_CREDIT", where=lambda p: p.psn == ask.psn)
    close = t.send("CLOSE", reason=77)
    need(t.expect("CLOSE_ACK", where=lambda p: p.psn == close.psn).reason == 77, "")


@script()
def truncated_and_strange(t):
    """REL-053, CONN-032, PKT-015: what is cut or comes from elsewhere is neither taken nor answered"""
    region = t.region()
    whole = {"msn": 1, "payload": b"a" * 100, "va": region["va"], "rkey": region["rkey"], "flags": wire.AR}
    packet = t.data("WRITE", edit=lambda d: d[:60], **whole)
    t.data("WRITE", psn=packet.psn, edit=lambda d: d[:-1], **whole)
    t.data("WRITE", psn=packet.psn, edit=lambda d: d + b"\\0\\0\\0\\0", **whole)
    t.data("WRITE", psn=packet.psn, edit=lambda d: b"", **whole)
    t.silence(50)
    t.data("WRITE", psn=packet.psn, **whole)
    t.ack_of(packet)


@script()
def stale_credit(t):
    """STRM-047: an RqLimit with an earlier timestamp is passed over, though it is larger"""
    tell = lambda limit, back: t.send("RQ_CREDIT", stream=0, kind=wire.TELL, rq_limit=limit)   # noqa: E731
    region = t.region()
    tell(1, 0)
    t.gather(5)
    old = time.monotonic_ns() - 500_000_000
    late = Packet(wire.OPCODE["RQ_CREDIT"], psn=t.new_txid(), dcid=t.dcid, stream=0, kind=wire.TELL, rq_limit=5,
                  timestamp=old & 0xFFFFFFFF)
    t.sockets.send(OURS[0], 52000, THEIRS[0], 0, codec.encode(late, OURS[0], THEIRS[0], PORT))
    for n in range(3):
        t.adapter.ask("post_send", conn=0, stream=0, wr_id=n, mr=region["mr"], offset=0, len=10)
    sends = [p for p in t.gather(40) if p.name == "SEND" and not p.flags & wire.RTX]
    need(len(sends) == 1, f"{len(sends)} Sends with credit for one")
    asks = [p for p in t.seen if p.name == "RQ_CREDIT" and p.kind == wire.ASK]
    need(asks, "it does not ask for credit (STRM-030)")


@script(rnr_retries=2)
def rnr_exhausted(t):
    """RCV-007, RCV-018: with two retries the third refusal fails the Send and resets its stream with code RNR"""
    region = t.region()
    t.send("RQ_CREDIT", stream=0, kind=wire.TELL, rq_limit=1)
    t.adapter.ask("post_send", conn=0, stream=0, wr_id=4, mr=region["mr"], offset=0, len=10)
    for n in range(3):
        packet = t.expect("SEND", where=lambda p: bool(p.flags & wire.RTX) == (n > 0))
        t.send("NAK", psn=0, code=wire.RNR, scope=0, stream=0, msn=packet.msn, path=packet.path,
               offending_psn=packet.psn, detail=1000)
    reset = t.expect("STREAM_RESET")
    need(reset.code == wire.RNR and reset.msn == packet.msn, f"{reset}")
    done = [(e["wr_id"], e["status"]) for e in t.adapter.events(20) if e["type"] == "completion"]
    need(done == [(4, "IBV_WC_RNR_RETRY_EXC_ERR")], f"{done}")


@script(rnr_retries=2)
def credit_exhausted(t):
    """RCV-006, RCV-007: without credit it asks three times, 50 ms apart, and then fails with code 0"""
    region = t.region()
    t.adapter.ask("post_send", conn=0, stream=0, wr_id=4, mr=region["mr"], offset=0, len=10)
    times = []
    for _ in range(3):
        ask = t.expect("RQ_CREDIT", where=lambda p: p.kind == wire.ASK and p.psn not in times)
        times += [ask.psn]
        if len(times) > 1:
            need(ask.when - answered >= 0.048, f"asks again after {ask.when - answered:.3f} s")   # noqa: F821
        t.send("RQ_CREDIT", psn=ask.psn, stream=0, kind=wire.TELL, rq_limit=0)
        answered = time.monotonic()
    reset = t.expect("STREAM_RESET")
    need(reset.code == 0 and reset.msn == 0, f"{reset}")
    done = [(e["wr_id"], e["status"]) for e in t.adapter.events(20) if e["type"] == "completion"]
    need(done == [(4, "IBV_WC_RNR_RETRY_EXC_ERR")], f"{done}")


@script(planes=1, paths=2)
def plane_waits_for_its_probe(t):
    """PLN-001, PLN-012: nothing goes in a further plane before one of its probes has been answered"""
    t.post_write(256 * 20)
    came = t.gather(60) + t.seen
    data = [p for p in came if p.name == "WRITE"]
    need(data and all(p.own == "127.12.0.1" and p.path == 0 for p in data), f"{data[:3]}")
    probe = next((p for p in came if p.name == "PATH_PROBE" and p.path == 1 and p.own == "127.12.1.1"), None)
    need(probe is not None, "plane 1 is not probed")
    t.send("PATH_PROBE_ACK", plane=1, psn=probe.psn, path=1, epoch=0, timestamp_echo=probe.timestamp,
           cum_psn=add(t.peer_isn, -1), highest_psn=probe.highest_psn, rate_hint=wire.NO_LIMIT, sack=bytes(32))
    packet = t.expect("WRITE", where=lambda p: p.path == 1)
    need(packet.own == "127.12.1.1", f"{packet}")


# Silence.

def drive(t, path_acked, seconds, until):
    """Acknowledges everything on the paths of `path_acked` for a time, and answers their probes. Returns what came."""
    came, end = [], time.monotonic() + seconds
    highest = {}
    while time.monotonic() < end:
        got = t.gather(2)
        came += got
        for p in got:
            if p.name == "PATH_PROBE" and p.path in path_acked:
                cum = highest[p.path].psn if p.path in highest else add(t.peer_isn, -1)
                t.send("PATH_PROBE_ACK", psn=p.psn, path=p.path, epoch=p.epoch, timestamp_echo=p.timestamp, cum_psn=cum,
                       highest_psn=p.highest_psn, rate_hint=wire.NO_LIMIT, sack=bytes(32))
            if p.name == "WRITE" and p.path in path_acked:
                if p.path not in highest or p.psn - highest[p.path].psn & 0xFFFFFFFF < 1 << 31:
                    highest[p.path] = p
                t.ack(highest[p.path], ect=highest[p.path].psn - t.peer_isn + 1 & 0xFFFFFFFF, timestamp_echo=p.timestamp)
        if any(until(p) for p in got):
            break
    return came


@script(paths=2)
def silent_path_is_retired(t):
    """PATH-020, PATH-021, PATH-023, REL-035, REL-043: three timeouts while another path lives end a path, FAILED"""
    t.post_write(256 * 2000)
    came = drive(t, {0}, 4, lambda p: p.name == "PATH_RETIRE")
    retire = next((p for p in came if p.name == "PATH_RETIRE"), None)
    need(retire is not None, "it is not retired within 4 s")
    need(retire.path == 1 and retire.reason == wire.RETIRE_FAILED, f"{retire}")
    psns = [p.psn for p in came if p.name == "WRITE" and p.path == 1]
    need(retire.highest_psn == max(psns, key=lambda n: n - t.peer_isn & 0xFFFFFFFF), f"{retire}")
    again = [p for p in came if p.name == "WRITE" and p.path == 1 and p.flags & wire.RTX]
    probes = [p for p in came if p.name == "PATH_PROBE" and p.path == 1]
    need(probes and again and probes[0].when < again[0].when, "no probe before the first timeout")
    # Nothing has been heard on the path: 100 ms, 200 ms and 400 ms.
    lowest = [p for p in again if p.psn == t.peer_isn]
    need(len(lowest) == 2, f"{len(lowest)} repetitions of the lowest PSN before the path is given up")
    first = min(p.when for p in came if p.name == "WRITE" and p.path == 1)
    pauses = [lowest[0].when - first, lowest[1].when - lowest[0].when, retire.when - lowest[1].when]
    need(pauses[0] >= 0.095 and pauses[1] >= 1.95 * 0.1 and pauses[2] >= 1.95 * 0.2, f"{pauses}")


@script(paths=2)
def idle_path_is_asked(t):
    """PATH-044: after a timeout without word from elsewhere an idle path is asked"""
    t.post_write(100)
    packet = t.expect("WRITE")
    other = 1 - packet.path
    probe = t.expect("PATH_PROBE", milliseconds=300, where=lambda p: p.path == other)
    need(probe.highest_psn == add(t.peer_isn, -1), f"{probe}")


@script(paths=1)
def dead_peer(t):
    """PATH-011, REL-042: seven timeouts end the connection, and its oldest work with RETRY_EXC_ERR"""
    t.post_write(100, wr_id=1)
    t.post_write(100, wr_id=2)
    start = t.expect("WRITE").when
    close = t.expect("CLOSE", milliseconds=9000)
    need(close.reason == wire.ERROR, f"{close}")
    need(7.0 <= close.when - start <= 7.6, f"after {close.when - start:.3f} s: 0.1 + 0.2 + ... + 2 + 2 = 7.1 s")
    done = [(e["wr_id"], e["status"]) for e in t.adapter.events(20) if e["type"] == "completion"]
    need(done == [(1, "IBV_WC_RETRY_EXC_ERR"), (2, "IBV_WC_WR_FLUSH_ERR")], f"{done}")


@script(paths=2, planes=1)
def plane_down(t):
    """planes: the paths of an interface that is known to be down are moved, or retired with reason PLANE"""
    probe = t.expect("PATH_PROBE", where=lambda p: p.path == 1)
    t.send("PATH_PROBE_ACK", plane=1, psn=probe.psn, path=1, epoch=0, timestamp_echo=probe.timestamp,
           cum_psn=add(t.peer_isn, -1), highest_psn=probe.highest_psn, rate_hint=wire.NO_LIMIT, sack=bytes(32))
    t.gather(20)
    t.adapter.ask("set_plane", conn=0, plane=1, up=False)
    told = t.expect("PATH_RETIRE", "PATH_CHANGE")
    need(told.path == 1 and told.own == "127.12.0.1", f"{told}")
    need(told.name == "PATH_CHANGE" and told.plane == 0 or told.name == "PATH_RETIRE"
         and told.reason == wire.RETIRE_PLANE, f"{told}")


@script(paths=2, planes=1)
def repetitions_change_the_plane(t):
    """PLN-007: a repetition of a request takes another plane than the one before"""
    probe = t.expect("PATH_PROBE", where=lambda p: p.path == 1)
    t.send("PATH_PROBE_ACK", plane=1, psn=probe.psn, path=1, epoch=0, timestamp_echo=probe.timestamp,
           cum_psn=add(t.peer_isn, -1), highest_psn=probe.highest_psn, rate_hint=wire.NO_LIMIT, sack=bytes(32))
    t.gather(20)
    t.adapter.ask("retire_path", conn=0, path=1)
    came = [p for p in t.gather(800) if p.name == "PATH_RETIRE"]
    need(len(came) >= 4, f"{len(came)} times")
    need(all(a.own != b.own for a, b in zip(came, came[1:])), f"{[p.own for p in came]}")
    need(len({p.psn for p in came}) == 1, f"{came}")


@script()
def stream_of_its_own(t):
    """STRM-001, STRM-046, CONN-024: streams that it opens have odd ids; one that is not answered is reset"""
    opened = t.adapter.ask("open_stream", conn=0)
    need(opened["stream"] % 2 == 1, f"{opened}")
    asks = []
    start = time.monotonic()
    while time.monotonic() - start < 14:
        got = t.gather(20)
        asks += [p for p in got if p.name == "STREAM_OPEN"]
        reset = [p for p in got if p.name == "STREAM_RESET"]
        if reset:
            break
    need(len(asks) == 8 and len({p.psn for p in asks}) == 1, f"{len(asks)} times")
    pauses = [round(b.when - a.when, 3) for a, b in zip(asks, asks[1:])]
    need(all(p >= 0.05 * 2 ** n - 0.005 for n, p in enumerate(pauses)), f"{pauses}")
    need(reset and reset[0].code == 0 and 12.7 <= reset[0].when - asks[0].when <= 13.2, f"{reset} after {time.monotonic() - start}")
    t.answer_reset(reset[0])


@script()
def id_is_free_again(t):
    """ERR-018: the id of a stream can be used again 6 s after it was reset"""
    reset = t.send("STREAM_RESET", stream=0, code=0, msn=0)
    t.expect("STREAM_RESET_ACK", where=lambda p: p.psn == reset.psn)
    t.gather(5800)
    need(t.open_stream(0, msn=77).status == wire.STREAM_IN_USE, "after 5.8 s")
    t.gather(400)
    need(t.open_stream(0, msn=77).status == 0, "still in use after 6.2 s")
    t.sane(msn=77)


@script()
def close_without_answer(t):
    """CONN-050: CLOSE is not sent any more 6 s after its first sending when nothing comes, and is taken as answered"""
    t.adapter.ask("close", conn=0)
    first = t.expect("CLOSE")
    times = [p.when - first.when for p in t.gather(13500) if p.name == "CLOSE"]
    need(all(x <= 6.05 for x in times), f"{times}")
    events = t.adapter.events(20)
    need(any(e["type"] == "closed" for e in events), f"{events}")


def needless_repair(t):
    """Acknowledges the first three packets of path 0 with a gap in between. Returns its packets and the repair."""
    t.post_write(256 * 200)
    drive(t, set(), 0.03, lambda p: False)
    mine = sorted((p for p in t.seen if p.name == "WRITE" and p.path == 0), key=lambda p: p.psn)
    t.ack(mine[0], ect=1)
    t.gather(1)
    t.ack(mine[2], cum=mine[0].psn, sack=b"\x40" + bytes(31), ect=2)
    again = t.expect("WRITE", where=lambda p: p.flags & wire.RTX and p.psn == mine[1].psn)
    return mine, again


@script()
def reordering_allowance(t):
    """PATH-018: after a needless repair a gap has to last SRTT / 4"""
    mine, again = needless_repair(t)
    t.ack(again, cum=mine[-1].psn, ect=len(mine), ack_flags=wire.ECHO_VALID | wire.DUPLICATE_SEEN)   # and no gap is left
    fresh = sorted((p for p in t.gather(6) if p.name == "WRITE" and p.path == 0 and not p.flags & wire.RTX),
                   key=lambda p: p.psn)
    need(len(fresh) >= 3, f"{len(fresh)} new packets")
    start = time.monotonic()
    t.ack(fresh[2], cum=fresh[0].psn, sack=b"\x40" + bytes(31), ect=len(mine) + 2)
    repaired = t.expect("WRITE", milliseconds=100, where=lambda p: p.flags & wire.RTX and p.psn == fresh[1].psn)
    srtt = t.stats()["path"]["srtt_ns"] / 1e9
    need(repaired.when - start >= srtt / 4 * 0.95, f"after {repaired.when - start:.5f} s, SRTT / 4 = {srtt / 4:.5f} s")


@script()
def allowance_of_the_same_report(t):
    """PATH-018: the allowance that a report raises holds for the gap that the same report shows"""
    mine, again = needless_repair(t)
    start = time.monotonic()
    # The repair has arrived, so that all that was sent before it and is missing shows as a gap from now on.
    t.ack(again, cum=mine[2].psn, ect=3, ack_flags=wire.ECHO_VALID | wire.DUPLICATE_SEEN)
    repaired = t.expect("WRITE", milliseconds=100, where=lambda p: p.flags & wire.RTX and p.psn == mine[3].psn)
    srtt = t.stats()["path"]["srtt_ns"] / 1e9
    need(repaired.when - start >= srtt / 4 * 0.95, f"after {repaired.when - start:.5f} s, SRTT / 4 = {srtt / 4:.5f} s")


@script()
def reset_and_retire(t):
    """PATH-031, PATH-042: nothing of a stream that was reset moves with its path, and no FILL goes for its epoch"""
    t.post_write(256 * 8)
    mine = [p for p in t.gather(20) if p.name == "WRITE" and p.path == 1]
    t.adapter.ask("retire_path", conn=0, path=1)
    retire = t.expect("PATH_RETIRE")
    reset = t.send("STREAM_RESET", stream=0, code=0, msn=0)
    t.expect("STREAM_RESET_ACK", where=lambda p: p.psn == reset.psn)
    t.send("PATH_RETIRED", psn=retire.psn, path=1, epoch=0, cum_psn=add(t.peer_isn, -1), sack=bytes(32))
    came = t.gather(100)
    offsets = {p.offset for p in mine}
    need(not [p for p in came if p.name == "WRITE" and p.offset in offsets and not p.flags & wire.RTX], f"{came}")
    need(not [p for p in came if p.name == "FILL" and p.path == 1], f"{came}")


@script()
def read_fails_with_its_response(t):
    """OPS-022, OPS-023: a response of another length is refused and not placed"""
    region = t.region(1000, fill=1)
    t.adapter.ask("post_read", conn=0, stream=0, wr_id=3, mr=region["mr"], offset=0, len=100, va="0x1000", rkey=5)
    request = t.expect("READ_REQ")
    answer = t.data("READ_RESP", msn=request.msn, payload=b"x" * 200)
    t.nak_of(answer, wire.REM_INV_REQ)
    need(t.memory(region, 0, 64) == b"\1" * 64, "it was placed")
    reset = t.send("STREAM_RESET", stream=0, code=wire.REM_INV_REQ, msn=request.msn)
    t.expect("STREAM_RESET_ACK", where=lambda p: p.psn == reset.psn)
    done = [(e["wr_id"], e["status"]) for e in t.adapter.events(20) if e["type"] == "completion"]
    print(f"        the Read completes with {done}")
    need(len(done) == 1 and done[0][0] == 3 and done[0][1] != "IBV_WC_SUCCESS", f"{done}")


@script(capacity_mbps=100, hint_interval_us=1000)
def gives_hints(t):
    """HINT-001, HINT-002, HINT-004: its hints are numbered, and no more than 0.95 of its capacity"""
    region = t.region(1 << 16)
    hints = []
    for n in range(300):
        t.data("WRITE", path=n % 4, msn=1, offset=n % 200 * 256, payload=b"a" * 256, length=256 * 201, va=region["va"],
               rkey=region["rkey"]) if n < 200 else None
        hints += [(p.timestamp, p.hint_epoch, p.rate_hint) for p in t.gather(1)
                  if p.name in ("ACK", "ACK_SACK", "RATE_HINT", "PATH_PROBE_ACK")]
    base = hints[0][0]
    hints.sort(key=lambda h: (h[0] - base + (1 << 31)) & 0xFFFFFFFF)
    need(hints and any(h[2] != wire.NO_LIMIT for h in hints), f"{hints[:3]}")
    need(all(h[2] <= 95 or h[2] == wire.NO_LIMIT for h in hints), f"{[h for h in hints if h[2] > 95]}")
    for (_, e1, r1), (_, e2, r2) in zip(hints, hints[1:]):
        need((e1 == e2) <= (r1 == r2), f"epoch {e1} with {r1} and {r2}")


@script(paths=1)
def alpha_is_renewed(t):
    """CC-006, CC-005: alpha is renewed once per SRTT with the part that was marked, before the window is cut by it"""
    t.post_write(256 * 60)
    packets = sorted([p for p in t.gather(10) if p.name == "WRITE"], key=lambda p: p.psn)
    t.ack(packets[0], ect=1)
    t.gather(60)
    before = t.stats()["path"]
    t.ack(packets[7], ect=6, ce=2)
    t.gather(2)
    after = t.stats()["path"]
    found = (after["alpha"] - 15 / 16) * 16
    print(f"        of 1 packet acknowledged with the first sample and 7 later with 2 marks F is {found:.4f}, "
          f"window {before['window']} then {after['window']}")
    need(min(abs(found - 2 / 7), abs(found - 2 / 8)) < 1e-6, f"{after}")
    need(abs(after["window"] - before["window"] * (1 - after["alpha"] / 2)) < 1e-6, f"{before} {after}")
    t.gather(1)
    last = max((p for p in t.seen if p.name == "WRITE"), key=lambda p: p.psn)
    t.ack(last, cum=add(packets[7].psn, 1), ect=6, ce=3)   # within the same SRTT: no further cut, and no growth
    t.gather(2)
    again = t.stats()["path"]
    need(again["window"] == after["window"] and again["alpha"] == after["alpha"], f"{after} {again}")


@script(paths=1)
def timeout_window(t):
    """CC-009, REL-056, REL-042: after a timeout one packet goes, and the window is one"""
    t.post_write(256 * 30)
    packets = sorted([p for p in t.gather(20) if p.name == "WRITE"], key=lambda p: p.psn)
    probe = t.expect("PATH_PROBE", milliseconds=90)
    first = t.expect("WRITE", milliseconds=120, where=lambda p: p.flags & wire.RTX)
    need(first.psn == packets[0].psn and first.when > probe.when, f"{first}")
    need(0.097 <= first.when - packets[-1].when <= 0.115, f"after {first.when - packets[-1].when:.4f} s")
    t.silence(60, "WRITE")
    stats = t.stats()
    need(stats["path"]["window"] == 1 and stats["connection"]["window"] == 1 and stats["path"]["in_flight"] == 1
         and stats["path"]["timeouts"] == 1, f"{stats}")
    t.ack(first, ect=1)   # evidence for all that is still missing: it goes at once
    again = [p for p in t.gather(5) if p.flags & wire.RTX]
    need(sorted(p.psn for p in again) == [p.psn for p in packets[1:]], f"{len(again)} go at once: {[p.psn for p in again]}")


@script(paths=1)
def idle_window(t):
    """CC-014: after a pause the window is at most the first one"""
    t.post_write(256 * 100)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        got = [p for p in t.gather(3) if p.name == "WRITE"]
        if got:
            last = max(got, key=lambda p: p.psn)
            t.ack(last, ect=last.psn - t.peer_isn + 1 & 0xFFFFFFFF)
    t.gather(300)
    t.post_write(256 * 60, wr_id=10)
    burst = [p for p in t.gather(5) if p.name == "WRITE"]
    need(len(burst) <= 16, f"{len(burst)} packets at once after a pause")


@script(ack_delay_us=20000)
def long_delay(t):
    """REL-019, REL-049: an acknowledgment that is delayed by more than 65534 units says ffff"""
    region = t.region()
    packet = t.data("WRITE", msn=1, payload=b"a" * 256, length=512, va=region["va"], rkey=region["rkey"])
    start = time.monotonic()
    ack = t.ack_of(packet)
    need(0.004 < ack.when - start < 0.030, f"after {ack.when - start:.4f} s")
    need((ack.ack_delay == 0xFFFF) == (ack.when - start > 0.0042), f"{ack} after {ack.when - start:.4f} s")


@script()
def eight_packets(t):
    """REL-016, REL-047: the eighth packet is acknowledged at once"""
    region = t.region(1 << 14)
    for n in range(8):
        last = t.data("WRITE", msn=1, offset=256 * n, payload=b"a" * 256, length=256 * 20, va=region["va"], rkey=region["rkey"])
    ack = t.ack_of(last, milliseconds=20)
    need(ack.psn == last.psn and ack.ack_delay * 64 < 2_000_000, f"{ack}")


@script()
def result_of_a_read(t):
    """OPS-036, OPS-045, REL-027: what is sent again of a Read, or moved, is the result that was taken"""
    region = t.region(fill=5, remote_read=True)
    t.data("READ_REQ", msn=1, length=300, va=region["va"], rkey=region["rkey"])
    first = [p for p in t.gather(30) + t.seen if p.name == "READ_RESP"]
    t.adapter.ask("write_memory", mr=region["mr"], offset=0, hex="09" * 300)
    t.adapter.ask("deregister", mr=region["mr"])
    again = [p for p in t.gather(400) if p.name == "READ_RESP" and p.flags & wire.RTX]
    need(first and again and all(set(p.payload) == {5} for p in again), f"{again}")
    path = first[0].path
    t.adapter.ask("retire_path", conn=0, path=path)
    retire = t.expect("PATH_RETIRE")
    t.send("PATH_RETIRED", psn=retire.psn, path=path, epoch=0, cum_psn=add(t.peer_isn, -1), sack=bytes(32))
    moved = t.expect("READ_RESP", where=lambda p: p.path != path and not p.flags & wire.RTX)
    need(set(moved.payload) == {5} and moved.msn == 1, f"{moved}")


@script(hints=False)
def hints_of_nobody(t):
    """HINT-016: hints of a peer that has declared none are passed over"""
    t.post_write(256 * 200)
    t.gather(20)
    for path in range(4):
        last = max((p for p in t.seen if p.name == "WRITE" and p.path == path), key=lambda p: p.psn)
        t.ack(last, ect=last.psn - t.peer_isn + 1 & 0xFFFFFFFF, hint_epoch=1, rate_hint=0)
    t.send("RATE_HINT", hint_epoch=2, rate_hint=0)
    new = [p for p in t.gather(20) if p.name == "WRITE" and not p.flags & wire.RTX]
    need(len(new) > 20, f"{len(new)} new packets")
    need(t.stats()["connection"]["hint_mbps"] is None, f"{t.stats()}")


@script(hints=True)
def stale_hint(t):
    """HINT-010, HINT-018, HINT-019: an earlier hint does not replace a later one, and one that is not renewed lapses"""
    t.send("RATE_HINT", hint_epoch=7, rate_hint=50)
    t.gather(5)
    need(t.stats()["connection"]["hint_mbps"] == 50, f"{t.stats()}")
    late = Packet(wire.OPCODE["RATE_HINT"], psn=t.new_txid(), dcid=t.dcid, hint_epoch=8, rate_hint=9,
                  timestamp=time.monotonic_ns() - 400_000_000 & 0xFFFFFFFF)
    t.sockets.send(OURS[0], 52000, THEIRS[0], 0, codec.encode(late, OURS[0], THEIRS[0], PORT))
    t.gather(10)
    need(t.stats()["connection"]["hint_mbps"] == 50, f"{t.stats()}")
    t.send("RATE_HINT", hint_epoch=3, rate_hint=60)     # any epoch, but later by its timestamp
    t.gather(10)
    need(t.stats()["connection"]["hint_mbps"] == 60, f"{t.stats()}")
    t.gather(300)
    need(t.stats()["connection"]["hint_mbps"] == 60, "it lapses before 4 x 100 ms")
    t.gather(150)
    need(t.stats()["connection"]["hint_mbps"] is None, "it does not lapse")


@script()
def acknowledgments_move(t):
    """PATH-017: after a duplicate the acknowledgments of its path leave from another port, and stay there"""
    region = t.region()
    ports = []

    def receive(s, before=t.sockets.receive):
        try:
            data, _, _, source = s.recvmsg(9216, 64)
        except OSError:
            return None
        if data[1] in (0x40, 0x41):
            ports.append(source[1])
        return data, source[0], t.sockets.receiving[s], 0
    t.sockets.receive = receive
    first = t.data("WRITE", msn=1, payload=b"a", va=region["va"], rkey=region["rkey"])
    t.ack_of(first)
    t.data("WRITE", psn=first.psn, msn=1, payload=b"a", va=region["va"], rkey=region["rkey"], flags=wire.RTX)
    t.gather(20)
    t.ack_of(t.data("WRITE", msn=2, payload=b"a", va=region["va"], rkey=region["rkey"]))
    need(len(ports) >= 3 and ports[0] not in ports[1:] and len(set(ports[1:])) == 1, f"{ports}")


@script(srq=True, streams=2)
def shared_queue(t):
    """RCV-014 to RCV-016: receives are bound in order of arrival, to whole messages, and promised once"""
    t.open_stream(2)
    region = t.region(4096, remote_write=False)
    for n in range(6):
        t.adapter.ask("post_srq_recv", wr_id=n, mr=region["mr"], offset=n * 600, len=600)
    t.gather(40)
    limits = {}
    for stream in (0, 2):
        ask = t.send("RQ_CREDIT", stream=stream, kind=wire.ASK, rq_limit=0)
        limits[stream] = t.expect("RQ_CREDIT", where=lambda p: p.psn == ask.psn).rq_limit
    need(sum(limits.values()) <= 6 and min(limits.values()) >= 1, f"{limits}")
    t.ack_of(t.data("SEND", stream=2, msn=1, rqsn=0, offset=256, payload=b"B" * 100, length=356))
    t.ack_of(t.data("SEND", stream=0, msn=1, rqsn=0, payload=b"A" * 10))
    t.ack_of(t.data("SEND", stream=2, msn=1, rqsn=0, payload=b"B" * 256, length=356, flags=wire.AR))
    done = [(e["stream"], e["wr_id"], e["byte_len"]) for e in t.adapter.events(30) if e["type"] == "completion"]
    need(done == [(0, 1, 10), (2, 0, 356)], f"{done}")
    need(t.memory(region, 0, 356) == b"B" * 356 and t.memory(region, 600, 10) == b"A" * 10, "placed wrongly")


@script(streams=2, read_depth=1)
def depth_over_streams(t):
    """OPS-014: the depth holds for all streams of the connection together"""
    t.open_stream(2)
    region = t.region(fill=5, remote_read=True)
    t.ack_of(t.data("READ_REQ", stream=0, msn=2, length=10, va=region["va"], rkey=region["rkey"]))
    t.nak_of(t.data("READ_REQ", stream=2, msn=2, length=10, va=region["va"], rkey=region["rkey"]), wire.REM_INV_REQ)


@script(read_depth=1, role="acceptor")
def depth_of_the_peer(t):
    """OPS-013: no more Reads are under way than the depth that the peer has named"""
    region = t.region(1000)
    for n in range(3):
        t.adapter.ask("post_read", conn=0, stream=0, wr_id=n, mr=region["mr"], offset=100 * n, len=50, va="0x1000", rkey=5)
    came = [p for p in t.gather(30) if p.name == "READ_REQ"]
    need(len({p.msn for p in came}) == 1, f"{came}")
    first = came[0]
    t.data("READ_RESP", msn=first.msn, payload=b"x" * 50)
    t.silence(20, "READ_REQ", where=lambda p: p.msn != first.msn)    # its packet is not acknowledged yet
    t.ack(first, ect=1)
    second = t.expect("READ_REQ", where=lambda p: p.msn != first.msn)
    need(second.msn == add(first.msn, 1, 24), f"{second}")


@script()
def fence(t):
    """operations: what bears a fence waits for the Reads before it"""
    region = t.region(1000)
    t.adapter.ask("post_read", conn=0, stream=0, wr_id=1, mr=region["mr"], offset=0, len=50, va="0x1000", rkey=5)
    t.adapter.ask("post_write", conn=0, stream=0, wr_id=2, mr=region["mr"], offset=0, len=50, va="0x1000", rkey=5, fence=True)
    request = t.expect("READ_REQ")
    t.ack(request, ect=1)
    t.silence(30, "WRITE")
    t.data("READ_RESP", msn=request.msn, payload=b"x" * 50)
    write = t.expect("WRITE")
    need(write.payload == b"x" * 50, f"{write}")   # and sees what they have brought


@script(atomic_depth=1)
def atomic_depth_of_the_peer(t):
    """OPS-024: no more atomic requests are under way than the depth that the peer has named"""
    region = t.region(1000)
    for n in range(2):
        t.adapter.ask("post_fetch_add", conn=0, stream=0, wr_id=n, mr=region["mr"], offset=8 * n, len=8, va="0x1000", rkey=5,
                      add="0x1")
    first = t.expect("FETCH_ADD")
    t.data("ATOMIC_RESP", msn=first.msn, length=8, original=3)
    t.silence(20, "FETCH_ADD", where=lambda p: p.msn != first.msn)   # its packet is not acknowledged yet
    t.ack(first, ect=1)
    t.expect("FETCH_ADD", where=lambda p: p.msn != first.msn)


@script(atomic_depth=3)
def one_cause(t):
    """STRM-037, chapter 16: when memory is gone one work is the cause, and all others of the stream are flushed"""
    region = t.region(1000)
    for n in range(3):
        t.adapter.ask("post_fetch_add", conn=0, stream=0, wr_id=n, mr=region["mr"], offset=8 * n, len=8, va="0x1000", rkey=5,
                      add="0x1")
    t.adapter.ask("deregister", mr=region["mr"])
    requests = {p.msn: p for p in t.gather(20) + t.seen if p.name == "FETCH_ADD"}
    for msn in sorted(requests, reverse=True):
        t.data("ATOMIC_RESP", msn=msn, length=8, original=3)
        t.ack(requests[msn], ect=1)
    t.gather(1200)
    done = [(e["wr_id"], e["status"]) for e in t.adapter.events(20) if e["type"] == "completion"]
    need([n for n, _ in done] == [0, 1, 2], f"{done}")
    need(sum(s != "IBV_WC_WR_FLUSH_ERR" for _, s in done) == 1, f"{done}")
