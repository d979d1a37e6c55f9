//! What can be wrong with the bytes of a packet, and with a buffer to write one into.

/// Why bytes are not a packet: the layer, the field, the offset and the values, never a string to be searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before the header does.
    #[error("{layer} needs {needed} bytes at offset {offset}, {available} are there")]
    Short {
        /// Name of the header, as in the wire tables.
        layer: &'static str,
        /// Where the header starts, in bytes from the start of the UDP payload.
        offset: usize,
        /// Bytes the header takes.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The bytes go on after the packet's end.
    #[error("{layer} ends at offset {offset}, {extra} bytes follow it")]
    Long {
        /// Name of the last header.
        layer: &'static str,
        /// Where the packet should have ended, in bytes from the start of the UDP payload.
        offset: usize,
        /// Bytes too many.
        extra: usize,
    },
    /// A field holds a value that the specification does not allow there.
    #[error("{layer}.{field} is {found:#x}: {rule}")]
    Value {
        /// Name of the header, as in the wire tables.
        layer: &'static str,
        /// Name of the field, as in the wire tables.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The rule it breaks, in words.
        rule: &'static str,
    },
    /// The trailer does not match the bytes and their pseudo-header.
    #[error("crc is {found:#010x}, the bytes give {computed:#010x}")]
    Crc {
        /// The trailer as received.
        found: u32,
        /// The CRC-32C computed over pseudo-header and bytes.
        computed: u32,
    },
}

/// Why a packet could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The caller's buffer is too small.
    #[error("packet needs {needed} bytes, the buffer has {available}")]
    NoRoom {
        /// Bytes the packet takes, trailer included.
        needed: usize,
        /// Bytes the buffer has.
        available: usize,
    },
    /// The packet, with its headers, exceeds what one IP packet can carry.
    #[error("a payload of {len} bytes does not fit one packet")]
    TooLong {
        /// Bytes asked for.
        len: usize,
    },
}
