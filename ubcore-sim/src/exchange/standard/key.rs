//! Remote keys: how 32 bits name a segment and prove its token.
//!
//! *Owns*: the rule, the segments of recent keys. *Takes*: keys from peers. *Gives*: token ids. *Must not*: take a
//! time that depends on how much of a key is right.
//!
//! The key of a segment is the sum of its token id and its token value modulo 2^32; without a token, its token id. So
//! a node that imported a segment can compute it, and segments with the same token have different keys.

use std::collections::BTreeMap;

use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::context::segment::{LocalSegment, SegmentTable};

/// Number of keys that are remembered.
const KNOWN_MAX: usize = 1024;

/// The key of a segment.
pub(super) const fn key_of(token_id: u32, token: Option<u32>) -> u32 {
    let token = match token {
        Some(token) => token,
        None => 0,
    };
    token_id.wrapping_add(token)
}

/// Whether a segment has this key.
fn has_key(segment: &LocalSegment, key: u32) -> bool {
    key_of(segment.token_id, segment.token).ct_eq(&key).into()
}

/// Token ids of keys that peers used.
#[derive(Debug, Default)]
pub(super) struct RemoteKeys {
    known: BTreeMap<u32, u32>,
}

impl RemoteKeys {
    /// Returns the token id of a segment that has this key now. Only commands change segments, and none runs before a
    /// packet is done.
    pub(super) fn find(&mut self, table: &SegmentTable, key: u32) -> Option<u32> {
        if let Some(token_id) = self.known.get(&key)
            && table.find(*token_id).is_some_and(|segment| has_key(&segment, key))
        {
            return Some(*token_id);
        }
        // Always all of them. A key that no segment has ends its connection, so this does not repeat.
        let found = table.fold(0, |found, segment| {
            let fits = key_of(segment.token_id, segment.token).ct_eq(&key);
            u32::conditional_select(&found, &segment.token_id, fits)
        });
        if found == 0 {
            return None;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, found);
        Some(found)
    }
}
