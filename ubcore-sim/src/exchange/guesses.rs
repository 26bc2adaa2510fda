//! Tokens that a node shows without ever having been right: how many of them are judged.
//!
//! *Owns*: what one node may still guess, and what it showed rightly. *Takes*: requests, results,
//! time. *Gives*: how long a request waits. *Must not*: hold up what was right before; look at a
//! token of this node.
//!
//! The refusal alone cannot be what comes late: a right guess would stand out by its answer, and its
//! bytes would be placed. So a request that shows something unproven is not judged at all while its
//! node waits; the answer makes the node send it again, as when there is no receive.

use udma_abi::Nanos;
use urma_packet::{JettyId, RequestHeader, RequestOp, TokenId, TokenValue};

/// Wrong guesses of one node that are judged without a wait.
const BURST: u64 = 32;
/// Time after which one more is judged, in nanoseconds.
const INTERVAL_NS: Nanos = 250_000_000;
/// Time after which a node that guessed has its whole burst again, in nanoseconds.
pub(super) const FULL_NS: Nanos = BURST * INTERVAL_NS;
/// Right tokens of one node are remembered in so many places, two in each: a request shows two.
const PLACES: usize = 128;

const YEAR_NS: u128 = 365 * 24 * 3600 * 1_000_000_000;
const _: () = assert!(INTERVAL_NS as u128 * (1 << 32) > 30 * YEAR_NS, "all values of a token");

/// What a request shows: what it names, each with the token for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    /// Judged before a byte moves.
    checked: [Option<u64>; 2],
    /// Of a segment whose rights end if it is right, without a word about whether it was.
    invalidates: Option<u64>,
}

/// What came of the judgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// Everything shown was right, and the request is executed.
    Right,
    /// What is judged before a byte moves was right; more pieces or attempts follow.
    Begun,
    /// The token was wrong, or the access was refused after it.
    Wrong,
    /// Something else was wrong, before or after.
    Neither,
}

impl Shown {
    pub(super) fn by(header: &RequestHeader) -> Self {
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
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Guesses {
    /// When the whole burst is there again.
    full_at: Nanos,
    /// Right tokens, the last two at each place; empty before the first one.
    proven: Vec<[u64; 2]>,
}

impl Guesses {
    /// How long a request waits before it is judged; `None`: not at all.
    pub(super) fn wait_ns(&self, now: Nanos, shown: &Shown) -> Option<Nanos> {
        let owed = self.full_at.saturating_sub(now);
        let wait = owed.checked_sub((BURST - 1) * INTERVAL_NS).filter(|wait| *wait != 0)?;
        shown.all().any(|key| !self.is_proven(key)).then_some(wait)
    }

    /// A request was judged.
    pub(super) fn on_judged(&mut self, now: Nanos, shown: &Shown, judged: Judged) {
        let guessed = match judged {
            Judged::Right | Judged::Begun => {
                shown.checked.into_iter().flatten().for_each(|key| self.prove(key));
                // One message is one guess, however many pieces and attempts it takes. The answer
                // does not show whether this one was right, so it always counts.
                judged == Judged::Right && shown.invalidates.is_some_and(|key| !self.is_proven(key))
            }
            Judged::Wrong => shown.all().any(|key| !self.is_proven(key)),
            Judged::Neither => false,
        };
        if guessed {
            self.full_at = self.full_at.max(now).saturating_add(INTERVAL_NS);
        }
    }

    /// Whether the node ever guessed.
    pub(super) fn is_used(&self) -> bool {
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

#[inline]
fn place(key: u64) -> usize {
    usize::try_from(key >> 33).unwrap_or(0) % PLACES
}
