//! The rules of the message header and of what follows it that a packet can be checked for on its own.

use super::headers::{Cbh, MFlags, Msgh, Tagh};
use super::packets::{check_unpadded, rule};
use crate::Error;

/// The longest message, bytes.
pub const MAX_MSG_LEN: u32 = 1 << 31;

/// Bytes that an atomic operation concerns; its address is a multiple of them.
pub const ATOMIC_LEN: u32 = 8;

/// The flags of a message which its opcode decides.
const OF_THE_OPCODE: MFlags = MFlags::IMM.with(MFlags::INV).with(MFlags::RESP);

/// The payload of a data packet: what is left of `rest` without the padding.
#[inline]
pub(super) fn payload_of<'a>(rest: &'a [u8], cbh: &Cbh, offset: usize) -> Result<&'a [u8], Error> {
    let pad = usize::from(cbh.pad);
    let short = Error::Short {
        layer: "pad",
        offset,
        needed: pad,
        available: rest.len(),
    };
    rest.len()
        .checked_sub(pad)
        .and_then(|end| rest.get(..end))
        .ok_or(short)
}

#[inline]
fn mflags(holds: bool, msgh: &Msgh, what: &'static str) -> Result<(), Error> {
    rule(holds, Msgh::LAYER, "mflags", u64::from(msgh.mflags.0), what)
}

/// What holds of every message; of IMM, INV and RESP exactly those in `demanded` are set.
#[inline]
fn check_header(msgh: &Msgh, demanded: MFlags) -> Result<(), Error> {
    mflags(
        !msgh.mflags.has(MFlags::RESERVED),
        msgh,
        "reserved flags are zero",
    )?;
    mflags(
        msgh.mflags.0 & OF_THE_OPCODE.0 == demanded.0,
        msgh,
        "IMM, INV and RESP match the opcode",
    )?;
    rule(
        msgh.len <= MAX_MSG_LEN,
        Msgh::LAYER,
        "len",
        u64::from(msgh.len),
        "a message is at most 2^31 bytes",
    )
}

/// SOM and EOM stand where the message starts and ends. `end` is the offset behind the packet's last byte.
#[inline]
fn check_ends(msgh: &Msgh, end: u64) -> Result<(), Error> {
    mflags(
        msgh.mflags.has(MFlags::SOM) == (msgh.offset == 0),
        msgh,
        "SOM stands at offset 0 and nowhere else",
    )?;
    mflags(
        msgh.mflags.has(MFlags::EOM) == (end == u64::from(msgh.len)),
        msgh,
        "EOM stands at the message's end and nowhere else",
    )
}

/// The rules of a piece of a message, which has payload. Of IMM, INV and RESP it has exactly those in `demanded`.
#[inline]
pub(super) fn check_piece(
    cbh: &Cbh,
    msgh: &Msgh,
    payload: &[u8],
    demanded: MFlags,
) -> Result<(), Error> {
    let aligned = (payload.len() + usize::from(cbh.pad)).is_multiple_of(4);
    rule(
        aligned,
        Cbh::LAYER,
        "pad",
        u64::from(cbh.pad),
        "payload and padding fill whole words",
    )?;
    check_header(msgh, demanded)?;
    let end = u64::from(msgh.offset) + payload.len() as u64;
    let inside = end <= u64::from(msgh.len);
    rule(
        inside,
        Msgh::LAYER,
        "offset",
        u64::from(msgh.offset),
        "the payload lies inside the message",
    )?;
    let filled = !payload.is_empty() || msgh.len == 0;
    rule(
        filled,
        Msgh::LAYER,
        "len",
        u64::from(msgh.len),
        "only an empty message has an empty packet",
    )?;
    check_ends(msgh, end)
}

/// The rules of a message that is one packet without payload: the request for a Read, an atomic one, and the answer to
/// the latter. Of IMM, INV and RESP it has exactly those in `demanded`.
pub(super) fn check_single(cbh: &Cbh, msgh: &Msgh, demanded: MFlags) -> Result<(), Error> {
    check_unpadded(cbh)?;
    check_header(msgh, demanded)?;
    rule(
        msgh.offset == 0,
        Msgh::LAYER,
        "offset",
        u64::from(msgh.offset),
        "a message of one packet has offset 0",
    )?;
    check_ends(msgh, u64::from(msgh.len))?;
    check_no_receive(msgh)
}

/// An atomic operation and its answer have the length of the memory that it is about.
pub(super) fn check_atomic_len(msgh: &Msgh) -> Result<(), Error> {
    rule(
        msgh.len == ATOMIC_LEN,
        Msgh::LAYER,
        "len",
        u64::from(msgh.len),
        "an atomic operation is about 8 bytes",
    )
}

/// The rules of an atomic request.
pub(super) fn check_atomic(cbh: &Cbh, msgh: &Msgh, tagh: &Tagh) -> Result<(), Error> {
    check_single(cbh, msgh, MFlags(0))?;
    check_atomic_len(msgh)?;
    check_no_immediate(tagh)?;
    check_address(msgh, tagh)?;
    rule(
        tagh.va.is_multiple_of(u64::from(ATOMIC_LEN)),
        Tagh::LAYER,
        "va",
        tagh.va,
        "the address of an atomic operation is a multiple of 8",
    )
}

/// What is no Send and no Write with immediate data consumes no receive.
#[inline]
pub(super) fn check_no_receive(msgh: &Msgh) -> Result<(), Error> {
    let rqsn = u64::from(msgh.rqsn.value());
    rule(
        rqsn == 0,
        Msgh::LAYER,
        "rqsn",
        rqsn,
        "only what consumes a receive has its number",
    )
}

/// Of the packets with a tagged header one alone has immediate data in it.
#[inline]
pub(super) fn check_no_immediate(tagh: &Tagh) -> Result<(), Error> {
    rule(
        tagh.imm == 0,
        Tagh::LAYER,
        "imm",
        u64::from(tagh.imm),
        "only a Write with immediate data has any",
    )
}

/// The memory that a message is about lies within the address space.
#[inline]
pub(super) fn check_address(msgh: &Msgh, tagh: &Tagh) -> Result<(), Error> {
    let end = tagh.va.checked_add(u64::from(msgh.len));
    rule(
        end.is_some(),
        Tagh::LAYER,
        "va",
        tagh.va,
        "address and length do not wrap",
    )
}

/// The rules of what takes a PSN and carries nothing: the stream is all that it names.
pub(super) fn check_fill(cbh: &Cbh, msgh: &Msgh) -> Result<(), Error> {
    check_unpadded(cbh)?;
    check_header(msgh, MFlags(0))?;
    check_no_receive(msgh)?;
    let zero = |field, found| {
        rule(
            found == 0,
            Msgh::LAYER,
            field,
            found,
            "a FILL names no message",
        )
    };
    zero("mflags", u64::from(msgh.mflags.0))?;
    zero("msn", u64::from(msgh.msn.value()))?;
    zero("offset", u64::from(msgh.offset))?;
    zero("len", u64::from(msgh.len))
}
