//! Path MTU of one direction of a TP, found by probes in the packets themselves, in the spirit of RFC 8899.
//!
//! Must not count a size as passing before its echo; read a clock, draw a random number.

use udma_abi::Nanos;
use urma_packet::{DATA_OVERHEAD, Mtu, PathProbe};

/// Probes of one size without an echo before the size counts as too long.
const TRIES: u32 = 3;
/// Wait for the echo of the first of them, in nanoseconds; doubled for each further one.
const WAIT_NS: Nanos = 10_000_000;
/// Sizes closer to each other, in bytes, are not distinguished.
const STEP: usize = 32;
/// Wait before a size larger than the one found is tried, at first and at most, in nanoseconds; doubles.
const RAISE_MIN_NS: Nanos = 1_000_000_000;
const RAISE_MAX_NS: Nanos = 600_000_000_000;
/// Rounds in which a short probe returns and a long one does not, before the path counts as shrunk.
const STRIKES: u32 = 3;
/// Copies of the short probe in a round: a round without its echo shows nothing, and random loss seldom hits two
/// packets in a row.
const SHORT_COPIES: u8 = 2;
/// Most rounds of one doubt: the timer of the TP finds a dead peer.
const ROUNDS: u32 = 6;
/// Most sizes given up whose echo may still arrive.
const LATE_MAX: usize = 4;
/// MTUs of common links, the largest first (bytes of IP packets).
const LINKS: [usize; 5] = [9000, 1500, 1492, 1280, 576];
/// Headers of IP and UDP, in bytes: of IPv4 and IPv6.
const IP_V4: usize = 28;
const IP_V6: usize = 48;

/// A size that is being probed.
#[derive(Clone, Copy, Debug)]
struct Question {
    payload: usize,
    /// Nonce of the probes of this size; drawn when the first one is sent.
    nonce: Option<u64>,
    tries: u32,
    /// Whether to send a probe now.
    due: bool,
    deadline: Nanos,
}

/// A doubt whether a size that passed before still does.
#[derive(Clone, Copy, Debug)]
struct MtuDoubt {
    /// Nonces of the short and the long probe; drawn when they are sent.
    short: Option<u64>,
    long: Option<u64>,
    /// Copies of the short probe to be sent now.
    short_due: u8,
    long_due: bool,
    short_echoed: bool,
    strikes: u32,
    rounds: u32,
    deadline: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum MtuStage {
    /// No TP, or one that has to be replaced.
    Closed,
    /// The first size of a TP is being probed.
    First,
    /// Larger sizes are being probed.
    Search,
    /// Found; a larger one is tried from then on, if there is traffic.
    Found { raise_at: Nanos },
    /// Packets of the proven size are lost.
    Doubt(MtuDoubt),
}

/// A change for the log: packets of `old` bytes of payload passed, now those of `new` do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MtuChange {
    pub(crate) old: usize,
    pub(crate) new: usize,
}

/// Planted faults, for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MtuFaults {
    /// A probe that was sent counts as passed.
    pub(crate) no_echo: bool,
    /// A path never shrinks.
    pub(crate) never_shrinks: bool,
}

/// State of the path MTU discovery of one peer; outlives its TPs.
///
/// A TP starts with [`Mtu::MIN`], which passes every path, and asks at once about the largest size that may pass;
/// until that answer nothing is cut into packets ([`PathMtu::is_first`]). What the system says of the route is a
/// hint: any host that knows two addresses can forge the ICMP message that it believes. So the size that it names is
/// asked about, then a larger one; where that passes, the system was lied to. What gets no echo is followed by the
/// sizes of common links, then by halves. Packets of a TP stay as they were cut, so a TP whose packets do not pass
/// any more is replaced.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// Headers of IP and UDP, in bytes.
    ip_overhead: usize,
    faults: MtuFaults,
    /// Most payload that both nodes allow.
    limit: usize,
    /// Most payload that the system lets leave this host; `usize::MAX`: unknown.
    system: usize,
    proven: usize,
    /// Larger sizes are known not to pass.
    ceiling: usize,
    /// The next size to probe.
    aim: Option<usize>,
    asked: Option<Question>,
    late: Vec<PathProbe>,
    stage: MtuStage,
    raise_ns: Nanos,
    /// When a larger size is tried; a doubt does not delay it. `None`: the search is not over.
    raise_at: Option<Nanos>,
    /// Most payload that the system claims to pass on the route; `None`: no claim, or a false one.
    hint: Option<usize>,
    /// A claim that a larger packet disproved, for the log.
    disproved: Option<usize>,
    /// Size before the path shrank, until the new one is found.
    shrunk_from: Option<usize>,
    change: Option<MtuChange>,
    has_shrunk: bool,
}

