//! Completions as an iterator that never waits.
//!
//! *Owns*: how many it may still give. *Takes*: the JFC, by `&mut`: there is no other poll
//! meanwhile. *Must not*: take a completion that it does not give: a drain that is dropped loses
//! nothing.

use crate::{Completion, Jfc, Status};

/// What [`Jfc::drain`] gives: what has completed, at most as many as the JFC is deep.
///
/// It ends at the first empty poll, and after an error. Each step polls once for one completion;
/// `for_each`, `fold`, `count` and other methods that consume the whole iterator poll in batches.
#[derive(Debug)]
#[must_use = "an iterator polls nothing until it is asked"]
pub struct Drain<'a> {
    jfc: &'a mut Jfc,
    left: usize,
}

impl<'a> Drain<'a> {
    pub(crate) fn new(jfc: &'a mut Jfc) -> Self {
        let left = usize::try_from(jfc.cfg().depth).unwrap_or(usize::MAX);
        Self { jfc, left }
    }
}

impl Iterator for Drain<'_> {
    type Item = Result<Completion, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let polled = self.jfc.poll_one();
        self.left = if matches!(polled, Ok(Some(_))) { self.left - 1 } else { 0 };
        polled.transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // With the error that may follow the last completion.
        (0, self.left.checked_add(1))
    }

    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut give: F) -> B {
        let (mut sum, mut left) = (init, self.left);
        let mut batch = [Completion::default(); BATCH];
        while left > 0 {
            let room = left.min(BATCH);
            match self.jfc.poll(&mut batch[..room]) {
                Ok(0) => break,
                Ok(count) => {
                    let come = batch.iter().take(count);
                    sum = come.fold(sum, |sum, completion| give(sum, Ok(*completion)));
                    left -= count.min(left);
                }
                Err(status) => return give(sum, Err(status)),
            }
        }
        sum
    }
}

impl std::iter::FusedIterator for Drain<'_> {}

/// Completions per poll; of some 100 bytes each, on the stack.
const BATCH: usize = 16;
