-- MetaRoCE, the open profile of it, for Wireshark 4.0 or later. Put this file into the folder of personal Lua plugins
-- (Help > About Wireshark > Folders), or give it to tshark with -X lua_script:metaroce.lua. See README.md beside it.
--
-- The tables between the marker lines come from spec/tables; everything else is written by hand.

-- BEGIN GENERATED from spec/tables by metaroce-spec: do not edit
local PROFILE = "metaroce-open 0.1"
local SPEC_VERSION = "0.1.0"
local TABLES = {
  { name = "CBH", length = 16, fields = {
    { name = "version", offset = 0, width = 4, allowed = { 1 }, meaning = "version of the wire format" },
    { name = "epoch", offset = 4, width = 4, meaning = "epoch of the path; 0 where no path is named" },
    { name = "opcode", offset = 8, width = 8, meaning = "kind of packet, see codes.yaml" },
    { name = "flags", offset = 16, width = 8, meaning = "see codes.yaml" },
    { name = "path", offset = 24, width = 8, meaning = "path id; of the path acknowledged on an acknowledgment; 0 on control that concerns no path" },
    { name = "pad", offset = 32, width = 2, meaning = "zero bytes between payload and trailer" },
    { name = "rsvd", offset = 34, width = 6, allowed = { 0 }, meaning = "reserved" },
    { name = "dcid", offset = 40, width = 24, meaning = "connection id that the receiver of the packet has chosen; 0 on OPEN and on a NAK UNKNOWN_CID" },
    { name = "psn", offset = 64, width = 32, meaning = "packet sequence number; CumPSN on an acknowledgment, transaction id on control, 0 on NAK" },
    { name = "timestamp", offset = 96, width = 32, meaning = "clock of the sending side at the time of sending, in the unit of the handshake" },
  } },
  { name = "MSGH", length = 16, fields = {
    { name = "stream", offset = 0, width = 16, meaning = "stream of the message" },
    { name = "rqsn", offset = 16, width = 16, meaning = "receive that the message consumes; 0 where it consumes none" },
    { name = "mflags", offset = 32, width = 8, meaning = "see codes.yaml" },
    { name = "msn", offset = 40, width = 24, meaning = "number of the message in its stream and direction; on a response that of its request" },
    { name = "offset", offset = 64, width = 32, max = 2147483648, meaning = "offset of the payload in the message, bytes, a multiple of the payload size" },
    { name = "len", offset = 96, width = 32, max = 2147483648, meaning = "length of the whole message, bytes" },
  } },
  { name = "TAGH", length = 16, fields = {
    { name = "va", offset = 0, width = 64, meaning = "remote address of the start of the message" },
    { name = "rkey", offset = 64, width = 32, meaning = "key of the remote region" },
    { name = "imm", offset = 96, width = 32, meaning = "immediate data of a WRITE_IMM; 0 on every other packet" },
  } },
  { name = "ATOMIC", length = 16, fields = {
    { name = "swap_or_add", offset = 0, width = 64, meaning = "CMP_SWAP: the new value; FETCH_ADD: the summand" },
    { name = "compare", offset = 64, width = 64, meaning = "CMP_SWAP: the value that is expected; FETCH_ADD: 0" },
  } },
  { name = "PARAMS", length = 44, fields = {
    { name = "ver_min", offset = 0, width = 8, min = 1, meaning = "lowest version offered; the chosen one in ACCEPT" },
    { name = "ver_max", offset = 8, width = 8, min = 1, meaning = "highest version offered; the chosen one in ACCEPT" },
    { name = "paths", offset = 16, width = 16, min = 1, max = 256, meaning = "paths in each direction" },
    { name = "rsvd_a", offset = 32, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "scid", offset = 40, width = 24, min = 1, meaning = "connection id under which the sender of the parameters receives" },
    { name = "nonce", offset = 64, width = 64, meaning = "random number of this attempt" },
    { name = "isn", offset = 128, width = 32, meaning = "first PSN of every path in the direction that this side sends" },
    { name = "service_id", offset = 160, width = 32, meaning = "service that is asked for" },
    { name = "streams", offset = 192, width = 16, min = 1, meaning = "streams that may be open at a time" },
    { name = "msg_window", offset = 208, width = 16, min = 1, max = 32767, meaning = "messages of a stream under way at a time" },
    { name = "payload_size", offset = 224, width = 16, allowed = { 256, 512, 1024, 2048, 4096, 8192 }, meaning = "payload bytes of a full packet" },
    { name = "vector_width", offset = 240, width = 16, allowed = { 256 }, meaning = "bits of the acknowledgment vector" },
    { name = "ts_unit", offset = 256, width = 16, min = 1, max = 1000, meaning = "unit of the timestamps that this side sends, ns" },
    { name = "ack_delay", offset = 272, width = 16, max = 50000, meaning = "longest time that this side delays an acknowledgment, us" },
    { name = "hint_interval", offset = 288, width = 16, max = 10000, meaning = "interval in which this side renews its rate hints, us, 10 at least; 0 while hint_support is 0" },
    { name = "hint_support", offset = 304, width = 8, max = 1, meaning = "1 if this side sends rate hints" },
    { name = "extra_planes", offset = 312, width = 8, max = 7, meaning = "planes besides that of the handshake; their addresses stand in PLANES" },
    { name = "read_depth", offset = 320, width = 8, meaning = "Read requests that this side queues at a time on the connection; 0 if it takes none" },
    { name = "atomic_depth", offset = 328, width = 8, meaning = "atomic requests that this side queues at a time on the connection; 0 if it takes none" },
    { name = "features", offset = 336, width = 16, meaning = "features offered, and agreed in ACCEPT, see codes.yaml" },
  } },
  { name = "PLANES", length = 112, fields = {
    { name = "plane_1", offset = 0, width = 128, meaning = "IP address in plane 1, IPv4 as ::ffff:a.b.c.d; zero if there is no such plane" },
    { name = "plane_2", offset = 128, width = 128, meaning = "IP address in plane 2, likewise" },
    { name = "plane_3", offset = 256, width = 128, meaning = "IP address in plane 3, likewise" },
    { name = "plane_4", offset = 384, width = 128, meaning = "IP address in plane 4, likewise" },
    { name = "plane_5", offset = 512, width = 128, meaning = "IP address in plane 5, likewise" },
    { name = "plane_6", offset = 640, width = 128, meaning = "IP address in plane 6, likewise" },
    { name = "plane_7", offset = 768, width = 128, meaning = "IP address in plane 7, likewise" },
  } },
  { name = "SEND", length = 0, opcode = 0x01, layout = { "CBH", "MSGH", "payload", "pad", "crc" }, fields = {
  } },
  { name = "SEND_IMM", length = 4, opcode = 0x02, layout = { "CBH", "MSGH", "SEND_IMM", "payload", "pad", "crc" }, fields = {
    { name = "imm", offset = 0, width = 32, meaning = "immediate data, as the application gave it" },
  } },
  { name = "SEND_INV", length = 4, opcode = 0x03, layout = { "CBH", "MSGH", "SEND_INV", "payload", "pad", "crc" }, fields = {
    { name = "rkey", offset = 0, width = 32, meaning = "key that the receiver invalidates before it completes the receive" },
  } },
  { name = "WRITE", length = 0, opcode = 0x04, layout = { "CBH", "MSGH", "TAGH", "payload", "pad", "crc" }, fields = {
  } },
  { name = "WRITE_IMM", length = 0, opcode = 0x05, layout = { "CBH", "MSGH", "TAGH", "payload", "pad", "crc" }, fields = {
  } },
  { name = "READ_REQ", length = 0, opcode = 0x06, layout = { "CBH", "MSGH", "TAGH", "crc" }, fields = {
  } },
  { name = "CMP_SWAP", length = 0, opcode = 0x07, layout = { "CBH", "MSGH", "TAGH", "ATOMIC", "crc" }, fields = {
  } },
  { name = "FETCH_ADD", length = 0, opcode = 0x08, layout = { "CBH", "MSGH", "TAGH", "ATOMIC", "crc" }, fields = {
  } },
  { name = "FILL", length = 0, opcode = 0x09, layout = { "CBH", "MSGH", "crc" }, fields = {
  } },
  { name = "READ_RESP", length = 0, opcode = 0x20, layout = { "CBH", "MSGH", "payload", "pad", "crc" }, fields = {
  } },
  { name = "ATOMIC_RESP", length = 8, opcode = 0x21, layout = { "CBH", "MSGH", "ATOMIC_RESP", "crc" }, fields = {
    { name = "original", offset = 0, width = 64, meaning = "value of the 8 bytes before the operation" },
  } },
  { name = "ACK", length = 24, opcode = 0x40, layout = { "CBH", "ACK", "crc" }, fields = {
    { name = "timestamp_echo", offset = 0, width = 32, meaning = "timestamp of the trigger" },
    { name = "ack_delay", offset = 32, width = 16, meaning = "time since the arrival of the trigger, in 64 ns; ffff for no sample" },
    { name = "ack_flags", offset = 48, width = 16, meaning = "see codes.yaml" },
    { name = "ce_count", offset = 64, width = 32, meaning = "first arrivals of the path marked CE" },
    { name = "ect_count", offset = 96, width = 32, meaning = "first arrivals of the path marked ECT(0) or ECT(1)" },
    { name = "hint_epoch", offset = 128, width = 8, meaning = "number of the rate hint; 0 from a side that sends no hints" },
    { name = "rate_hint", offset = 136, width = 24, meaning = "rate allotted to the connection, Mb/s; 0 pauses new data; ffffff for no limit" },
    { name = "stream", offset = 160, width = 16, meaning = "stream of the trigger" },
    { name = "rq_limit", offset = 176, width = 16, meaning = "first RQSN of that stream without a posted receive" },
  } },
  { name = "ACK_SACK", length = 32, opcode = 0x41, layout = { "CBH", "ACK", "ACK_SACK", "crc" }, fields = {
    { name = "sack", offset = 0, width = 256, meaning = "bit i, most significant first, stands for CumPSN + 1 + i; bit 0 is 0" },
  } },
  { name = "NAK", length = 16, opcode = 0x42, layout = { "CBH", "NAK", "crc" }, fields = {
    { name = "code", offset = 0, width = 8, meaning = "why the packet is refused, see codes.yaml" },
    { name = "scope", offset = 8, width = 8, meaning = "what the refusal concerns, see codes.yaml" },
    { name = "stream", offset = 16, width = 16, meaning = "stream of the packet refused" },
    { name = "msn", offset = 32, width = 24, meaning = "message of the packet refused" },
    { name = "rsvd", offset = 56, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "offending_psn", offset = 64, width = 32, meaning = "PSN of the packet refused" },
    { name = "detail", offset = 96, width = 32, meaning = "depends on the code; 0 where nothing is said" },
  } },
  { name = "OPEN", length = 188, opcode = 0x60, layout = { "CBH", "OPEN", "crc" }, fields = {
    { name = "params", offset = 0, width = 352, table = "PARAMS", meaning = "what the initiator asks for" },
    { name = "planes", offset = 352, width = 896, table = "PLANES", meaning = "addresses of the initiator in further planes" },
    { name = "padding", offset = 1248, width = 256, allowed = { 0 }, meaning = "fills OPEN up to the size of ACCEPT" },
  } },
  { name = "ACCEPT", length = 188, opcode = 0x61, layout = { "CBH", "ACCEPT", "crc" }, fields = {
    { name = "params", offset = 0, width = 352, table = "PARAMS", meaning = "what the acceptor agrees to" },
    { name = "planes", offset = 352, width = 896, table = "PLANES", meaning = "addresses of the acceptor in further planes" },
    { name = "cookie", offset = 1248, width = 256, meaning = "opaque to the initiator" },
  } },
  { name = "REJECT", length = 16, opcode = 0x62, layout = { "CBH", "REJECT", "crc" }, fields = {
    { name = "reason", offset = 0, width = 8, min = 1, meaning = "see codes.yaml" },
    { name = "ver_min", offset = 8, width = 8, meaning = "lowest version that the acceptor speaks" },
    { name = "ver_max", offset = 16, width = 8, meaning = "highest version that the acceptor speaks" },
    { name = "rsvd", offset = 24, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "nonce", offset = 32, width = 64, meaning = "nonce of the initiator" },
    { name = "detail", offset = 96, width = 32, meaning = "depends on the reason; 0 where nothing is said" },
  } },
  { name = "CONFIRM", length = 344, opcode = 0x63, layout = { "CBH", "CONFIRM", "crc" }, fields = {
    { name = "params", offset = 0, width = 352, table = "PARAMS", meaning = "parameters of the initiator, as in OPEN" },
    { name = "planes", offset = 352, width = 896, table = "PLANES", meaning = "addresses of the initiator, as in OPEN" },
    { name = "cookie", offset = 1248, width = 256, meaning = "cookie of ACCEPT" },
    { name = "accepted", offset = 1504, width = 352, table = "PARAMS", meaning = "parameters of the acceptor, as in ACCEPT" },
    { name = "accepted_planes", offset = 1856, width = 896, table = "PLANES", meaning = "addresses of the acceptor, as in ACCEPT" },
  } },
  { name = "CONFIRM_ACK", length = 8, opcode = 0x66, layout = { "CBH", "CONFIRM_ACK", "crc" }, fields = {
    { name = "nonce", offset = 0, width = 64, meaning = "nonce of the initiator" },
  } },
  { name = "CLOSE", length = 4, opcode = 0x64, layout = { "CBH", "CLOSE", "crc" }, fields = {
    { name = "reason", offset = 0, width = 16, meaning = "see codes.yaml" },
    { name = "rsvd", offset = 16, width = 16, allowed = { 0 }, meaning = "reserved" },
  } },
  { name = "CLOSE_ACK", length = 4, opcode = 0x65, layout = { "CBH", "CLOSE_ACK", "crc" }, fields = {
    { name = "reason", offset = 0, width = 16, meaning = "see codes.yaml" },
    { name = "rsvd", offset = 16, width = 16, allowed = { 0 }, meaning = "reserved" },
  } },
  { name = "PATH_PROBE", length = 4, opcode = 0x68, layout = { "CBH", "PATH_PROBE", "crc" }, fields = {
    { name = "highest_psn", offset = 0, width = 32, meaning = "highest PSN sent on the path in the epoch; the one before its first PSN if none was" },
  } },
  { name = "PATH_PROBE_ACK", length = 48, opcode = 0x69, layout = { "CBH", "PATH_PROBE_ACK", "crc" }, fields = {
    { name = "timestamp_echo", offset = 0, width = 32, meaning = "timestamp of the probe" },
    { name = "cum_psn", offset = 32, width = 32, meaning = "highest PSN up to which nothing is missing" },
    { name = "highest_psn", offset = 64, width = 32, meaning = "HighestPSN of the probe" },
    { name = "hint_epoch", offset = 96, width = 8, meaning = "number of the rate hint; 0 from a side that sends no hints" },
    { name = "rate_hint", offset = 104, width = 24, meaning = "rate allotted to the connection, Mb/s; 0 pauses new data; ffffff for no limit" },
    { name = "sack", offset = 128, width = 256, meaning = "bit i, most significant first, stands for CumPSN + 1 + i; bit 0 is 0" },
  } },
  { name = "PATH_CHANGE", length = 8, opcode = 0x6a, layout = { "CBH", "PATH_CHANGE", "crc" }, fields = {
    { name = "source_port", offset = 0, width = 16, min = 1, meaning = "UDP source port of the path from now on" },
    { name = "plane", offset = 16, width = 8, max = 7, meaning = "plane of the path from now on" },
    { name = "rsvd", offset = 24, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "next_psn", offset = 32, width = 32, meaning = "first new PSN on the new route" },
  } },
  { name = "PATH_RETIRE", length = 8, opcode = 0x6b, layout = { "CBH", "PATH_RETIRE", "crc" }, fields = {
    { name = "highest_psn", offset = 0, width = 32, meaning = "highest PSN sent on the path in the epoch; the one before its first PSN if none was" },
    { name = "reason", offset = 32, width = 8, meaning = "see codes.yaml" },
    { name = "rsvd", offset = 40, width = 24, allowed = { 0 }, meaning = "reserved" },
  } },
  { name = "PATH_RETIRED", length = 36, opcode = 0x6c, layout = { "CBH", "PATH_RETIRED", "crc" }, fields = {
    { name = "cum_psn", offset = 0, width = 32, meaning = "final CumPSN of the epoch" },
    { name = "sack", offset = 32, width = 256, meaning = "final vector: bit i, most significant first, stands for CumPSN + 1 + i; bit 0 is 0" },
  } },
  { name = "RATE_HINT", length = 4, opcode = 0x6d, layout = { "CBH", "RATE_HINT", "crc" }, fields = {
    { name = "hint_epoch", offset = 0, width = 8, meaning = "number of the rate hint" },
    { name = "rate_hint", offset = 8, width = 24, meaning = "rate allotted to the connection, Mb/s; 0 pauses new data; ffffff for no limit" },
  } },
  { name = "RQ_CREDIT", length = 8, opcode = 0x6e, layout = { "CBH", "RQ_CREDIT", "crc" }, fields = {
    { name = "stream", offset = 0, width = 16, meaning = "the stream" },
    { name = "kind", offset = 16, width = 8, max = 1, meaning = "see codes.yaml" },
    { name = "rsvd_a", offset = 24, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "rq_limit", offset = 32, width = 16, meaning = "first RQSN without a posted receive; 0 where it asks" },
    { name = "rsvd_b", offset = 48, width = 16, allowed = { 0 }, meaning = "reserved" },
  } },
  { name = "STREAM_RESET", length = 8, opcode = 0x6f, layout = { "CBH", "STREAM_RESET", "crc" }, fields = {
    { name = "stream", offset = 0, width = 16, meaning = "the stream" },
    { name = "code", offset = 16, width = 8, meaning = "code of the NAK that led to it; 0 where none did" },
    { name = "rsvd_a", offset = 24, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "msn", offset = 32, width = 24, meaning = "message that the NAK has named; 0 where code is 0" },
    { name = "rsvd_b", offset = 56, width = 8, allowed = { 0 }, meaning = "reserved" },
  } },
  { name = "STREAM_RESET_ACK", length = 4, opcode = 0x70, layout = { "CBH", "STREAM_RESET_ACK", "crc" }, fields = {
    { name = "stream", offset = 0, width = 16, meaning = "the stream" },
    { name = "rsvd", offset = 16, width = 16, allowed = { 0 }, meaning = "reserved" },
  } },
  { name = "STREAM_OPEN", length = 20, opcode = 0x72, layout = { "CBH", "STREAM_OPEN", "crc" }, fields = {
    { name = "stream", offset = 0, width = 16, meaning = "the stream" },
    { name = "status", offset = 16, width = 16, meaning = "see codes.yaml" },
    { name = "rsvd_a", offset = 32, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "first_msn", offset = 40, width = 24, meaning = "first MSN in both directions" },
    { name = "first_rqsn", offset = 64, width = 16, meaning = "first RQSN in both directions" },
    { name = "rq_limit", offset = 80, width = 16, meaning = "first RQSN for which the sender of this packet has posted no receive" },
    { name = "rsvd_b", offset = 96, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "src_qpn", offset = 104, width = 24, meaning = "queue pair of the sender of this packet" },
    { name = "rsvd_c", offset = 128, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "dst_qpn", offset = 136, width = 24, meaning = "queue pair of its receiver; 0 where not known" },
  } },
  { name = "STREAM_OPEN_ACK", length = 20, opcode = 0x73, layout = { "CBH", "STREAM_OPEN_ACK", "crc" }, fields = {
    { name = "stream", offset = 0, width = 16, meaning = "the stream" },
    { name = "status", offset = 16, width = 16, meaning = "see codes.yaml" },
    { name = "rsvd_a", offset = 32, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "first_msn", offset = 40, width = 24, meaning = "first MSN in both directions" },
    { name = "first_rqsn", offset = 64, width = 16, meaning = "first RQSN in both directions" },
    { name = "rq_limit", offset = 80, width = 16, meaning = "first RQSN for which the sender of this packet has posted no receive" },
    { name = "rsvd_b", offset = 96, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "src_qpn", offset = 104, width = 24, meaning = "queue pair of the sender of this packet" },
    { name = "rsvd_c", offset = 128, width = 8, allowed = { 0 }, meaning = "reserved" },
    { name = "dst_qpn", offset = 136, width = 24, meaning = "queue pair of its receiver; 0 where not known" },
  } },
}
local CODES = {
  { name = "opcodes", field = "CBH.opcode", width = 8, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x1, name = "SEND", meaning = "two-sided message" },
    { code = 0x2, name = "SEND_IMM", meaning = "two-sided message with immediate data" },
    { code = 0x3, name = "SEND_INV", meaning = "two-sided message that invalidates a key" },
    { code = 0x4, name = "WRITE", meaning = "one-sided write" },
    { code = 0x5, name = "WRITE_IMM", meaning = "one-sided write with immediate data" },
    { code = 0x6, name = "READ_REQ", meaning = "asks for remote bytes" },
    { code = 0x7, name = "CMP_SWAP", meaning = "compare and swap" },
    { code = 0x8, name = "FETCH_ADD", meaning = "fetch and add" },
    { code = 0x9, name = "FILL", meaning = "takes a PSN and carries nothing" },
    { code = 0x20, name = "READ_RESP", meaning = "answer to READ_REQ" },
    { code = 0x21, name = "ATOMIC_RESP", meaning = "answer to an atomic request" },
    { code = 0x40, name = "ACK", meaning = "acknowledgment without a gap" },
    { code = 0x41, name = "ACK_SACK", meaning = "acknowledgment with the vector" },
    { code = 0x42, name = "NAK", meaning = "refusal of a packet" },
    { code = 0x60, name = "OPEN", meaning = "asks for a connection" },
    { code = 0x61, name = "ACCEPT", meaning = "answer to OPEN" },
    { code = 0x62, name = "REJECT", meaning = "refusal of OPEN or CONFIRM" },
    { code = 0x63, name = "CONFIRM", meaning = "echo of cookie and parameters" },
    { code = 0x64, name = "CLOSE", meaning = "end of new requests" },
    { code = 0x65, name = "CLOSE_ACK", meaning = "answer to CLOSE" },
    { code = 0x66, name = "CONFIRM_ACK", meaning = "answer to CONFIRM" },
    { code = 0x68, name = "PATH_PROBE", meaning = "asks what has arrived on a path" },
    { code = 0x69, name = "PATH_PROBE_ACK", meaning = "answer to PATH_PROBE" },
    { code = 0x6a, name = "PATH_CHANGE", meaning = "tells of a new route of a path" },
    { code = 0x6b, name = "PATH_RETIRE", meaning = "gives up a path at its epoch" },
    { code = 0x6c, name = "PATH_RETIRED", meaning = "answer to PATH_RETIRE" },
    { code = 0x6d, name = "RATE_HINT", meaning = "a rate hint by itself" },
    { code = 0x6e, name = "RQ_CREDIT", meaning = "asks for or tells posted receives" },
    { code = 0x6f, name = "STREAM_RESET", meaning = "ends a stream" },
    { code = 0x70, name = "STREAM_RESET_ACK", meaning = "answer to STREAM_RESET" },
    { code = 0x72, name = "STREAM_OPEN", meaning = "opens a stream" },
    { code = 0x73, name = "STREAM_OPEN_ACK", meaning = "answer to STREAM_OPEN" },
  } },
  { name = "flags", field = "CBH.flags", width = 8, kind = "flags", reserved = 0xf, entries = {
    { code = 0x80, name = "AR", meaning = "an acknowledgment is asked for" },
    { code = 0x40, name = "RTX", meaning = "a retransmission" },
    { code = 0x20, name = "SE", meaning = "a solicited event is asked for" },
    { code = 0x10, name = "RTXE", meaning = "on an acknowledgment: its trigger had RTX set" },
  } },
  { name = "mflags", field = "MSGH.mflags", width = 8, kind = "flags", reserved = 0xb, entries = {
    { code = 0x80, name = "SOM", meaning = "start of the message" },
    { code = 0x40, name = "EOM", meaning = "end of the message" },
    { code = 0x20, name = "IMM", meaning = "the message has immediate data" },
    { code = 0x10, name = "INV", meaning = "the message invalidates a key" },
    { code = 0x4, name = "RESP", meaning = "a response to a Read or an atomic request" },
  } },
  { name = "ack_flags", field = "ACK.ack_flags", width = 16, kind = "flags", reserved = 0x1fff, entries = {
    { code = 0x8000, name = "ECHO_VALID", meaning = "the timestamp echo holds a sample" },
    { code = 0x4000, name = "DUPLICATE_SEEN", meaning = "a duplicate has arrived since the acknowledgment before" },
    { code = 0x2000, name = "OUT_OF_WINDOW_SEEN", meaning = "a packet outside the window has come since the acknowledgment before" },
  } },
  { name = "nak_codes", field = "NAK.code", width = 8, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x1, name = "PSN_OOW", meaning = "the PSN lies outside the window" },
    { code = 0x2, name = "RNR", meaning = "a promised receive is not posted" },
    { code = 0x3, name = "NO_RESOURCE", meaning = "a limit of the receiver is reached" },
    { code = 0x10, name = "REM_INV_REQ", meaning = "the request is not valid" },
    { code = 0x11, name = "REM_ACCESS", meaning = "key, bounds or permission do not allow the access" },
    { code = 0x12, name = "REM_OP", meaning = "the request has failed at the receiver" },
    { code = 0x13, name = "LENGTH", meaning = "the message is longer than its receive" },
    { code = 0x20, name = "VERSION", meaning = "the version is not spoken" },
    { code = 0x21, name = "UNKNOWN_CID", meaning = "the connection id is not known" },
    { code = 0x22, name = "CLOSING", meaning = "the connection is closing" },
    { code = 0x23, name = "BAD_EPOCH", meaning = "the epoch of the path is over" },
  } },
  { name = "nak_scopes", field = "NAK.scope", width = 8, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x0, name = "PACKET", meaning = "the packet alone" },
    { code = 0x1, name = "STREAM", meaning = "its stream" },
    { code = 0x2, name = "PATH", meaning = "its path" },
    { code = 0x3, name = "CONNECTION", meaning = "the connection" },
  } },
  { name = "reject_reasons", field = "REJECT.reason", width = 8, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x1, name = "VERSION", meaning = "no common version" },
    { code = 0x2, name = "NO_SERVICE", meaning = "no such service" },
    { code = 0x3, name = "NO_RESOURCE", meaning = "a limit of the acceptor is reached" },
    { code = 0x4, name = "BAD_PARAMETERS", meaning = "a parameter is not acceptable" },
    { code = 0x5, name = "BAD_COOKIE", meaning = "the cookie does not fit or is too old" },
  } },
  { name = "close_reasons", field = "CLOSE.reason", width = 16, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x0, name = "DONE", meaning = "the work is done" },
    { code = 0x1, name = "ERROR", meaning = "an error has ended the connection" },
    { code = 0x2, name = "GOING_AWAY", meaning = "the endpoint is shutting down" },
  } },
  { name = "credit_kinds", field = "RQ_CREDIT.kind", width = 8, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x0, name = "ASK", meaning = "asks for the limit" },
    { code = 0x1, name = "TELL", meaning = "tells the limit" },
  } },
  { name = "stream_statuses", field = "STREAM_OPEN_ACK.status", width = 16, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x0, name = "OK", meaning = "the stream is open" },
    { code = 0x1, name = "NO_RESOURCE", meaning = "no further stream is possible" },
    { code = 0x2, name = "IN_USE", meaning = "the stream id is in use" },
  } },
  { name = "features", field = "PARAMS.features", width = 16, kind = "flags", reserved = 0x7ff, entries = {
    { code = 0x8000, name = "IMM", meaning = "takes messages with immediate data" },
    { code = 0x4000, name = "INV", meaning = "takes Sends that invalidate a key" },
    { code = 0x2000, name = "RESET", meaning = "ends a stream alone: STREAM_RESET and FILL" },
    { code = 0x1000, name = "RETIRE", meaning = "gives up paths: PATH_RETIRE and epochs" },
    { code = 0x800, name = "CHANGE", meaning = "takes note of routes: PATH_CHANGE" },
  } },
  { name = "retire_reasons", field = "PATH_RETIRE.reason", width = 8, kind = "enumeration", reserved = 0x0, entries = {
    { code = 0x0, name = "FAILED", meaning = "nothing is acknowledged on it any more" },
    { code = 0x1, name = "PLANE", meaning = "its plane is down" },
    { code = 0x2, name = "LOCAL", meaning = "the sender has other reasons" },
  } },
}
-- END GENERATED