impl PathMtu {
    /// For a peer without a TP so far; `limit` is this node's limit in bytes of payload.
    pub(crate) fn new(limit: usize, is_v4: bool, faults: MtuFaults) -> Self {
        Self {
            ip_overhead: if is_v4 { IP_V4 } else { IP_V6 },
            faults,
            limit,
            system: usize::MAX,
            proven: Mtu::MIN.bytes(),
            ceiling: usize::MAX,
            aim: None,
            asked: None,
            late: Vec::new(),
            stage: MtuStage::Closed,
            raise_ns: RAISE_MIN_NS,
            raise_at: None,
            hint: None,
            disproved: None,
            shrunk_from: None,
            change: None,
            has_shrunk: false,
        }
    }

    /// Starts on another path than `before`: the size that passed there is probed first.
    pub(crate) fn begin_with(&mut self, before: Option<&Self>) {
        self.aim = before.map(|before| before.proven).filter(|size| *size > Mtu::MIN.bytes());
    }

    /// Starts with a new TP, whose ends allow `limit` bytes of payload.
    pub(crate) fn open(&mut self, limit: usize) {
        self.limit = limit;
        self.proven = Mtu::MIN.bytes().min(limit);
        self.ceiling = self.ceiling.min(limit);
        self.aim = Some(self.aim.unwrap_or(self.ceiling).min(limit));
        self.asked = None;
        self.raise_at = None;
        self.late.clear();
        self.has_shrunk = false;
        self.stage = if limit > self.proven { MtuStage::First } else { MtuStage::Search };
    }

    /// Ends with the TP.
    pub(crate) fn close(&mut self) {
        self.stage = MtuStage::Closed;
        self.asked = None;
        self.late.clear();
        self.has_shrunk = false;
    }

    /// Payload bytes of the packets of a message except the last.
    pub(crate) const fn payload(&self) -> usize {
        self.proven
    }

    /// Payload bytes of a message outside of the TP: what may leave this host, since nothing shows whether it
    /// arrives.
    pub(crate) fn datagram_max(&self) -> usize {
        // Such a packet has up to 24 bytes more headers than one of a TP.
        self.limit.min(self.system.saturating_sub(24).max(Mtu::MIN.bytes()))
    }

    /// Whether the answer to the first probe of the TP is outstanding: data cut into packets now would be cut into
    /// small ones.
    pub(crate) const fn is_first(&self) -> bool {
        matches!(self.stage, MtuStage::First)
    }

    /// Whether the TP must be replaced: its packets no longer pass.
    pub(crate) const fn has_shrunk(&self) -> bool {
        self.has_shrunk
    }

    /// The path MTU after a path shrank, once, when it is found.
    pub(crate) fn take_change(&mut self) -> Option<MtuChange> {
        self.change.take()
    }

    /// The size, in bytes of payload, that the system claimed as the most although longer packets pass, once.
    pub(crate) fn take_disproved(&mut self) -> Option<usize> {
        self.disproved.take()
    }

    // Inputs.

    /// Takes a probe that the peer returned. Returns whether it was one of the current ones: any other proves
    /// nothing.
    pub(crate) fn on_echo(&mut self, now: Nanos, echo: &PathProbe) -> bool {
        let size = usize::from(echo.size);
        let Some(payload) = size.checked_sub(DATA_OVERHEAD) else { return false };
        let is_asked = self
            .asked
            .is_some_and(|asked| asked.nonce == Some(echo.nonce) && asked.payload == payload);
        if is_asked {
            self.asked = None;
            self.prove(payload);
            self.go_on(now);
            return true;
        }
        if let Some(at) = self.late.iter().position(|late| late == echo) {
            self.late.swap_remove(at);
            self.prove(payload);
            return true;
        }
        self.on_doubt_echo(now, echo.nonce, payload)
    }

    fn on_doubt_echo(&mut self, now: Nanos, nonce: u64, payload: usize) -> bool {
        let MtuStage::Doubt(doubt) = &mut self.stage else { return false };
        if doubt.long == Some(nonce) && payload == self.proven {
            self.stage = MtuStage::Search;
            self.prove(payload);
            self.go_on(now);
            return true;
        }
        let is_short = doubt.short == Some(nonce) && payload == Mtu::MIN.bytes();
        doubt.short_echoed |= is_short;
        is_short
    }

