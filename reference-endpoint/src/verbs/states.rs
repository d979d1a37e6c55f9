//! The steps that a queue pair can take.

use super::types::QpState::{self, Err, Init, Reset, Rtr, Rts, Sqd};

/// Every step that a program can ask for: state before and after.
pub const STEPS: &[(QpState, QpState)] = &[
    (Reset, Reset),
    (Reset, Init),
    (Init, Reset),
    (Init, Err),
    (Init, Init),
    (Init, Rtr),
    (Rtr, Reset),
    (Rtr, Err),
    (Rtr, Rts),
    (Rts, Reset),
    (Rts, Err),
    (Rts, Rts),
    (Rts, Sqd),
    (Sqd, Reset),
    (Sqd, Err),
    (Sqd, Sqd),
    (Sqd, Rts),
    (Err, Reset),
    (Err, Err),
];