local metaroce = Proto("metaroce", "MetaRoCE Transport (" .. PROFILE .. ")")

-- Numbers ------------------------------------------------------------------------------------------------------------

local floor, format, byte = math.floor, string.format, string.byte
local concat = table.concat

-- Lua 5.2 has bit32, LuaJIT and older builds bit; from 5.3 on there are operators, which older ones cannot even read.
local bxor, band
do
  local library = rawget(_G, "bit32") or rawget(_G, "bit")
  if library then
    bxor, band = library.bxor, library.band
  else
    local make = load(
      "return function(a, b, c) return (a ~ b ~ (c or 0)) & 0xffffffff end, function(a, b) return a & b end"
    )
    bxor, band = make()
  end
end

local TWO32, TWO31 = 4294967296, 2147483648

-- How far `a` is ahead of `b`, as serial numbers: from -2^31 to 2^31 - 1.
local function ahead(a, b)
  local distance = (a - b) % TWO32
  return distance < TWO31 and distance or distance - TWO32
end

local function hex8(number)
  return format("%08x", number)
end

-- The number in `width` bytes of the string `text` from `at`, counted from 0; nil if they are not all there.
local function number_at(text, at, width)
  local a, b, c, d = byte(text, at + 1, at + width)
  if width == 1 then
    return a
  elseif width == 2 then
    return b and a * 256 + b
  elseif width == 3 then
    return c and a * 65536 + b * 256 + c
  end
  return d and a * 16777216 + b * 65536 + c * 256 + d
