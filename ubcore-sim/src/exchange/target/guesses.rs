//! Rate limit for token guesses: requests of nodes with a token that was never right.
//!
//! What one node may still guess, what all nodes together may guess at one target, and which tokens a node has
//! proven. Must not delay a token that was right before, or read a token of this node.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};
use urma_packet::{JettyId, RequestHeader, RequestOp, TokenId, TokenValue};

use crate::exchange::owners::{LoopbackOwners, PlaceOwner};

/// Wrong guesses of one node that are evaluated without a wait.
const BURST: u64 = 32;
/// Time for one more guess, in nanoseconds.
const INTERVAL_NS: Nanos = 250_000_000;
/// Time after which a node that guessed has its whole budget again, in nanoseconds.
pub(crate) const FULL_NS: Nanos = BURST * INTERVAL_NS;
/// Cache of a node's right tokens: so many sets of two, since a request shows two.
const PLACES: usize = 128;

/// Wrong guesses of all nodes at one target that are evaluated without a wait.
const TARGET_BURST: u64 = 256;
/// Time for one more guess at a target, in nanoseconds.
const TARGET_INTERVAL_NS: Nanos = 16_000_000;
/// Targets share so many counters, by a hash, so that none is forgotten in favour of another.
const TARGET_COUNTS: usize = 1024;
/// Guesses that a source has beyond the limits of targets.
const SOURCE_BURST: u8 = 4;
/// Time after its last guess until it has them again, in nanoseconds.
const SOURCE_NS: Nanos = 3_600_000_000_000;
/// Most sources that are remembered; beyond it, new ones are delayed by each other's guesses, too.
const SOURCES_MAX: usize = 1 << 16;

const YEAR_NS: u128 = 365 * 24 * 3600 * 1_000_000_000;
const _: () = assert!(INTERVAL_NS as u128 * (1 << 32) > 30 * YEAR_NS, "all values by one node");
const _: () =
    assert!(TARGET_INTERVAL_NS as u128 * (1 << 32) > 2 * YEAR_NS, "all values by all nodes");

/// What a request shows: each thing that it names, with the token for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// Checked before a byte moves.
    checked: [Option<u64>; 2],
    /// Token of a segment to be invalidated; the answer does not say whether it was right.
    invalidates: Option<u64>,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// Every token was right, and the request is executed.
    Right,
    /// The tokens checked before a byte moves were right; more pieces or attempts follow.
    Begun,
    /// The token was wrong, or the access was refused after it.
    Wrong,
    /// Something else was wrong, before or after the token.
    Neither,
}

impl Shown {
    pub(crate) fn by(header: &RequestHeader) -> Self {
        let segment = |id: TokenId, token| Some(key(SEGMENT, id.value(), token));
        let queue = |token| {
            let target = header.target?;
            Some(key(u64::from(target.kind.code()) + QUEUE, target.id.value(), token))
        };
        let memory = || segment(header.access.token_id, header.token);
        let mut invalidates = None;
        let checked = match header.op {
            RequestOp::FlushDma => [None, None],
            RequestOp::Send | RequestOp::SendImm(_) => [queue(header.token), None],
            RequestOp::SendInvalidate(of) => {
                invalidates = segment(of.token_id, Some(of.token));
                [queue(header.token), None]
            }
            RequestOp::WriteImm(notice) => [memory(), queue(notice.token)],
            RequestOp::WriteNotify(to) | RequestOp::WriteAtomicAdd(to) => {
                [memory(), segment(to.token_id, Some(to.token))]
            }
            RequestOp::Write | RequestOp::Read | RequestOp::Atomic(..) => [memory(), None],
        };
        Self { checked, invalidates }
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.checked.into_iter().chain([self.invalidates]).flatten()
    }
}

const SEGMENT: u64 = 1;
const QUEUE: u64 = 2;

/// One word for what is named and the token shown for it; never 0.
fn key(kind: u64, id: u32, token: Option<TokenValue>) -> u64 {
    let shown = token.map_or(0, |token| 1 << 32 | u64::from(token.0));
    kind << (33 + JettyId::BITS) | u64::from(id) << 33 | shown
}

/// The guesses of one node.
///
/// Delaying only the refusal would not be enough: a right guess would stand out by its answer, and its bytes would be
/// placed. So a request with an unproven token is not evaluated at all while its node waits; the answer makes the
/// node send it again, as if there were no receive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Guesses {
    /// When the whole budget is there again.
    full_at: Nanos,
    /// Proven tokens, the last two in each set; empty before the first one.
    proven: Vec<[u64; 2]>,
}

