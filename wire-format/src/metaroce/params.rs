//! What the two sides tell each other at connection set-up.

use core::net::{IpAddr, Ipv6Addr};

use super::field::{Field, U24, Value, Visitor, Writer, flag_set, header};
use crate::serial::Psn;

flag_set! {
    /// What a side is able to do beyond the base of the profile. Unknown bits are kept.
    pub struct Features(u16) reserved 0x07ff {
        /// Takes messages with immediate data.
        IMM = 0x8000,
        /// Takes Sends that invalidate a key.
        INV = 0x4000,
        /// Ends a stream alone: STREAM_RESET and FILL.
        RESET = 0x2000,
        /// Gives up paths: PATH_RETIRE and epochs.
        RETIRE = 0x1000,
        /// Takes note of routes: PATH_CHANGE.
        CHANGE = 0x0800,
    }
}

header! {
    /// The parameters of one side, exchanged at connection set-up.
    pub struct Params, "PARAMS" {
        /// Lowest version offered.
        ver_min: u8,
        /// Highest version offered.
        ver_max: u8,
        /// Paths in each direction, 1 to 256.
        paths: u16,
        /// Reserved.
        rsvd_a: u8 = 0,
        /// Connection id under which the sender of the parameters receives.
        scid: U24,
        /// Random number of the set-up.
        nonce: u64,
        /// First packet sequence number of every path in the direction this side sends.
        isn: Psn,
        /// Service asked for.
        service_id: u32,
        /// Streams that may be open at a time.
        streams: u16,
        /// Messages in flight per stream, 1 to 32767.
        msg_window: u16,
        /// Payload bytes per packet, a power of two from 256 to 8192.
        payload_size: u16,
        /// Bits of the acknowledgment vector, 256.
        vector_width: u16,
        /// Unit of timestamps, ns.
        ts_unit: u16,
        /// Longest time this side delays an acknowledgment, us.
        ack_delay: u16,
        /// Interval of rate hints, us.
        hint_interval: u16,
        /// 1 when this side sends rate hints.
        hint_support: u8,
        /// Planes besides the address pair of the set-up, 0 to 7; their addresses are [`Planes`].
        extra_planes: u8,
        /// Read requests that this side queues.
        read_depth: u8,
        /// Atomic requests that this side queues.
        atomic_depth: u8,
        /// Features offered, or agreed in ACCEPT.
        features: Features,
    }
}

/// Parameters stand inside OPEN, ACCEPT and CONFIRM; there the field's name serves as the header's.
impl Field<'_> for Params {
    const LEN: usize = Self::LEN;
    fn load(bytes: &[u8]) -> Self {
        Self::load_all(bytes)
    }
    fn put(&self, out: &mut Writer<'_>) {
        self.put(out);
    }
    fn visit(&self, _: &'static str, name: &'static str, f: &mut Visitor<'_>) {
        self.visit_as(name, f);
    }
    fn excess(&self) -> u64 {
        0
    }
}

/// Addresses of one side in the planes besides that of the set-up, as they stand on the wire. Borrowed: a packet has up
/// to two of them, and moving them about would cost every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Planes<'a>(pub &'a [u8; Planes::LEN]);

impl Planes<'_> {
    /// Bytes on the wire.
    pub const LEN: usize = 112;
    /// Name of the header in the wire tables.
    pub const LAYER: &'static str = "PLANES";
    /// The names of the fields in the wire tables.
    const NAMES: [&'static str; 7] = [
        "plane_1", "plane_2", "plane_3", "plane_4", "plane_5", "plane_6", "plane_7",
    ];
    /// No plane besides that of the set-up.
    pub const NONE: Planes<'static> = Planes(&[0; Planes::LEN]);

    /// The address in plane `number`, 1 to 7. None when there is no such plane.
    pub fn plane(&self, number: u8) -> Option<IpAddr> {
        let bytes = self
            .0
            .as_chunks::<16>()
            .0
            .get(usize::from(number).checked_sub(1)?)?;
        let address = Ipv6Addr::from(*bytes);
        (!address.is_unspecified()).then(|| IpAddr::V6(address).to_canonical())
    }

    /// The bytes of `addresses`, which are those of the planes 1, 2 and so on. What goes beyond the last plane is left
    /// out.
    pub fn bytes_of(addresses: &[IpAddr]) -> [u8; Planes::LEN] {
        let mut bytes = [0; Planes::LEN];
        for (place, address) in bytes.as_chunks_mut::<16>().0.iter_mut().zip(addresses) {
            *place = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => *address,
            }
            .octets();
        }
        bytes
    }
}

/// Planes stand inside OPEN, ACCEPT and CONFIRM; there the field's name serves as the header's.
impl<'a> Field<'a> for Planes<'a> {
    const LEN: usize = Planes::LEN;
    fn load(bytes: &'a [u8]) -> Self {
        // The bytes are exactly those of the field: the other case does not come about.
        bytes.first_chunk().map_or(Self::NONE, Self)
    }
    fn put(&self, out: &mut Writer<'_>) {
        out.put(self.0);
    }
    fn visit(&self, _: &'static str, name: &'static str, f: &mut Visitor<'_>) {
        for (plane, bytes) in Self::NAMES.into_iter().zip(self.0.as_chunks::<16>().0) {
            f(name, plane, Value::Bytes(bytes));
        }
    }
    fn excess(&self) -> u64 {
        self.0.excess()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_counted_from_one() {
        let given: [IpAddr; 2] = [[192, 0, 2, 9].into(), Ipv6Addr::LOCALHOST.into()];
        let bytes = Planes::bytes_of(&given);
        assert_eq!(bytes[8..16], [0, 0, 0xff, 0xff, 192, 0, 2, 9]);
        let planes = Planes(&bytes);
        assert_eq!(
            (planes.plane(1), planes.plane(2)),
            (Some(given[0]), Some(given[1]))
        );
        for none in [0, 3, 7, 8, 255] {
            assert_eq!(planes.plane(none), None, "{none}");
        }
        assert_eq!(Planes::bytes_of(&[]), *Planes::NONE.0);
        assert_eq!(
            Planes(&Planes::bytes_of(&[given[0]; 9])).plane(7),
            Some(given[0])
        );
    }
}
