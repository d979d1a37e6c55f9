"""What an endpoint is set to. Times are nanoseconds unless the name says otherwise."""

from dataclasses import dataclass, field

US, MS, S = 1_000, 1_000_000, 1_000_000_000
NEVER = 1 << 62


@dataclass
class Settings:
    """One side of one connection. What is not set has the default of the table of timers."""

    service_id: int = 1
    port: int = 49200                  # UDP port of the service, the same on both sides
    paths: int = 4
    streams: int = 1                   # at a time
    first_streams: int | None = None   # opened at once by the initiator; all when None
    payload_size: int = 1024
    msg_window: int = 64
    ack_delay_us: int = 200
    isn: int | None = None             # random when None
    features: tuple = ()               # of wire.FEATURES
    read_depth: int = 0
    atomic_depth: int = 0
    source_ports: list = field(default_factory=lambda: list(range(50000, 50004)))
    planes: list = field(default_factory=list)  # own addresses in the planes from 1 on
    capacity_mbps: int | None = None   # inbound capacity that is shared out by hints
    hint_interval_us: int = 100
    hint_giver: object = None          # what decides about the hints that this side gives; none without it
    rnr_retries: int = 7               # 7 is without limit
    srq: bool = False
    spray_run: int = 1
    domain: int = 0                    # protection domain of the streams
    ts_unit: int = 100                 # ns

    rto_first: int = 100 * MS
    rto_min: int = 10 * MS
    rto_max: int = 2 * S
    probe_min: int = 2 * MS
    control: int = 50 * MS
    repetitions: int = 7
    cookie_life: int = 10 * S
    linger: int = 6 * S
    answer_time: int = 30 * S
    idle: int = 60 * S
    revival: int = 1 * S
    revival_max: int = 60 * S
    rnr_pause: int = 50 * MS
    rnr_wait_us: int = 640
    nak_pause: int = 100 * MS