impl Guesses {
    /// How long a request has to wait before it is evaluated; `None`: no wait.
    pub(crate) fn wait_ns(&self, now: Nanos, shown: &Shown) -> Option<Nanos> {
        let owed = self.full_at.saturating_sub(now);
        let wait = owed.checked_sub((BURST - 1) * INTERVAL_NS).filter(|wait| *wait != 0)?;
        self.is_guess(shown).then_some(wait)
    }

    /// Whether a request shows something that was not right before.
    pub(crate) fn is_guess(&self, shown: &Shown) -> bool {
        shown.all().any(|key| !self.is_proven(key))
    }

    /// Notes the result of a request. Returns whether it was a guess that counts.
    pub(crate) fn on_judged(&mut self, now: Nanos, shown: &Shown, judged: Judged) -> bool {
        let guessed = match judged {
            Judged::Right | Judged::Begun => {
                shown.checked.into_iter().flatten().for_each(|key| self.prove(key));
                // One message is one guess, however many pieces and attempts it takes. The answer does not show
                // whether this one was right, so it always counts.
                judged == Judged::Right && shown.invalidates.is_some_and(|key| !self.is_proven(key))
            }
            Judged::Wrong => self.is_guess(shown),
            Judged::Neither => false,
        };
        if guessed {
            self.full_at = self.full_at.max(now).saturating_add(INTERVAL_NS);
        }
        guessed
    }

    /// Whether the node ever guessed.
    pub(crate) fn is_used(&self) -> bool {
        self.full_at != 0
    }

    #[inline]
    fn is_proven(&self, key: u64) -> bool {
        self.proven.get(place(key)).is_some_and(|two| two.contains(&key))
    }

    #[inline]
    fn prove(&mut self, key: u64) {
        if self.proven.is_empty() {
            self.proven.resize(PLACES, [0; 2]);
        }
        let two = &mut self.proven[place(key)];
        if !two.contains(&key) {
            *two = [key, two[0]];
        }
    }
}

/// Source of guesses: the owner of a place, but each address of an IPv4 /24 alone, by its last byte.
pub(crate) type Guesser = (PlaceOwner, u8);

/// The guesses of all nodes at each target.
///
/// A node costs its sender only an address, of which a process has as many as it wants. So the limit per target is
/// what protects a token; the limit per node keeps one node from using it up. A source that has hardly guessed is not
/// delayed by the guesses of others. A source is a user (from the socket at a loopback address), an IPv4 address, or
/// an IPv6 /64.
#[derive(Debug, Default)]
pub(crate) struct TargetGuesses {
    /// When the whole budget is there again, for the targets of each counter; empty before the first guess.
    full_at: Vec<Nanos>,
    /// When the budgets of all targets are whole again.
    all_full_at: Nanos,
    /// Sources that guessed: how often, and when last.
    sources: BTreeMap<Guesser, (u8, Nanos)>,
}

impl TargetGuesses {
    /// Whether guesses at some target are delayed.
    #[inline]
    pub(crate) fn is_used(&self, now: Nanos) -> bool {
        self.all_full_at > now
    }

    /// How long a source's guess has to wait before it is evaluated; `None`: no wait.
    pub(crate) fn wait_ns(&self, now: Nanos, by: Guesser, shown: &Shown) -> Option<Nanos> {
        let full_at = shown.all().filter_map(|key| self.full_at.get(count_of(key))).max()?;
        let owed = full_at.saturating_sub(now);
        let wait = owed.checked_sub((TARGET_BURST - 1) * TARGET_INTERVAL_NS)?;
        (wait != 0 && !self.is_trusted(now, by)).then_some(wait)
    }

    /// Whether a source has hardly guessed so far.
    fn is_trusted(&self, now: Nanos, by: Guesser) -> bool {
        match self.sources.get(&by) {
            Some((times, last)) => *times < SOURCE_BURST || now.saturating_sub(*last) > SOURCE_NS,
            None => self.sources.len() < SOURCES_MAX,
        }
    }

