//! Memory for long vectors that is used again: that of the system would come as new pages for each operation.
//!
//! - owns: buffers that were given out, as long as they are no longer than [`KEPT_MAX`] together.
//! - takes: bytes to copy, lengths. gives: vectors.
//! - must not: give a buffer that is still in use.

use std::sync::Arc;

/// Shorter vectors come from the allocator, which has them at hand.
const LONG: usize = 32 << 10;
/// Bytes that are kept at most.
const KEPT_MAX: usize = 64 << 20;

/// Long vectors of one member.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Given out; free again once no other holds one.
    kept: Vec<Arc<Vec<u8>>>,
}

impl Buffers {
    /// A copy of some bytes.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Arc<Vec<u8>> {
        let mut copy = self.take(bytes.len());
        copy.clear();
        copy.extend_from_slice(bytes);
        self.share(copy)
    }

    /// A vector of this length; its bytes are any.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let fits = |buffer: &Arc<Vec<u8>>| {
            // A short vector does not hold a long buffer back.
            Arc::strong_count(buffer) == 1 && (len..=4 * len).contains(&buffer.capacity())
        };
        let free = (len >= LONG).then(|| self.kept.iter().position(fits)).flatten();
        match free.map(|at| Arc::try_unwrap(self.kept.swap_remove(at))) {
            Some(Ok(mut buffer)) => {
                buffer.resize(len, 0);
                buffer
            }
            Some(Err(_)) | None => vec![0; len],
        }
    }

    /// Shares a vector, whose memory is used again when all have dropped it.
    pub(crate) fn share(&mut self, vector: Vec<u8>) -> Arc<Vec<u8>> {
        let shared = Arc::new(vector);
        if shared.len() >= LONG {
            self.kept.push(Arc::clone(&shared));
            // The oldest ones go: those who have them keep them.
            let mut bytes: usize = self.kept.iter().map(|buffer| buffer.capacity()).sum();
            while bytes > KEPT_MAX {
                bytes -= self.kept.remove(0).capacity();
            }
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_when_all_have_dropped_it() {
        let mut buffers = Buffers::default();
        let first = buffers.copy(&[1; LONG]);
        let at = first.as_ptr();
        let other = buffers.copy(&[2; LONG]);
        assert_ne!(other.as_ptr(), at, "the first one is in use");
        assert!(first.iter().all(|byte| *byte == 1));
        let reader = Arc::clone(&first);
        drop(first);
        assert_ne!(buffers.copy(&[3; LONG]).as_ptr(), at, "a reader has it");
        drop(reader);
        let shorter = buffers.copy(&[4; LONG]);
        assert_eq!((shorter.as_ptr(), shorter.len()), (at, LONG));
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let mut buffers = Buffers::default();
        let all: Vec<_> = (0..5).map(|_| buffers.copy(&vec![7; KEPT_MAX / 4])).collect();
        assert_eq!(buffers.kept.len(), 4);
        let newest = all[4].as_ptr();
        drop(all);
        assert!(buffers.kept.iter().any(|buffer| buffer.as_ptr() == newest));
        assert_eq!(buffers.take(LONG).len(), LONG);
        assert_eq!(buffers.kept.len(), 4, "a short vector does not take a long buffer");
        buffers.share(vec![0; LONG - 1]);
        assert_eq!(buffers.kept.len(), 4, "short ones are not kept");
    }
}