end

-- CRC-32C, four bytes in one step. The two tables have 65536 entries each and are made at the first packet.
local crc_32c
do
  local single, low, high
  local unpack = Struct and Struct.unpack or string.unpack

  local function make_tables()
    local one, two, three = {}, {}, {}
    single = {}
    for i = 0, 255 do
      local crc = i
      for _ = 1, 8 do
        local odd = crc % 2
        crc = floor(crc / 2)
        if odd == 1 then
          crc = bxor(crc, 0x82f63b78) % TWO32
        end
      end
      single[i] = crc
    end
    local function further(table)
      local result = {}
      for i = 0, 255 do
        local crc = table[i]
        result[i] = bxor(floor(crc / 256), single[crc % 256]) % TWO32
      end
      return result
    end
    one = further(single)
    two = further(one)
    three = further(two)
    low, high = {}, {}
    for i = 0, 255 do
      for k = 0, 255 do
        low[k * 256 + i] = bxor(three[i], two[k]) % TWO32
        high[k * 256 + i] = bxor(one[i], single[k]) % TWO32
      end
    end
  end

  function crc_32c(text)
    if not single then
      make_tables()
    end
    local low, high, bxor = low, high, bxor
    local size = #text
    local words = size - size % 16
    local crc = 0xffffffff
    local rest
    for at = 1, words, 16 do
      local w1, w2, w3, w4 = unpack("<I4I4I4I4", text, at)
      crc = bxor(crc, w1)
      rest = crc % 65536
      crc = bxor(low[rest], high[(crc - rest) / 65536 % 65536], w2)
      rest = crc % 65536
      crc = bxor(low[rest], high[(crc - rest) / 65536 % 65536], w3)
      rest = crc % 65536
      crc = bxor(low[rest], high[(crc - rest) / 65536 % 65536], w4)
      rest = crc % 65536
      crc = bxor(low[rest], high[(crc - rest) / 65536 % 65536])
    end
    crc = crc % TWO32
    for at = words + 1, size do
      crc = bxor(floor(crc / 256), single[bxor(crc % 256, byte(text, at))]) % TWO32
    end
    return TWO32 - 1 - crc
  end
