//! What a program asked the kernel to do with its pages at a fork: `MADV_DONTFORK`, `MADV_WIPEONFORK`.
//!
//! Owns: the question. Takes: pages of private memory, the mappings of this process. Gives: the advice that they have. Must not:
//! change an advice; let a fork happen while one is tried.
//!
//! The kernel shows advice in `smaps` alone, which walks the pages of all mappings. So an advice is given to one page of the
//! mapping: if the mapping is cut up by that, it did not have it, and the page loses it again; if not, it had. Of a mapping of
//! one page this tells nothing, and nothing is tried.
#![expect(unsafe_code, reason = "madvise")]

use super::{page_len, query::Query};

/// What becomes of pages in a forked child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ForkAdvice {
    /// The child has them.
    #[default]
    Inherit,
    /// They are not mapped in the child.
    DontFork,
    /// They are zero in the child.
    Wipe,
}

/// The advice of the private anonymous mapping of the page at `addr`, as far as it shows. The caller keeps forks away: a child
/// would have of the page what is only tried.
pub(super) fn of(query: &Query, addr: usize) -> ForkAdvice {
    let has = |advice, undo| has(query, addr, advice, undo).unwrap_or(false);
    if has(libc::MADV_DONTFORK, libc::MADV_DOFORK) {
        ForkAdvice::DontFork
    } else if has(libc::MADV_WIPEONFORK, libc::MADV_KEEPONFORK) {
        ForkAdvice::Wipe
    } else {
        ForkAdvice::Inherit
    }
}

/// `None`: it does not show.
fn has(query: &Query, addr: usize, advice: libc::c_int, undo: libc::c_int) -> Option<bool> {
    let end = addr + page_len();
    let before = query.at_or_after(addr).ok()??;
    let (begins_before, goes_on) = (before.start < addr, before.end > end);
    if before.start > addr || !begins_before && !goes_on {
        return None;
    }
    give(addr, advice)?;
    let after = query.at_or_after(addr).ok().flatten();
    // Boundaries that other threads move meanwhile are others than those of the page.
    let is_cut = after
        .is_none_or(|after| begins_before && after.start == addr || goes_on && after.end == end);
    if is_cut {
        give(addr, undo)?;
    }
    Some(!is_cut)
}

/// `None`: the kernel refuses.
fn give(addr: usize, advice: libc::c_int) -> Option<()> {
    let at = core::ptr::without_provenance_mut(addr);
    // SAFETY: the advice says what a forked child has, and changes nothing here; no fork happens meanwhile, as the caller keeps
    // forks away, so a child has what the program asked for.
    let refused = unsafe { libc::madvise(at, page_len(), advice) };
    (refused == 0).then_some(())
}