    /// Notes that a packet longer than the smallest ones was not acknowledged in time.
    pub(crate) fn on_loss(&mut self, now: Nanos) {
        let passes = self.proven > Mtu::MIN.bytes() && !self.faults.never_shrinks;
        if passes && matches!(self.stage, MtuStage::Search | MtuStage::Found { .. }) {
            self.asked = None;
            self.stage = MtuStage::Doubt(MtuDoubt {
                short: None,
                long: None,
                short_due: SHORT_COPIES,
                long_due: true,
                short_echoed: false,
                strikes: 0,
                rounds: 0,
                deadline: now.saturating_add(WAIT_NS),
            });
        }
    }

    /// Notes that the system refused a datagram to the peer: it claims that packets on the route may have at most
    /// `ip_mtu` bytes.
    pub(crate) fn on_too_long(&mut self, now: Nanos, ip_mtu: usize) {
        let most = payload_of(ip_mtu, self.ip_overhead);
        self.system = most.max(self.proven);
        self.hint = Some(most);
        if matches!(self.stage, MtuStage::Closed) {
            self.aim = Some(most);
            return;
        }
        match self.asked.filter(|asked| asked.payload > most) {
            // The refused datagram was the probe.
            Some(asked) => {
                self.ceiling = self.ceiling.min(asked.payload - 4).max(self.proven);
                self.asked = None;
                self.aim = Some(most);
                self.go_on(now);
            }
            None if self.proven > most => self.on_loss(now),
            None => {}
        }
    }

    /// Notes that there is something to send: it may be time to try a larger size.
    pub(crate) fn on_traffic(&mut self, now: Nanos) {
        let MtuStage::Found { raise_at } = self.stage else { return };
        if now >= raise_at && self.proven < self.limit {
            self.raise_ns = self.raise_ns.saturating_mul(2).min(RAISE_MAX_NS);
            self.ceiling = self.limit;
            self.system = usize::MAX;
            self.aim = Some(self.limit);
            self.raise_at = None;
            self.stage = MtuStage::Search;
            self.go_on(now);
        }
    }