end

-- Tables to fields ---------------------------------------------------------------------------------------------------

local table_of, code_of = {}, {}
for _, spec in ipairs(TABLES) do
  table_of[spec.name] = spec
end
for _, space in ipairs(CODES) do
  space.named = {}
  space.by_name = {}
  for _, entry in ipairs(space.entries) do
    space.named[entry.code] = entry.name
    space.by_name[entry.name] = entry.code
  end
  code_of[space.field] = space
end
-- Fields that share the code points of another one.
code_of["CLOSE_ACK.reason"] = code_of["CLOSE.reason"]
code_of["STREAM_OPEN.status"] = code_of["STREAM_OPEN_ACK.status"]
code_of["STREAM_RESET.code"] = code_of["NAK.code"]

local FLAG = code_of["CBH.flags"].by_name
local MFLAG = code_of["MSGH.mflags"].by_name
local NAK_CODE = code_of["NAK.code"].by_name

-- How the names of fields are written for people, where capitals alone do not do.
local WORDS = {
  psn = "PSN", dcid = "DCID", scid = "SCID", msn = "MSN", rqsn = "RQSN", va = "VA", rkey = "RKey", isn = "ISN",
  ce = "CE", ect = "ECT", sack = "SACK", rq = "RQ", cum = "Cum", qpn = "QPN", ts = "Timestamp", msg = "Message",
  src = "source", dst = "destination", imm = "Immediate data", ver = "Version", rsvd = "Reserved", ack = "ACK",
  mflags = "Message flags", len = "Message length", offset = "Message offset", id = "id",
}
local HEADER_NAMES = {
  CBH = "Common base header", MSGH = "Message header", TAGH = "Tagged placement header", ATOMIC = "Atomic operands",
  params = "Parameters", planes = "Planes", accepted = "Accepted parameters", accepted_planes = "Accepted planes",
}
local HEXADECIMAL = {
  opcode = true, flags = true, mflags = true, ack_flags = true, features = true, dcid = true, scid = true, psn = true,
  cum_psn = true, highest_psn = true, next_psn = true, offending_psn = true, isn = true, va = true, rkey = true,
  imm = true, nonce = true, swap_or_add = true, compare = true, original = true, detail = true, service_id = true,
  src_qpn = true, dst_qpn = true,
}
-- Limits of the parameters are judged by the endpoint, which answers with REJECT.
local function is_parameter(field)
  return field.spec == "PARAMS" and field.name ~= "rsvd_a"
end

