//! Verified atomics: they count up by one, so that each answer is known.

use urma::Region;
use urma::SendOp;

use crate::error::RunError;

/// Verified atomics count up by one, so that each answer is known.
pub(crate) fn chain(op: &mut SendOp<'_>, done: u64) {
    if let SendOp::Cas { compare, swap, .. } = op {
        (*compare, *swap) = (done, done + 1);
    }
}

/// The answer of verified atomic number `done` is `done`, in 4 or 8 bytes.
pub(crate) fn atomic_answer(
    region: &Region,
    at: usize,
    len: usize,
    done: u64,
) -> Result<(), RunError> {
    let (found, expected) = match len {
        4 => (u64::from(region.load_u32(at)?), done & 0xffff_ffff),
        _ => (region.load_u64(at)?, done),
    };
    if found == expected {
        return Ok(());
    }
    Err(RunError::Request(format!("atomic {done} answered {found}, expected {expected}")))
}