    /// Gives up sizes without an echo in time, and decides doubts.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        match &mut self.stage {
            MtuStage::Closed | MtuStage::Found { .. } => {}
            MtuStage::First | MtuStage::Search => self.on_search_time(now),
            MtuStage::Doubt(doubt) if now >= doubt.deadline => {
                doubt.strikes += u32::from(doubt.short_echoed);
                doubt.rounds += 1;
                if doubt.strikes >= STRIKES {
                    let ceiling = self.proven - 4;
                    self.shrink(ceiling);
                    self.system = self.hint.unwrap_or(usize::MAX);
                    self.aim = self.hint.filter(|hint| *hint <= ceiling);
                    self.aim = self.next_size();
                } else if doubt.rounds >= ROUNDS {
                    self.stage = MtuStage::Search;
                } else {
                    (doubt.short, doubt.short_echoed) = (None, false);
                    (doubt.short_due, doubt.long_due) = (SHORT_COPIES, true);
                    doubt.deadline = now.saturating_add(WAIT_NS << doubt.rounds);
                }
            }
            MtuStage::Doubt(_) => {}
        }
    }

    fn on_search_time(&mut self, now: Nanos) {
        match &mut self.asked {
            Some(asked) if now < asked.deadline || asked.due => {}
            Some(asked) if asked.tries < TRIES => asked.due = true,
            Some(asked) => {
                let failed = *asked;
                self.ceiling = failed.payload - 4;
                self.asked = None;
                self.give_up(&failed);
                if self.is_first() {
                    self.stage = MtuStage::Search;
                }
                self.go_on(now);
            }
            None => self.go_on(now),
        }
    }

    // Outputs.

    /// Returns the next probe to send, if one is due. `random` gives an unpredictable number.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<PathProbe> {
        if self.asked.is_none() && matches!(self.stage, MtuStage::First | MtuStage::Search) {
            self.go_on(now);
        }
        if let MtuStage::Doubt(doubt) = &mut self.stage {
            let (nonce, payload) = if doubt.short_due > 0 {
                doubt.short_due -= 1;
                (doubt.short.get_or_insert_with(random), Mtu::MIN.bytes())
            } else if std::mem::take(&mut doubt.long_due) {
                (doubt.long.get_or_insert_with(random), self.proven)
            } else {
                return None;
            };
            return Some(probe_of(*nonce, payload));
        }
        let asked = self.asked.as_mut().filter(|asked| asked.due)?;
        asked.due = false;
        asked.deadline = now.saturating_add(WAIT_NS << asked.tries);
        asked.tries += 1;
        let probe = probe_of(*asked.nonce.get_or_insert_with(random), asked.payload);
        if self.faults.no_echo {
            let believed = self.on_echo(now, &probe);
            debug_assert!(believed, "the probe was asked about");
        }
        Some(probe)
    }

    /// Whether [`PathMtu::poll`] would give a probe.
    pub(crate) fn has_probe(&self) -> bool {
        match &self.stage {
            MtuStage::Doubt(doubt) => doubt.short_due > 0 || doubt.long_due,
            MtuStage::First | MtuStage::Search => self.asked.is_none_or(|asked| asked.due),
            MtuStage::Closed | MtuStage::Found { .. } => false,
        }
    }

    /// When [`PathMtu::on_time`] has to be called.
    pub(crate) fn poll_deadline(&self) -> Option<Nanos> {
        if self.has_shrunk || self.has_probe() {
            return Some(0);
        }
        match &self.stage {
            MtuStage::Doubt(doubt) => Some(doubt.deadline),
            MtuStage::First | MtuStage::Search => self.asked.map(|asked| asked.deadline),
            MtuStage::Closed | MtuStage::Found { .. } => None,
        }
    }

    // The search.

    /// Probes the next size, or ends the search.
    fn go_on(&mut self, now: Nanos) {
        if self.asked.is_some() || matches!(self.stage, MtuStage::Doubt(_) | MtuStage::Closed) {
            return;
        }
        let Some(payload) = self.next_size() else {
            self.ceiling = self.proven;
            let raise_at = now.saturating_add(self.raise_ns);
            self.stage = MtuStage::Found { raise_at: *self.raise_at.get_or_insert(raise_at) };
            let old = self.shrunk_from.take();
            self.change = old.map(|old| MtuChange { old, new: self.proven }).or(self.change);
            return;
        };
        self.aim = None;
        self.asked = Some(Question { payload, nonce: None, tries: 0, due: true, deadline: now });
    }

    /// The next size that may be larger than the proven one: the one aimed at, one beyond the system's claim, the
    /// largest of a common link, half of the rest.
    fn next_size(&self) -> Option<usize> {
        let open = |size: &usize| (self.proven + 1..=self.ceiling).contains(size);
        let of_links = || LINKS.iter().map(|&link| payload_of(link, self.ip_overhead)).find(open);
        let half = || {
            let left = self.ceiling.saturating_sub(self.proven);
            (left >= STEP).then(|| (self.proven + left / 2).next_multiple_of(4))
        };
        let beyond = || self.hint.filter(|hint| *hint == self.proven).map(|hint| hint + 4);
        let beyond = || beyond().filter(open);
        self.aim.filter(open).or_else(beyond).or_else(of_links).or_else(half)
    }

    fn prove(&mut self, payload: usize) {
        self.proven = self.proven.max(payload);
        self.ceiling = self.ceiling.max(payload).min(self.limit);
        if let Some(hint) = self.hint.filter(|hint| payload > *hint) {
            (self.hint, self.disproved, self.system) = (None, Some(hint), usize::MAX);
        }
        if self.is_first() {
            self.stage = MtuStage::Search;
        }
    }

    fn give_up(&mut self, failed: &Question) {
        if let Some(nonce) = failed.nonce {
            if self.late.len() == LATE_MAX {
                self.late.remove(0);
            }
            self.late.push(probe_of(nonce, failed.payload));
        }
    }

    /// Shrinks the path, since packets of the proven size no longer pass: at most those of `ceiling` do.
    fn shrink(&mut self, ceiling: usize) {
        self.shrunk_from.get_or_insert(self.proven);
        self.proven = Mtu::MIN.bytes();
        self.ceiling = ceiling.max(self.proven);
        self.aim = Some(self.ceiling);
        self.raise_ns = RAISE_MIN_NS;
        self.close();
        self.has_shrunk = true;
    }
}

/// Most payload of packets on a link with an MTU of `ip_mtu` bytes.
fn payload_of(ip_mtu: usize, ip_overhead: usize) -> usize {
    let most = ip_mtu.saturating_sub(ip_overhead + DATA_OVERHEAD) / 4 * 4;
    most.clamp(Mtu::MIN.bytes(), Mtu::MAX.bytes())
}

/// The probe with the length of a packet with `payload` bytes of payload and all headers.
fn probe_of(nonce: u64, payload: usize) -> PathProbe {
    // At most `Mtu::MAX`.
    PathProbe { nonce, size: u16::try_from(DATA_OVERHEAD + payload).unwrap_or(u16::MAX) }
}

#[cfg(test)]
mod tests;
