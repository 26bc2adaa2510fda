//! Traces: the handles that a NIC looks up, in their order.
//!
//! - owns: handles, their numbers, next uses. takes: generators and files. gives: accesses. must not: do I/O.

pub mod families;
pub mod read;
pub mod synthetic;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::hash::HandleHasher;

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
        if handles.is_empty() || handles.len() > ACCESSES_MAX {
            return Err(TraceError {
                field: "accesses".to_owned(),
                value: handles.len().to_string(),
                want: format!("1 to {ACCESSES_MAX}"),
            });
        }
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
