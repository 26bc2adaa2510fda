//! Traces: the handles that a NIC looks up, in their order.
//!
//! - owns: handles, their numbers, next uses. takes: generators and files. gives: accesses. must not: do I/O.

pub mod families;
pub mod read;
pub mod synthetic;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::handle::HandleHasher;

/// Most accesses of a trace.
pub const ACCESSES_MAX: usize = 1 << 28;

/// A trace that is refused: field, value and rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {value}, which has to be {want}")]
pub struct TraceError {
    /// What is wrong: `file`, `line 7`, `record 3, time`.
    pub field: String,
    /// The value that was found.
    pub value: String,
    /// The rule that would be kept.
    pub want: String,
}

/// A sequence of handles that are accessed.
#[derive(Clone, Debug)]
pub struct HandleTrace {
    handles: Vec<u32>,
    numbers: Vec<u32>,
    distinct: u32,
}

impl HandleTrace {
    /// The trace of these handles; at least one and at most 2^28.
    pub fn new(handles: Vec<u32>) -> Result<Self, TraceError> {
        bounded(handles.len())?;
        let mut known: HashMap<u32, u32, BuildHasherDefault<HandleHasher>> = HashMap::default();
        let mut distinct = 0;
        let numbers = handles
            .iter()
            .map(|handle| {
                *known.entry(*handle).or_insert_with(|| {
                    distinct += 1;
                    distinct - 1
                })
            })
            .collect();
        Ok(Self { handles, numbers, distinct })
    }

    /// Handles in the order of their accesses.
    #[must_use]
    pub fn handles(&self) -> &[u32] {
        &self.handles
    }

    /// Number of each access's handle, by first appearance from 0 on.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Number of different handles.
    #[must_use]
    pub const fn distinct(&self) -> u32 {
        self.distinct
    }

    /// By position: the position of the next access to the same handle, `u64::MAX` for none.
    #[must_use]
    pub fn next_uses(&self) -> Arc<[u64]> {
        let mut later = vec![u64::MAX; self.distinct as usize];
        let mut next = vec![u64::MAX; self.numbers.len()];
        for (at, number) in self.numbers.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut later[*number as usize], at as u64);
        }
        next.into()
    }

    /// CRC-32 of the handles as 32-bit little-endian numbers.
    #[must_use]
    pub fn crc32(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        for handle in &self.handles {
            crc.update(&handle.to_le_bytes());
        }
        crc.finalize()
    }
}

/// Refuses a number of accesses that no trace has.
fn bounded(accesses: usize) -> Result<(), TraceError> {
    if accesses == 0 || accesses > ACCESSES_MAX {
        return Err(TraceError {
            field: "accesses".to_owned(),
            value: accesses.to_string(),
            want: format!("1 to {ACCESSES_MAX}"),
        });
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_1_to_2_to_the_28_accesses() {
        assert_eq!((bounded(1), bounded(1 << 28)), (Ok(()), Ok(())));
        for accesses in [0, (1 << 28) + 1] {
            let error = bounded(accesses).unwrap_err().to_string();
            assert_eq!(error, format!("accesses is {accesses}, which has to be 1 to 268435456"));
        }
        assert!(HandleTrace::new(Vec::new()).is_err());
        assert!(HandleTrace::new(vec![0; (1 << 28) + 1]).is_err());
        let trace = HandleTrace::new(vec![9, 4, 9, 9, 5]).unwrap();
        assert_eq!((trace.numbers(), trace.distinct()), (&[0, 1, 0, 0, 2][..], 3));
        assert_eq!(*trace.next_uses(), [2, u64::MAX, 3, u64::MAX, u64::MAX]);
        // Of 09 00 00 00 04 00 00 00 ..., by zlib.
        assert_eq!(trace.crc32(), 0x9660_eb76);
    }
}