local function label(name)
  local words = {}
  for word in name:gmatch("[^_]+") do
    words[#words + 1] = WORDS[word] or word
  end
  local text = concat(words, " ")
  return text:sub(1, 1):upper() .. text:sub(2)
end

local proto_fields = {}
local function register(field)
  proto_fields[#proto_fields + 1] = field
  return field
end

local function value_field(name, text, field, codes)
  local width = field.width
  local names = codes and codes.kind == "enumeration" and codes.named or nil
  local display = HEXADECIMAL[field.name] and base.HEX or base.DEC
  if codes and codes.kind == "enumeration" and field.name ~= "opcode" then
    display = base.DEC
  end
  local meaning = field.meaning
  if width == 128 and field.spec == "PLANES" then
    return ProtoField.ipv6(name, text, meaning)
  elseif width > 64 then
    return ProtoField.bytes(name, text, base.NONE, meaning)
  elseif width > 32 then
    return ProtoField.uint64(name, text, display, nil, nil, meaning)
  elseif width > 24 then
    return ProtoField.uint32(name, text, display, names, nil, meaning)
  elseif width > 16 then
    return ProtoField.uint24(name, text, display, names, nil, meaning)
  elseif width > 8 then
    return ProtoField.uint16(name, text, display, names, nil, meaning)
  end
  return ProtoField.uint8(name, text, display, names, field.mask, meaning)
end

-- A field of a table at a place in a packet, ready to be shown.
local function make_field(spec, layer, field)
  local made = {
    name = field.name, spec = spec.name, layer = layer, width = field.width, meaning = field.meaning,
    at = floor(field.offset / 8), size = math.ceil((field.offset % 8 + field.width) / 8),
    allowed = field.allowed, min = field.min, max = field.max,
    key = layer .. "." .. field.name,
  }
  if field.width % 8 ~= 0 then
    made.divisor = 2 ^ (made.size * 8 - field.offset % 8 - field.width)
    made.modulus = 2 ^ field.width
    made.mask = floor((made.modulus - 1) * made.divisor)
  end
  local codes = code_of[spec.name .. "." .. field.name]
  made.codes = codes
  made.limited = (field.allowed or field.min or field.max or codes and codes.kind == "flags") and true or false
  local name = "metaroce." .. layer:lower() .. "." .. field.name
  made.proto = register(value_field(name, label(field.name), made, codes))
  if codes and codes.kind == "flags" then
    made.bits = {}
    for index, entry in ipairs(codes.entries) do
      made.bits[index] = {
        code = entry.code, name = entry.name,
        proto = register(ProtoField.bool(
          name .. "." .. entry.name:lower(), entry.name, field.width, nil, entry.code, entry.meaning
        )),
      }
    end
  end
  return made
end

-- One set of fields for each layer: a table, or the field that holds a whole table.
local layers = {}
local function layer_of(spec, layer)
  if not layers[layer] then
    local made = { name = layer, length = spec.length, title = HEADER_NAMES[layer] or spec.name, parts = {} }
    layers[layer] = made
    for _, field in ipairs(spec.fields) do
      local inner = field.table and table_of[field.table]
      if inner then
        made.parts[#made.parts + 1] = { at = floor(field.offset / 8), layer = layer_of(inner, field.name) }
      else
        made.parts[#made.parts + 1] = { at = 0, field = make_field(spec, layer, field) }
      end
    end
  end
  return layers[layer]
end

-- What each packet is made of, by opcode.
local packets = {}
for _, spec in ipairs(TABLES) do
  if spec.opcode then
    local packet = { name = spec.name, headers = {} }
    for _, part in ipairs(spec.layout) do
      if table_of[part] then
        packet.headers[#packet.headers + 1] = layer_of(table_of[part], part)
        packet[part] = true
      elseif part == "payload" then
        packet.payload = true
      end
    end
    packets[spec.opcode] = packet
  else
    -- Headers that stand in no layout by themselves get their fields from those that hold them.
    local held = spec.name == "PARAMS" or spec.name == "PLANES"
    if not held then
      layer_of(spec, spec.name)
    end
  end
end

local f = {
  payload = ProtoField.bytes("metaroce.payload", "Payload", base.NONE, "the bytes of the message"),
  padding = ProtoField.bytes("metaroce.padding", "Padding", base.NONE, "zero bytes that fill the last word"),
  unknown = ProtoField.bytes("metaroce.unknown.bytes", "Bytes", base.NONE, "what an unknown packet holds"),
  rest = ProtoField.bytes("metaroce.rest", "Rest", base.NONE, "bytes that belong to no header"),
  crc = ProtoField.uint32("metaroce.crc", "CRC-32C", base.HEX, nil, nil, "over pseudo-header and packet"),
  crc_computed = ProtoField.uint32("metaroce.crc.computed", "Computed", base.HEX, nil, nil, "what it should be"),
  crc_status = ProtoField.uint8("metaroce.crc.status", "Status", base.DEC, { [0] = "Bad", "Good", "Unverified" }),
  kind = ProtoField.string("metaroce.malformed.kind", "Rule broken", base.ASCII, "as in vectors/README.md"),
  sack_count = ProtoField.uint16("metaroce.sack.count", "Present", base.DEC, nil, nil, "bits set in the vector"),
  sack_present = ProtoField.string("metaroce.sack.present", "PSNs present", base.ASCII, "beyond the cumulative one"),
  sack_missing = ProtoField.string("metaroce.sack.missing", "PSNs missing", base.ASCII, "up to the last one present"),
  connection = ProtoField.uint32("metaroce.connection", "Connection", base.DEC, nil, nil, "number within this capture"),
  original = ProtoField.framenum("metaroce.original_frame", "Sent first in", base.NONE, frametype.RETRANS_PREV),
  retransmission = ProtoField.framenum(
    "metaroce.retransmission_frame", "Sent again in", base.NONE, frametype.RETRANS_NEXT
  ),
  acks = ProtoField.framenum("metaroce.acks_frame", "Acknowledges first", base.NONE, frametype.ACK),
  acks_count = ProtoField.uint32("metaroce.acks_count", "Frames acknowledged first", base.DEC),
  acked = ProtoField.framenum("metaroce.acked_in", "Acknowledged in", base.NONE, frametype.ACK),
  ack_time = ProtoField.relative_time("metaroce.ack_time", "Time until the acknowledgment"),
  request = ProtoField.framenum("metaroce.response_to", "Response to", base.NONE, frametype.REQUEST),
  response = ProtoField.framenum("metaroce.response_in", "Response in", base.NONE, frametype.RESPONSE),
  response_time = ProtoField.relative_time("metaroce.response_time", "Time since the request"),
  refuses = ProtoField.framenum("metaroce.nak_of", "Refuses", base.NONE, frametype.REQUEST),
  refused = ProtoField.framenum("metaroce.nak_in", "Refused in", base.NONE, frametype.RESPONSE),
}
for _, field in pairs(f) do
  register(field)
end
metaroce.fields = proto_fields

local e = {
  malformed = ProtoExpert.new("metaroce.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR),
  crc = ProtoExpert.new("metaroce.crc.bad", "Bad CRC", expert.group.CHECKSUM, expert.severity.ERROR),
  cut = ProtoExpert.new("metaroce.cut", "Cut by the capture", expert.group.UNDECODED, expert.severity.NOTE),
  unknown = ProtoExpert.new("metaroce.unknown", "Unknown opcode", expert.group.UNDECODED, expert.severity.NOTE),
  parameter = ProtoExpert.new("metaroce.parameter", "Parameter", expert.group.PROTOCOL, expert.severity.WARN),
  again = ProtoExpert.new("metaroce.retransmission", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
  twice = ProtoExpert.new("metaroce.duplicate", "Duplicate", expert.group.SEQUENCE, expert.severity.NOTE),
  unseen = ProtoExpert.new("metaroce.ack_unseen", "Acknowledges unseen", expert.group.SEQUENCE, expert.severity.WARN),
  refusal = ProtoExpert.new("metaroce.refusal", "Refusal", expert.group.RESPONSE_CODE, expert.severity.WARN),
}
local experts = {}
for _, info in pairs(e) do
  experts[#experts + 1] = info
end
metaroce.experts = experts

local prefs = metaroce.prefs
prefs.port = Pref.range("UDP ports", "49200", "UDP ports on which MetaRoCE is received", 65535)
prefs.crc = Pref.bool("Check the CRC", true, "Compute the CRC-32C of every packet")
prefs.apart = Pref.bool(
  "Keep interfaces apart", true,
  "Look for links within an interface, for captures that show packets at several points. Turn it off where an endpoint "
    .. "uses several interfaces, each with packets that the others do not show"
)

local from_ip = { src = Field.new("ip.src"), dst = Field.new("ip.dst") }
local from_ipv6 = { src = Field.new("ipv6.src"), dst = Field.new("ipv6.dst") }
local interface_id = Field.new("frame.interface_id")
-- A tap with a filter makes Wireshark keep that field at hand when it reads a file first.
local interface_tap = Listener.new("frame", "frame.interface_id")
function interface_tap.packet() end

-- Rules that a packet keeps on its own -------------------------------------------------------------------------------

local function fault(p, kind, text)
  p.faults[#p.faults + 1] = { kind = kind, text = text }
end

local function value_fault(p, kind, key, rule)
  local value = p[key]
  local shown = type(value) == "number" and format(" is 0x%x", value) or ""
  fault(p, kind, key .. shown .. ": " .. rule)
end

-- Rules of messages by packet: the one flag it has to have, whether it uses a receive, immediate data, one packet.
local MESSAGES = {
  SEND = { flag = 0, receive = true },
  SEND_IMM = { flag = MFLAG.IMM, receive = true },
  SEND_INV = { flag = MFLAG.INV, receive = true },
  WRITE = { flag = 0 },
  WRITE_IMM = { flag = MFLAG.IMM, receive = true, immediate = true },
  READ_REQ = { flag = 0, single = true },
  CMP_SWAP = { flag = 0, single = true, atomic = true },
  FETCH_ADD = { flag = 0, single = true, atomic = true, no_compare = true },
  READ_RESP = { flag = MFLAG.RESP },
  ATOMIC_RESP = { flag = MFLAG.RESP, single = true, atomic = true },
  FILL = { empty = true },
}
-- Control that names a path.
local NAMES_PATH = {
  PATH_PROBE = true, PATH_PROBE_ACK = true, PATH_CHANGE = true, PATH_RETIRE = true, PATH_RETIRED = true,
}

local function check_limits(p, field, value)
  local name = field.name
  if field.codes and field.codes.kind == "flags" then
    if field.spec ~= "PARAMS" and band(value, field.codes.reserved) ~= 0 then
      value_fault(p, "reserved_flags", field.key, "reserved flags are zero")
    end
    return
  end
  local allowed = not field.allowed
  for _, one in ipairs(field.allowed or {}) do
    allowed = allowed or one == value
  end
  if allowed and value >= (field.min or 0) and value <= (field.max or value) then
    return
  end
  if field.key == "CBH.version" then
    -- OPEN and REJECT look the same in every version.
    if p.name ~= "OPEN" and p.name ~= "REJECT" then
      value_fault(p, "unknown_version", field.key, "this is version 1")
    end
  elseif name:match("^rsvd") then
    value_fault(p, "reserved_nonzero", field.key, "a reserved field is zero")
  elseif is_parameter(field) then
    p.parameters[#p.parameters + 1] = format("%s is %d, which its table does not allow", field.key, value)
  elseif field.key == "MSGH.len" then
    value_fault(p, "message_too_long", field.key, "a message is at most 2^31 bytes")
  else
    value_fault(p, "limit", field.key, "the field keeps the limits of its table")
  end
end

local function check_wide(p, field, text)
  if field.allowed and text:find("[^%z]") then
    local kind = field.name:match("^rsvd") and "reserved_nonzero" or "padding_nonzero"
    fault(p, kind, field.key .. ": all of it is zero")
  elseif field.name == "sack" and byte(text, 1) >= 128 then
    fault(p, "sack_bit_zero", field.key .. ": bit 0 of the vector is zero")
  end
end

local function flag_is(p, flag)
  return band(p["MSGH.mflags"], flag) ~= 0
end

local function check_message(p, rules)
  local offset, len = p["MSGH.offset"], p["MSGH.len"]
  local payload = p.payload_size
  if p.packet.payload then
    if (payload + p["CBH.pad"]) % 4 ~= 0 then
      value_fault(p, "misaligned", "CBH.pad", "payload and padding fill whole words")
    end
    if offset + payload > len then
      value_fault(p, "outside_message", "MSGH.offset", "the payload lies inside the message")
    end
    if payload == 0 and len ~= 0 then
      value_fault(p, "empty_payload", "MSGH.len", "only an empty message has an empty packet")
    end
  end
  local kinds = MFLAG.IMM + MFLAG.INV + MFLAG.RESP
  if band(p["MSGH.mflags"], kinds) ~= (rules.flag or 0) then
    value_fault(p, "flag_not_allowed", "MSGH.mflags", "IMM, INV and RESP match the opcode")
  end
  if rules.single and offset ~= 0 then
    value_fault(p, "fixed_value", "MSGH.offset", "the message is one packet")
  end
  if rules.atomic and len ~= 8 then
    value_fault(p, "fixed_value", "MSGH.len", "an atomic concerns 8 bytes")
  end
  if rules.empty then
    for _, key in ipairs({ "MSGH.mflags", "MSGH.msn", "MSGH.offset", "MSGH.len" }) do
      if p[key] ~= 0 then
        value_fault(p, "fixed_value", key, "it is 0 on FILL")
      end
    end
  else
    local last = rules.single or offset + payload == len
    if flag_is(p, MFLAG.SOM) ~= (offset == 0) then
      value_fault(p, "wrong_som", "MSGH.mflags", "SOM stands at offset 0 and nowhere else")
    end
    if flag_is(p, MFLAG.EOM) ~= last then
      value_fault(p, "wrong_eom", "MSGH.mflags", "EOM stands at the end of the message and nowhere else")
    end
  end
  if not rules.receive and p["MSGH.rqsn"] ~= 0 then
    value_fault(p, "rqsn_nonzero", "MSGH.rqsn", "the packet consumes no receive")
  end
  if p.packet.TAGH then
    if not rules.immediate and p["TAGH.imm"] ~= 0 then
      value_fault(p, "immediate_nonzero", "TAGH.imm", "only WRITE_IMM has immediate data")
    end
    local high, low = number_at(p.raw, 32, 4), number_at(p.raw, 36, 4)
    if high == TWO32 - 1 and low + len >= TWO32 then
      fault(p, "address_wraps", "TAGH.va: address and length stay inside 64 bits")
    end
    if rules.atomic and low % 8 ~= 0 then
      fault(p, "unaligned_address", "TAGH.va: the address of an atomic is a multiple of 8")
    end
  end
  if rules.no_compare and p.raw:sub(57, 64):find("[^%z]") then
    fault(p, "fixed_value", "ATOMIC.compare: it is 0 on FETCH_ADD")
  end
end

-- The rules that concern more than one field, once all headers are there.
local function check_packet(p)
  local name = p.name
  if not p.packet.payload and p["CBH.pad"] ~= 0 then
    value_fault(p, "unexpected_pad", "CBH.pad", "only payload is padded")
  end
  if p.opcode >= 0x60 and p.opcode <= 0x7f and not NAMES_PATH[name] then
    if p["CBH.path"] ~= 0 then
      value_fault(p, "path_nonzero", "CBH.path", "the packet names no path")
    end
    if p["CBH.epoch"] ~= 0 then
      value_fault(p, "epoch_nonzero", "CBH.epoch", "the packet names no epoch")
    end
  end
  local unknown = name == "NAK" and p["NAK.code"] == NAK_CODE.UNKNOWN_CID
  if (name == "OPEN" or unknown) and p["CBH.dcid"] ~= 0 then
    value_fault(p, "dcid_nonzero", "CBH.dcid", "no connection id is known")
  elseif name == "NAK" and not unknown and p["CBH.dcid"] == 0 then
    value_fault(p, "dcid_zero", "CBH.dcid", "only a NAK UNKNOWN_CID names no connection")
  elseif name == "STREAM_RESET" and p["STREAM_RESET.code"] == 0 and p["STREAM_RESET.msn"] ~= 0 then
    value_fault(p, "fixed_value", "STREAM_RESET.msn", "it is 0 where no NAK is named")
  end
  local rules = MESSAGES[name]
  if rules then
    check_message(p, rules)
  end
end

-- State of the capture -----------------------------------------------------------------------------------------------

-- A flow is what goes to one connection id from one address to another, seen at one interface. The flow that goes back
-- is its peer. Flows are built when frames are seen first; what was found for a frame stays with its number.
local state

-- PSNs behind the highest that a path remembers, and transactions that a flow remembers. A window has 256 packets.
local KEPT = 1024
local KEPT_TRANSACTIONS = 1024

local function reset()
  state = { flows = {}, backwards = {}, siblings = {}, results = {}, addresses = {}, connections = 0 }
end
reset()
metaroce.init = reset

local function result_of(frame)
  local result = state.results[frame]
  if not result then
    result = {}
    state.results[frame] = result
  end
  return result
end

-- Connections are numbered when their first flow is seen. Two that turn out to be one keep the lower number.
local function root(connection)
  while connection.merged do
    connection = connection.merged
  end
  return connection
end

local function merge(a, b)
  a, b = root(a), root(b)
  if a ~= b then
    if a.number < b.number then
      a, b = b, a
    end
    a.merged = b
  end
end

-- A new flow under `key`. `nonce` tells apart connections that use the same id one after the other.
local function new_flow(p, key, direction, nonce)
  local siblings = state.siblings[key]
  if not siblings then
    siblings = {}
    state.siblings[key] = siblings
  end
  local flow = { interface = p.interface, nonce = nonce, siblings = siblings, paths = {}, waiting = {}, order = {} }
  for index = #siblings, 1, -1 do
    local other = siblings[index]
    if other.interface == p.interface then
      table.remove(siblings, index)
    elseif other.nonce == nonce then
      flow.connection = other.connection
    end
  end
  siblings[#siblings + 1] = flow
  if not flow.connection then
    flow.connection = { number = state.connections }
    state.connections = state.connections + 1
  end
  state.flows[p.interface .. key] = flow
  local pair = p.interface .. direction
  local flows = state.backwards[pair]
  if not flows then
    flows = {}
    state.backwards[pair] = flows
  end
  flows[#flows + 1] = flow
  return flow
end

local function key_of(direction, id)
  return direction .. format("%06x", id)
end

local function pair_up(flow, peer)
  flow.peer, peer.peer = peer, flow
  merge(flow.connection, peer.connection)
end

-- The same two flows between the addresses of the further planes.
local function alias_planes(p, flow, ours, theirs, id)
  for at = 1, #ours - 15, 16 do
    local from, to = ours:sub(at, at + 15), theirs:sub(at, at + 15)
    if from:find("[^%z]") and to:find("[^%z]") then
      state.flows[p.interface .. key_of(from .. to, id)] = flow
    end
  end
end

-- What OPEN, ACCEPT and CONFIRM tell about the ids of both directions.
local function learn(p)
  local interface = p.interface
  if p.name == "OPEN" then
    local key = key_of(p.back, p["params.scid"])
    local nonce = p.raw:sub(25, 32)
    local back = state.flows[interface .. key]
    if not back or back.nonce ~= nonce then
      back = new_flow(p, key, p.back, nonce)
      -- The id that the acceptor chooses is not known yet.
      local there = new_flow(p, "open" .. key .. nonce, p.there, nonce)
      pair_up(there, back)
      back.planes = p.raw:sub(61, 172)
    end
    return back.peer
  elseif p.name == "ACCEPT" then
    local back = state.flows[interface .. key_of(p.there, p["CBH.dcid"])]
    if not back then
      return nil
    end
    local id = p["params.scid"]
    local key = interface .. key_of(p.back, id)
    if back.peer and back.nonce and state.flows[key] ~= back.peer then
      state.flows[key] = back.peer
      local theirs, ours = p.raw:sub(61, 172), back.planes or ""
      alias_planes(p, back.peer, ours, theirs, id)
      alias_planes(p, back, theirs, ours, p["CBH.dcid"])
    end
    return back
  end
  -- CONFIRM holds it all; it tells when the capture starts with it.
  local there = state.flows[interface .. key_of(p.there, p["CBH.dcid"])]
  local nonce = p.raw:sub(25, 32)
  if not there or there.nonce ~= nonce then
    there = new_flow(p, key_of(p.there, p["CBH.dcid"]), p.there, nonce)
    local back = new_flow(p, key_of(p.back, p["params.scid"]), p.back, nonce)
    pair_up(there, back)
    local ours, theirs = p.raw:sub(61, 172), p.raw:sub(249, 360)
    alias_planes(p, there, ours, theirs, p["CBH.dcid"])
    alias_planes(p, back, theirs, ours, p["params.scid"])
  end
  return there
end

local function flow_of(p)
  if p.name == "OPEN" or p.name == "CONFIRM" then
    return learn(p)
  end
  local flow = p.name == "ACCEPT" and learn(p)
  if flow then
    return flow
  end
  local id = p["CBH.dcid"]
  if id == 0 then
    return nil
  end
  local key = key_of(p.there, id)
  return state.flows[p.interface .. key] or new_flow(p, key, p.there)
end

local function path_key(p)
  return p["CBH.epoch"] * 256 + p["CBH.path"]
end

-- The flow in the other direction. Where no handshake was seen, the one between the same addresses, if there is only
-- one that fits: for an acknowledgment one whose path has sent PSNs near the cumulative one.
local function peer_of(p, flow, cumulative)
  if flow.peer then
    return flow.peer
  end
  local found
  for _, other in ipairs(state.backwards[p.interface .. p.back] or {}) do
    if not other.peer then
      local path = other.paths[path_key(p)]
      local distance = cumulative and path and ahead(path.high, cumulative)
      if not cumulative or distance and distance >= 0 and distance <= 2 * 256 then
        if found then
          return nil
        end
        found = other
      end
    end
  end
  if found then
    pair_up(flow, found)
  end
  return found
end

-- Links between frames -----------------------------------------------------------------------------------------------

local function forget(path, psn)
  path.first[psn], path.last[psn], path.open[psn] = nil, nil, nil
end

local function empty_path(psn)
  return { high = psn, first = {}, last = {}, open = {} }
end

-- The path of a data packet, with its highest PSN moved on. Nil for a PSN far off all others, which is left out: a
-- second one near it shows that the capture has a hole, and the path starts again there.
local function path_of(p, flow, psn)
  local key = path_key(p)
  local path = flow.paths[key]
  if not path then
    path = empty_path(psn)
    flow.paths[key] = path
    return path
  end
  local distance = ahead(psn, path.high)
  if distance > KEPT or distance < -KEPT then
    if path.jump and math.abs(ahead(psn, path.jump)) <= KEPT then
      path = empty_path(psn)
      flow.paths[key] = path
      return path
    end
    path.jump = psn
    return nil
  end
  for step = 1, distance do
    forget(path, (path.high + step - KEPT - 1) % TWO32)
  end
  if distance > 0 then
    path.high = psn
  end
  path.jump = nil
  return path
end

local function first_elsewhere(p, flow, psn)
  local found
  for _, other in ipairs(flow.siblings) do
    local path = other ~= flow and other.paths[path_key(p)]
    local first = path and path.first[psn]
    if first and (not found or first < found) then
      found = first
    end
  end
  return found
end

local function track_data(p, flow, result)
  local psn, frame = p["CBH.psn"], p.frame
  local path = path_of(p, flow, psn)
  if not path then
    return
  end
  local original = path.first[psn]
  if not original and band(p["CBH.flags"], FLAG.RTX) ~= 0 then
    original = first_elsewhere(p, flow, psn)
  end
  if original then
    result.original = original
    local of_original = result_of(original)
    of_original.again = of_original.again or {}
    of_original.again[#of_original.again + 1] = frame
  end
  path.first[psn] = original or frame
  path.last[psn] = frame
  local open = path.open[psn]
  if open then
    open[#open + 1] = frame
  else
    path.open[psn] = { frame }
  end
end

-- An acknowledgment takes the frames that no earlier one has covered. One that speaks of PSNs that were not seen to be
-- sent changes nothing, as with an endpoint.
local function track_ack(p, flow, result, cumulative, vector)
  local peer = peer_of(p, flow, cumulative)
  local path = peer and peer.paths[path_key(p)]
  if not path then
    return
  end
  local highest = cumulative
  if vector then
    for index = #vector, 1, -1 do
      local bits = byte(vector, index)
      if bits ~= 0 then
        local trailing = 0
        while bits % 2 == 0 do
          bits, trailing = bits / 2, trailing + 1
        end
        highest = (cumulative + index * 8 - trailing) % TWO32
        break
      end
    end
  end
  if ahead(highest, path.high) > 0 then
    result.unseen = highest
    return
  end
  local covered = {}
  for psn, frames in pairs(path.open) do
    local distance = ahead(psn, cumulative)
    local is_covered = distance <= 0
    if not is_covered and vector and distance <= 256 then
      local bits = byte(vector, floor((distance - 1) / 8) + 1)
      is_covered = floor(bits / 2 ^ (7 - (distance - 1) % 8)) % 2 == 1
    end
    if is_covered then
      for _, frame in ipairs(frames) do
        covered[#covered + 1] = frame
        state.results[frame].acked = p.frame
        state.results[frame].acked_time = p.time
      end
      path.open[psn] = nil
    end
  end
  if #covered > 0 then
    table.sort(covered)
    result.acks = covered
  end
end

-- The answers to requests. RQ_CREDIT answers itself: one that tells the one that asks.
local RESPONSE_TO = {
  ACCEPT = { "OPEN" }, CONFIRM_ACK = { "CONFIRM" }, REJECT = { "OPEN", "CONFIRM" }, CLOSE_ACK = { "CLOSE" },
  PATH_PROBE_ACK = { "PATH_PROBE" }, PATH_RETIRED = { "PATH_RETIRE" }, STREAM_RESET_ACK = { "STREAM_RESET" },
  STREAM_OPEN_ACK = { "STREAM_OPEN" }, ["RQ_CREDIT tell"] = { "RQ_CREDIT ask" },
}
local IS_REQUEST = {}
for _, requests in pairs(RESPONSE_TO) do
  for _, request in ipairs(requests) do
    IS_REQUEST[request] = true
  end
end

local function track_request(p, flow, name)
  local key = name .. p["CBH.psn"]
  local entry = flow.waiting[key]
  if not entry then
    entry = { open = {} }
    flow.waiting[key] = entry
    local place = (flow.next or 0) % KEPT_TRANSACTIONS
    local oldest = flow.order[place]
    if oldest then
      flow.waiting[oldest] = nil
    end
    flow.order[place] = key
    flow.next = place + 1
  end
  entry.last, entry.time = p.frame, p.time
  entry.open[#entry.open + 1] = p.frame
end

local function track_response(p, flow, result, requests)
  local peer = peer_of(p, flow)
  for _, request in ipairs(requests) do
    local entry = peer and peer.waiting[request .. p["CBH.psn"]]
    if entry then
      result.request, result.request_time = entry.last, entry.time
      for _, frame in ipairs(entry.open) do
        state.results[frame].response = p.frame
      end
      entry.open = {}
      return
    end
  end
end

local function track_nak(p, flow, result)
  local peer
  if flow then
    peer = peer_of(p, flow)
  else
    -- No connection is known to the sender of this NAK; its detail says which one was meant.
    peer = state.flows[p.interface .. key_of(p.back, p["NAK.detail"] % 16777216)]
  end
  local path = peer and peer.paths[path_key(p)]
  local frame = path and path.last[p["NAK.offending_psn"]]
  if frame then
    result.refuses = frame
    state.results[frame].refused = state.results[frame].refused or p.frame
  end
  if peer and not flow then
    result.flow = peer
  end
end

-- Called once for each frame, in order.
local function track(p)
  local result = result_of(p.frame)
  local flow = flow_of(p)
  result.flow = flow
  result.time = p.time
  if p.name == "NAK" then
    track_nak(p, flow, result)
  end
  if not flow then
    return
  end
  local name = p.name
  if p.opcode >= 0x01 and p.opcode <= 0x3f then
    track_data(p, flow, result)
  elseif name == "ACK" then
    track_ack(p, flow, result, p["CBH.psn"])
  elseif name == "ACK_SACK" then
    track_ack(p, flow, result, p["CBH.psn"], p["ACK_SACK.sack"])
  elseif name == "PATH_PROBE_ACK" or name == "PATH_RETIRED" then
    track_ack(p, flow, result, p[name .. ".cum_psn"], p[name .. ".sack"])
  end
  if name == "RQ_CREDIT" then
    name = p["RQ_CREDIT.kind"] == 0 and "RQ_CREDIT ask" or "RQ_CREDIT tell"
  end
  if IS_REQUEST[name] then
    track_request(p, flow, name)
  elseif RESPONSE_TO[name] then
    track_response(p, flow, result, RESPONSE_TO[name])
  end
end

-- Showing ------------------------------------------------------------------------------------------------------------

-- The PSNs whose bits are set, and those between that are not, as ranges.
local function vector_text(cumulative, vector)
  local present, missing, count = {}, {}, 0
  local start, last
  local function close(list, from, to)
    local first = hex8((cumulative + 1 + from) % TWO32)
    list[#list + 1] = from == to and first or first .. "-" .. hex8((cumulative + 1 + to) % TWO32)
  end
  for index = 0, #vector * 8 - 1 do
    local bits = byte(vector, floor(index / 8) + 1)
    if floor(bits / 2 ^ (7 - index % 8)) % 2 == 1 then
      count = count + 1
      if not start then
        if index > (last or -1) + 1 then
          close(missing, (last or -1) + 1, index - 1)
        end
        start = index
      end
      last = index
    elseif start then
      close(present, start, last)
      start = nil
    end
  end
  if start then
    close(present, start, last)
  end
  return count, concat(present, " "), concat(missing, " ")
end

local function set_bits(field, value)
  local names = {}
  for _, bit in ipairs(field.bits) do
    if band(value, bit.code) ~= 0 then
      names[#names + 1] = bit.name
    end
  end
  return names
end

local function read_vector(p, field, text)
  local cumulative = p[field.layer .. ".cum_psn"] or p["CBH.psn"]
  local count, present, missing = vector_text(cumulative, text)
  p.vector = { count = count, present = present, missing = missing }
end

local function show_vector(p, tree, range)
  local vector = p.vector
  tree:add(f.sack_count, range, vector.count):set_generated()
  if vector.count > 0 then
    tree:add(f.sack_present, range, vector.present):set_generated()
    tree:add(f.sack_missing, range, vector.missing):set_generated()
  end
end

local function show_field(p, tree, field, at, value)
  local range = p.tvb(at, field.size)
  local item = tree:add(field.proto, range)
  if field.bits then
    local names = set_bits(field, value)
    if #names > 0 then
      item:append_text(" (" .. concat(names, ", ") .. ")")
    end
    for _, bit in ipairs(field.bits) do
      item:add(bit.proto, range)
    end
  elseif field.name == "sack" then
    show_vector(p, item, range)
  end
end

-- One field: kept in `p` under its key, checked, and shown if there is a tree.
local function dissect_field(p, tree, field, start)
  local at = start + field.at
  local value
  if field.width <= 32 then
    value = number_at(p.raw, at, field.size)
    if field.mask then
      value = floor(value / field.divisor) % field.modulus
    end
    p[field.key] = value
    if field.limited then
      check_limits(p, field, value)
    end
  elseif field.width > 64 then
    local text = p.raw:sub(at + 1, at + field.size)
    check_wide(p, field, text)
    if field.name == "sack" then
      p[field.key] = text
      read_vector(p, field, text)
    end
  end
  if tree then
    show_field(p, tree, field, at, value)
  end
end

local function dissect_layer(p, tree, layer, start)
  local branch = tree and tree:add(p.tvb(start, layer.length), layer.title)
  for _, part in ipairs(layer.parts) do
    if part.field then
      dissect_field(p, branch, part.field, start)
    else
      dissect_layer(p, branch, part.layer, start + part.at)
    end
  end
end

-- The headers that are there as a whole. Where the capture has cut one, nothing is said about the packet.
local function dissect_headers(p, tree)
  local body_end = p.size - 4
  local at = 16
  for _, header in ipairs(p.packet.headers) do
    if header.name ~= "CBH" then
      if at + header.length > body_end then
        fault(p, "truncated", format(
          "%s needs %d bytes at offset %d, %d are there", header.name, header.length, at, body_end - at
        ))
        p.rest = at
        return false
      elseif at + header.length > p.captured then
        return false
      end
      dissect_layer(p, tree, header, at)
      at = at + header.length
    end
  end
  p.at = at
  return true
end

local function clipped(p, at, size)
  return p.tvb(at, math.min(size, p.captured - at))
end

local function check_padding(p, at, size)
  if size > 0 and at + size <= p.captured then
    local first = p.raw:sub(at + 1, at + size):match("[^%z]")
    if first then
      fault(p, "padding_nonzero", format("a byte of the padding is 0x%02x: padding is zero", byte(first)))
    end
  end
end

local function dissect_payload(p, tree)
  local rest, pad = p.size - 4 - p.at, p["CBH.pad"]
  if pad > rest then
    fault(p, "truncated", format("padding needs %d bytes at offset %d, %d are there", pad, p.at, rest))
    p.rest = p.at
    return false
  end
  local size = rest - pad
  p.payload_size = size
  if tree and p.at < p.captured and size > 0 then
    tree:add(f.payload, clipped(p, p.at, size)):append_text(format(" (%d bytes)", size))
  end
  if tree and pad > 0 and p.at + size < p.captured then
    tree:add(f.padding, clipped(p, p.at + size, pad))
  end
  check_padding(p, p.at + size, pad)
  return true
end

local function dissect_body(p, tree)
  local packet = p.packet
  if not packet then
    local size = math.max(p.size - 20, 0)
    if tree and size > 0 and p.captured > 16 then
      tree:add(f.unknown, clipped(p, 16, size))
    end
    p.is_unknown = true
    check_padding(p, 16 + math.max(size - p["CBH.pad"], 0), math.min(p["CBH.pad"], size))
    return
  end
  if not dissect_headers(p, tree) then
    return
  end
  if packet.payload then
    if not dissect_payload(p, tree) then
      return
    end
  else
    p.payload_size = 0
    local extra = p.size - 4 - p.at
    if extra > 0 then
      fault(p, "overlong", format("%s ends at offset %d, %d bytes follow it", p.name, p.at, extra))
      p.rest = p.at
    end
  end
  check_packet(p)
end

-- The 16 bytes of an IPv6 address in words; nil for anything else.
local function ipv6_bytes(text)
  local head, tail = text:match("^(.-)::(.*)$")
  local function words(part)
    local bytes, count = {}, 0
    for word in part:gmatch("[^:]+") do
      local number = word:match("^%x%x?%x?%x?$") and tonumber(word, 16)
      if number then
        bytes[#bytes + 1] = string.char(floor(number / 256), number % 256)
      else
        local a, b, c, d = word:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
        if not a then
          return nil
        end
        bytes[#bytes + 1] = string.char(a % 256, b % 256, c % 256, d % 256)
      end
    end
    return concat(bytes)
  end
  if not text:find(":", 1, true) or text:find("[^%x:.]") then
    return nil
  end
  local front, back = words(head or text), words(tail or "")
  local filled = front and back and #front + #back or 17
  if head and filled <= 16 then
    return front .. ("\0"):rep(16 - filled) .. back
  end
  return filled == 16 and front or nil
end

-- An address as the CRC covers it. Where names stand for addresses, it comes from the headers in front.
local function address_bytes(address, ip, ipv6)
  local text = tostring(address)
  local known = state.addresses[text]
  if known then
    return known
  end
  local a, b, c, d = text:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  local bytes = a and "\0\0\0\0\0\0\0\0\0\0\255\255" .. string.char(a % 256, b % 256, c % 256, d % 256)
    or ipv6_bytes(text)
  if bytes then
    state.addresses[text] = bytes
    return bytes
  end
  for _, found in ipairs({ { ip() }, { ipv6() } }) do
    -- The last one is the innermost, where IP is carried in IP.
    for index = #found, 1, -1 do
      if found[index].value == address then
        local raw = found[index].range:raw()
        return #raw == 4 and "\0\0\0\0\0\0\0\0\0\0\255\255" .. raw or raw
      end
    end
  end
  return nil
end

local function find_addresses(p, pinfo)
  local src = address_bytes(pinfo.net_src, from_ip.src, from_ipv6.src)
  local dst = address_bytes(pinfo.net_dst, from_ip.dst, from_ipv6.dst)
  p.addresses = src and dst and src .. dst
  src, dst = src or tostring(pinfo.net_src), dst or tostring(pinfo.net_dst)
  p.there, p.back = src .. dst, dst .. src
end

-- Where the frame was captured: the interface, or what the direction tells where the interface cannot be seen, as in
-- the first of two passes of tshark.
local function point_of(p, pinfo)
  if not prefs.apart then
    return ""
  end
  local interface = interface_id()
  if interface then
    return tostring(interface.value) .. " "
  end
  local direction = pinfo.p2p_dir
  if direction == 0 or direction == 1 then
    return (direction == 0) == (p.there < p.back) and "x " or "y "
  end
  return ""
end

local function dissect_crc(p, tree, pinfo)
  if p.size < 4 or p.captured < p.size then
    return
  end
  local at = p.size - 4
  local found = number_at(p.raw, at, 4)
  local status, text, computed = 2, "unverified", nil
  if prefs.crc and p.addresses then
    local port, udp_length = pinfo.dst_port, p.size + 8
    local tail = string.char(
      floor(port / 256), port % 256, 0, 0, 0, floor(udp_length / 65536), floor(udp_length / 256) % 256, udp_length % 256
    )
    computed = crc_32c(p.addresses .. tail .. p.raw:sub(1, at))
    status, text = found == computed and 1 or 0, found == computed and "good" or "bad"
    p.bad_crc = status == 0
  end
  if tree then
    local range = p.tvb(at, 4)
    local item = tree:add(f.crc, range)
    item:append_text(" [" .. text .. "]")
    item:add(f.crc_status, range, status):set_generated()
    if p.bad_crc then
      item:add(f.crc_computed, range, computed):set_generated()
    end
  end
  if p.bad_crc then
    p.branch:add_proto_expert_info(e.crc, format("the CRC should be 0x%08x", computed))
  end
end

local function show_time(branch, field, from, to)
  if from and to then
    local seconds = to - from
    local whole = floor(seconds)
    branch:add(field, NSTime.new(whole, floor((seconds - whole) * 1e9 + 0.5))):set_generated()
  end
end

local function show_links(p, tree, result)
  local function add(field, value)
    if value then
      tree:add(field, value):set_generated()
    end
  end
  if result.flow then
    add(f.connection, root(result.flow.connection).number)
  end
  add(f.original, result.original)
  for _, frame in ipairs(result.again or {}) do
    add(f.retransmission, frame)
  end
  add(f.acks_count, result.acks and #result.acks)
  for _, frame in ipairs(result.acks or {}) do
    add(f.acks, frame)
  end
  add(f.acked, result.acked)
  show_time(tree, f.ack_time, result.time, result.acked_time)
  add(f.request, result.request)
  show_time(tree, f.response_time, result.request_time, result.time)
  add(f.response, result.response)
  add(f.refuses, result.refuses)
  add(f.refused, result.refused)
end

local function is_again(p)
  return band(p["CBH.flags"], FLAG.RTX) ~= 0
end

-- What people should know about the links; there even where no tree is asked for.
local function note_links(p, result)
  if result.original and is_again(p) then
    p.branch:add_proto_expert_info(e.again, format("sent first in frame %d", result.original))
  elseif result.original then
    p.branch:add_proto_expert_info(e.twice, format("its PSN was there in frame %d", result.original))
  end
  if result.unseen then
    p.branch:add_proto_expert_info(e.unseen, "PSN " .. hex8(result.unseen) .. " was not seen to be sent")
  end
end

-- The line of a packet in the list -----------------------------------------------------------------------------------

local function code(p, key)
  local value = p[key]
  return code_of[key].named[value] or tostring(value)
end

local function credit(p, key)
  return format("stream %d RqLimit %d", p[key .. ".stream"], p[key .. ".rq_limit"])
end

local function vector(p)
  local v = p.vector
  if not v or v.count == 0 then
    return ""
  end
  local present = #v.present > 60 and v.present:sub(1, v.present:find(" ", 40, true) or 60) .. "..." or v.present
  return format(" SACK %s (%d)", present, v.count)
end

local function path(p)
  local epoch = p["CBH.epoch"]
  return format("path %d%s", p["CBH.path"], epoch ~= 0 and " epoch " .. epoch or "")
end

local function parameters(p)
  return format(
    "SCID %06x service %x paths %d streams %d payload %d", p["params.scid"], p["params.service_id"], p["params.paths"],
    p["params.streams"], p["params.payload_size"]
  )
end

local function stream_open(p)
  local key = p.name
  local status = key == "STREAM_OPEN_ACK" and " " .. code(p, "STREAM_OPEN_ACK.status") or ""
  return format(
    "stream %d%s first MSN %d RQSN %d RqLimit %d", p[key .. ".stream"], status, p[key .. ".first_msn"],
    p[key .. ".first_rqsn"], p[key .. ".rq_limit"]
  )
end

local function hint(p, key)
  local rate = p[key .. ".rate_hint"]
  local text = rate == 0xffffff and "no limit" or rate == 0 and "pause" or rate .. " Mb/s"
  return format("hint epoch %d %s", p[key .. ".hint_epoch"], text)
end

local SUMMARIES = {
  NAK = function(p)
    return format(
      "%s scope %s %s PSN %s stream %d MSN %d", code(p, "NAK.code"), code(p, "NAK.scope"), path(p),
      hex8(p["NAK.offending_psn"]), p["NAK.stream"], p["NAK.msn"]
    )
  end,
  OPEN = parameters,
  ACCEPT = parameters,
  CONFIRM = function(p)
    return format("SCID %06x paths %d streams %d", p["params.scid"], p["accepted.paths"], p["accepted.streams"])
  end,
  REJECT = function(p)
    return code(p, "REJECT.reason")
  end,
  CLOSE = function(p)
    return code(p, "CLOSE.reason")
  end,
  PATH_PROBE = function(p)
    return path(p) .. " highest PSN " .. hex8(p["PATH_PROBE.highest_psn"])
  end,
  PATH_PROBE_ACK = function(p)
    return path(p) .. " CumPSN " .. hex8(p["PATH_PROBE_ACK.cum_psn"]) .. vector(p)
  end,
  PATH_CHANGE = function(p)
    return format(
      "%s source port %d plane %d next PSN %s", path(p), p["PATH_CHANGE.source_port"], p["PATH_CHANGE.plane"],
      hex8(p["PATH_CHANGE.next_psn"])
    )
  end,
  PATH_RETIRE = function(p)
    return format("%s %s highest PSN %s", path(p), code(p, "PATH_RETIRE.reason"), hex8(p["PATH_RETIRE.highest_psn"]))
  end,
  PATH_RETIRED = function(p)
    return path(p) .. " CumPSN " .. hex8(p["PATH_RETIRED.cum_psn"]) .. vector(p)
  end,
  RATE_HINT = function(p)
    return hint(p, "RATE_HINT")
  end,
  RQ_CREDIT = function(p)
    local limit = p["RQ_CREDIT.kind"] == 1 and credit(p, "RQ_CREDIT") or "stream " .. p["RQ_CREDIT.stream"]
    return code(p, "RQ_CREDIT.kind") .. " " .. limit
  end,
  STREAM_RESET = function(p)
    return format("stream %d code %s", p["STREAM_RESET.stream"], code(p, "STREAM_RESET.code"))
  end,
  STREAM_RESET_ACK = function(p)
    return "stream " .. p["STREAM_RESET_ACK.stream"]
  end,
  STREAM_OPEN = stream_open,
  STREAM_OPEN_ACK = stream_open,
}
SUMMARIES.CLOSE_ACK = function(p)
  return code(p, "CLOSE_ACK.reason")
end

local function data_summary(p)
  local bits = {}
  for _, entry in ipairs(code_of["MSGH.mflags"].entries) do
    if flag_is(p, entry.code) then
      bits[#bits + 1] = entry.name
    end
  end
  local length = p.packet.payload and p.payload_size or p["MSGH.len"]
  local flags = #bits > 0 and " [" .. concat(bits, " ") .. "]" or ""
  return format(
    "%s PSN %s stream %d MSN %d%s len %d", path(p), hex8(p["CBH.psn"]), p["MSGH.stream"], p["MSGH.msn"], flags, length
  )
end

local function ack_summary(p)
  local hinted = p["ACK.rate_hint"] ~= 0xffffff and " " .. hint(p, "ACK") or ""
  return format("%s CumPSN %s%s %s%s", path(p), hex8(p["CBH.psn"]), vector(p), credit(p, "ACK"), hinted)
end

local function summary(p)
  local parts = { p.name }
  if p.complete then
    if MESSAGES[p.name] then
      parts[#parts + 1] = data_summary(p)
    elseif p.name == "ACK" or p.name == "ACK_SACK" then
      parts[#parts + 1] = ack_summary(p)
    elseif SUMMARIES[p.name] then
      parts[#parts + 1] = SUMMARIES[p.name](p)
    end
  end
  if MESSAGES[p.name] then
    local result = state.results[p.frame]
    local again = is_again(p)
    if result and result.original then
      parts[#parts + 1] = format("[%s %d]", again and "retransmission of" or "duplicate of", result.original)
    elseif again then
      parts[#parts + 1] = "[retransmission]"
    end
  end
  if p.bad_crc then
    parts[#parts + 1] = "[bad CRC]"
  end
  if p.faults[1] then
    parts[#parts + 1] = "[malformed: " .. p.faults[1].kind .. "]"
  end
  if p.captured < p.size then
    parts[#parts + 1] = "[cut by the capture]"
  end
  return concat(parts, " ")
end

-- Packet by packet ---------------------------------------------------------------------------------------------------

local function dissect_packet(p, tree)
  if p.size < 16 then
    fault(p, "truncated", format("CBH needs 16 bytes at offset 0, %d are there", p.size))
    p.rest = 0
    return
  elseif p.captured < 16 then
    return
  end
  p.opcode = byte(p.raw, 2)
  p.packet = packets[p.opcode]
  p.name = p.packet and p.packet.name or format("opcode 0x%02x", p.opcode)
  dissect_layer(p, tree, layers.CBH, 0)
  if p.size < 20 then
    fault(p, "truncated", format("CRC needs 4 bytes at offset 16, %d are there", p.size - 16))
    p.rest = 16
    return
  end
  dissect_body(p, tree)
  p.complete = p.at and (p.payload_size ~= nil)
end

local function show_faults(p, tree)
  local ends = p.size < 20 and p.size or p.size - 4
  if tree and p.rest and p.rest < ends and p.rest < p.captured then
    tree:add(f.rest, clipped(p, p.rest, ends - p.rest))
  end
  for _, found in ipairs(p.faults) do
    if tree then
      tree:add(f.kind, found.kind):set_generated()
    end
    p.branch:add_proto_expert_info(e.malformed, found.text)
  end
  for _, text in ipairs(p.parameters) do
    p.branch:add_proto_expert_info(e.parameter, text)
  end
  if p.is_unknown then
    p.branch:add_proto_expert_info(e.unknown, format("opcode 0x%02x is not known", p.opcode))
  end
  if p.captured < p.size then
    p.branch:add_proto_expert_info(e.cut, format("%d of %d bytes were captured", p.captured, p.size))
  end
  if p.complete and (p.name == "NAK" or p.name == "REJECT") then
    p.branch:add_proto_expert_info(e.refusal, p.name .. " " .. SUMMARIES[p.name](p))
  end
end

function metaroce.dissector(tvb, pinfo, tree)
  local p = {
    tvb = tvb, size = tvb:reported_len(), captured = tvb:captured_len(), faults = {}, parameters = {},
    frame = pinfo.number, name = "MetaRoCE",
  }
  p.raw = p.captured > 0 and tvb:raw(0, p.captured) or ""
  pinfo.cols.protocol:set("MetaRoCE")
  p.branch = tree:add(metaroce, tvb(0, p.captured))
  -- Fields cost most of the time, and a list of packets needs none of them.
  local shown = tree:referenced(Dissector.get("metaroce")) and p.branch or nil
  find_addresses(p, pinfo)
  dissect_packet(p, shown)
  dissect_crc(p, shown, pinfo)
  if not pinfo.visited and p.complete and #p.faults == 0 and not p.bad_crc and not pinfo.in_error_pkt then
    p.interface = point_of(p, pinfo)
    p.time = pinfo.rel_ts
    track(p)
  end
  local result = state.results[p.frame]
  if result then
    if shown then
      show_links(p, shown, result)
    end
    note_links(p, result)
  end
  show_faults(p, shown)
  local text = summary(p)
  if shown then
    shown:append_text(", " .. text)
  end
  pinfo.cols.info:set(text)
  return p.size
end

-- Ports --------------------------------------------------------------------------------------------------------------

local ports = DissectorTable.get("udp.port")
local registered

local function register_ports()
  if registered ~= prefs.port then
    if registered and registered ~= "" then
      ports:remove(registered, metaroce)
    end
    registered = prefs.port
    if registered ~= "" then
      ports:add(registered, metaroce)
    end
  end
end
register_ports()
metaroce.prefs_changed = register_ports
