//! Requests that post work or take it back.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::answers::{Code, Failure};
use super::hex;
use super::messages::{Piece, body, present, take};
use crate::core::{Op, Remote};

/// Body of `post_recv`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Post {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
    /// The caller's number for the work.
    pub wr_id: u64,
    /// Local region.
    pub mr: u32,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Body of `post_srq_recv`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SrqPost {
    /// The caller's number for the work.
    pub wr_id: u64,
    /// Local region.
    pub mr: u32,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Body of `withdraw_recv`, and what all work has to name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Withdraw {
    /// Connection.
    pub conn: u32,
    /// Stream.
    pub stream: u16,
    /// The caller's number for the work.
    pub wr_id: u64,
}

/// Body of `withdraw_srq_recv`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SrqWithdraw {
    /// The caller's number for the work.
    pub wr_id: u64,
}

/// Body of `post_send`, `post_write`, `post_read`, `post_cmp_swap` and `post_fetch_add`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostWork {
    /// Connection, stream and number.
    pub of: Withdraw,
    /// Local bytes.
    pub local: Local,
    /// What it does.
    pub op: Op,
    /// Wishes.
    pub flags: Flags,
}

/// Local bytes of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// Those of a region.
    Piece(Piece),
    /// Those of the request.
    Inline(Vec<u8>),
}

/// Wishes that go with work, see [`crate::core::Work`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// Success is reported too.
    #[serde(default = "yes")]
    pub signalled: bool,
    /// The completion at the other side wakes whoever waits for one.
    #[serde(default)]
    pub solicited: bool,
    /// It waits for the Reads and atomic operations before it.
    #[serde(default)]
    pub fence: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inline {
    inline: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendMore {
    #[serde(default, deserialize_with = "present")]
    imm: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    invalidate: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteMore {
    #[serde(default, deserialize_with = "present")]
    imm: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadMore {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CmpSwapMore {
    compare: String,
    swap: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchAddMore {
    add: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    va: String,
    rkey: u32,
}

/// Reads the body of one of the requests that post work. What is answered by the peer has no inline bytes, and asks
/// nobody there to wake up.
pub(super) fn read(op: &str, mut fields: Map<String, Value>) -> Result<PostWork, Failure> {
    let answered = !matches!(op, "post_send" | "post_write");
    let of = body(take(&mut fields, &["conn", "stream", "wr_id"]))?;
    let wishes: &[&str] = if answered {
        &["signalled", "fence"]
    } else {
        &["signalled", "solicited", "fence"]
    };
    let flags = body(take(&mut fields, wishes))?;
    let local = if fields.contains_key("inline") && !answered {
        let Inline { inline } = body(take(&mut fields, &["inline"]))?;
        let bytes = hex::decode(&inline).ok_or_else(|| bad("inline is not pairs of hex digits"))?;
        Local::Inline(bytes)
    } else {
        Local::Piece(body(take(&mut fields, &["mr", "offset", "len"]))?)
    };
    let op = match op {
        "post_send" => send(body(fields)?)?,
        "post_write" => {
            let at = target(&mut fields)?;
            match body(fields)? {
                WriteMore { imm: None } => Op::Write(at),
                WriteMore { imm: Some(imm) } => Op::WriteImm(at, imm),
            }
        }
        "post_cmp_swap" => {
            let at = target(&mut fields)?;
            let more: CmpSwapMore = body(fields)?;
            Op::CmpSwap {
                at,
                compare: number("compare", &more.compare)?,
                swap: number("swap", &more.swap)?,
            }
        }
        "post_fetch_add" => {
            let at = target(&mut fields)?;
            let more: FetchAddMore = body(fields)?;
            Op::FetchAdd {
                at,
                add: number("add", &more.add)?,
            }
        }
        _ => {
            let at = target(&mut fields)?;
            let ReadMore {} = body(fields)?;
            Op::Read(at)
        }
    };
    Ok(PostWork {
        of,
        local,
        op,
        flags,
    })
}

fn send(more: SendMore) -> Result<Op, Failure> {
    match (more.imm, more.invalidate) {
        (None, None) => Ok(Op::Send),
        (Some(imm), None) => Ok(Op::SendImm(imm)),
        (None, Some(rkey)) => Ok(Op::SendInv(rkey)),
        (Some(_), Some(_)) => Err(bad("a Send has imm or invalidate, not both")),
    }
}

fn target(fields: &mut Map<String, Value>) -> Result<Remote, Failure> {
    let target: Target = body(take(fields, &["va", "rkey"]))?;
    Ok(Remote {
        va: number("va", &target.va)?,
        rkey: target.rkey,
    })
}

fn number(name: &str, text: &str) -> Result<u64, Failure> {
    hex::number(text).ok_or_else(|| bad(format_args!("{name} is not 0x and at most 16 hex digits")))
}

fn bad(message: impl std::fmt::Display) -> Failure {
    Failure::new(Code::BadRequest, message)
}
