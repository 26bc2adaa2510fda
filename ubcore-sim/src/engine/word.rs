//! Atomics on one word of memory.
//!
//! *Owns*: what each operation does. *Takes*: a place and operands. *Gives*: the old value. *Must not*: check rights;
//! the callers did.

use udma_abi::{CqeStatus, FetchKind};
use urma_mem::{Region, WordAtomic};

/// Executes the atomic of an entry on `len` bytes; refused if the address is not aligned to them. Returns the old
/// value.
#[inline(always)]
pub(crate) fn atomic_at(
    (memory, offset): (&Region, usize),
    len: u64,
    kind: FetchKind,
    (operand, compare): (u64, u64),
) -> Result<u64, CqeStatus> {
    let before = match len {
        4 => {
            let op = operation(kind, low32(operand), low32(compare));
            memory.atomic_u32(offset, op).ok().map(u64::from)
        }
        8 => memory.atomic_u64(offset, operation(kind, operand, compare)).ok(),
        _ => None,
    };
    before.ok_or(CqeStatus::RemUnsupportedReq)
}

/// The memory operation of an atomic.
#[inline(always)]
pub(crate) fn operation<T>(kind: FetchKind, operand: T, compare: T) -> WordAtomic<T> {
    match kind {
        FetchKind::Cas => WordAtomic::Cas { cmp: compare, swap: operand },
        FetchKind::Swap => WordAtomic::Swap(operand),
        FetchKind::FetchAdd => WordAtomic::Add(operand),
        FetchKind::FetchSub => WordAtomic::Sub(operand),
        FetchKind::FetchAnd => WordAtomic::And(operand),
        FetchKind::FetchOr => WordAtomic::Or(operand),
        FetchKind::FetchXor => WordAtomic::Xor(operand),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4-byte operands lie in the low half")]
pub(crate) const fn low32(word: u64) -> u32 {
    word as u32
}