    /// Notes that a source's guess was wrong, or may have been.
    pub(crate) fn on_guess(&mut self, now: Nanos, by: Guesser, shown: &Shown) {
        self.full_at.resize(TARGET_COUNTS, 0);
        for key in shown.all() {
            let full_at = &mut self.full_at[count_of(key)];
            *full_at = (*full_at).max(now).saturating_add(TARGET_INTERVAL_NS);
            self.all_full_at = self.all_full_at.max(*full_at);
        }
        if self.sources.len() == SOURCES_MAX {
            self.sources.retain(|_, (_, last)| now.saturating_sub(*last) <= SOURCE_NS);
        }
        if self.sources.len() < SOURCES_MAX || self.sources.contains_key(&by) {
            let (times, last) = self.sources.entry(by).or_insert((0, now));
            let before = if now.saturating_sub(*last) > SOURCE_NS { 0 } else { *times };
            (*times, *last) = (before.saturating_add(1), now);
        }
    }
}

/// The source that a node's guesses count for.
pub(crate) fn guesser(
    owners: &mut LoopbackOwners,
    now: Nanos,
    eid: RawEid,
    find: fn() -> Vec<(RawEid, u32)>,
) -> Guesser {
    // An address of another host shows by itself whose it is.
    if matches!(owners.source(eid), PlaceOwner::User(_) | PlaceOwner::Unowned) {
        owners.look(now, find);
    }
    let source = owners.source(eid);
    let address = if matches!(source, PlaceOwner::Net4(_)) { eid.0[15] } else { 0 };
    (source, address)
}

/// The counter of the target that a key names.
fn count_of(key: u64) -> usize {
    // The golden ratio puts consecutive numbers far apart.
    let spread = (key >> 33).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(spread).unwrap_or(0) % TARGET_COUNTS
}

#[inline]
fn place(key: u64) -> usize {
    usize::try_from(key >> 33).unwrap_or(0) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn loopback(last: u8) -> RawEid {
        RawEid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 9, 0, last])
    }

    /// All addresses of a user are one source, those of another one another.
    #[test]
    fn who_guesses_from_many_addresses_of_a_host_is_one() {
        let users: fn() -> Vec<(RawEid, u32)> =
            || (0..=254).map(|last| (loopback(last), 1000 + u32::from(last == 254))).collect();
        let mut owners = LoopbackOwners::default();
        let mut by = |last| guesser(&mut owners, 1, loopback(last), users);
        let shown = Shown {
            checked: [Some(key(SEGMENT, 2, Some(TokenValue(7)))), None],
            invalidates: None,
        };
        let elsewhere = Shown { checked: [Some(key(SEGMENT, 3, None)), None], invalidates: None };
        let mut targets = TargetGuesses::default();
        for last in 0..200 {
            targets.on_guess(0, by(last), &shown);
        }
        assert_eq!(targets.wait_ns(0, by(201), &shown), None, "the burst");
        for last in 0..56 {
            targets.on_guess(0, by(last), &shown);
        }
        assert_eq!(
            targets.wait_ns(0, by(201), &shown),
            Some(TARGET_INTERVAL_NS),
            "a fresh address"
        );
        assert_eq!(targets.wait_ns(0, by(254), &shown), None, "another user");
        assert_eq!(targets.wait_ns(0, by(201), &elsewhere), None, "another target");
        for _ in 0..SOURCE_BURST {
            assert_eq!(targets.wait_ns(0, by(254), &shown), None);
            targets.on_guess(0, by(254), &shown);
        }
        assert!(targets.wait_ns(0, by(254), &shown).is_some(), "it guesses, too");
        assert!(!targets.is_used(10 * SECOND));
    }

    /// Sources that are not remembered get nothing for it.
    #[test]
    fn more_sources_than_are_remembered_have_no_guesses_of_their_own() {
        let shown = Shown { checked: [Some(key(SEGMENT, 2, None)), None], invalidates: None };
        let mut targets = TargetGuesses::default();
        for n in (0_u32..).take(SOURCES_MAX) {
            let by = (PlaceOwner::User(n), 0);
            targets.on_guess(0, by, &shown);
        }
        let fresh = (PlaceOwner::User(1 << 20), 0);
        assert!(targets.wait_ns(0, fresh, &shown).is_some());
        targets.on_guess(0, fresh, &shown);
        assert_eq!(targets.sources.len(), SOURCES_MAX);
        targets.on_guess(SOURCE_NS + 1, fresh, &shown);
        assert_eq!(targets.sources.len(), 1, "an hour later");
    }
}
