//! Nodes on this host: finding them, being found, and noticing that they are gone.
//!
//! *Owns*: the claim's connections, one per pair of nodes, and the state of each. *Takes*: requests of the core,
//! readiness, time. *Gives*: [`PeerEvent`]s. *Must not*: block; look into shared memory; trust anything from a
//! connection beyond what it checked.
//!
//! One connection serves both directions: the connecting side sends an offer, the accepting side answers. When two
//! nodes connect to each other at the same time, the connection of the lower EID is kept.

pub(crate) mod files;
pub mod hello;
mod offer;
mod shake;
mod shortage;
pub mod trust;

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::OwnedFd,
    sync::Arc,
};

pub use offer::{KernelReads, LocalShare};
use offer::{SharingOffer, parts};
use shortage::{Noise, RetryPause, Shortages};
use udma_abi::{CmdStatus, Nanos, RawEid};

use super::{
    claim::{self, Claim, Connect},
    descriptor::ForkGuarded,
    peer::files::MappedFiles,
    peer::hello::{HelloKind, SharingRefusal},
    peer::trust::{Credentials, Distrust, ShareWith},
    scheduler::poll::{Interest, Poll},
};
use crate::ports::{Deadline, SameHostParts};

/// Which paths to other nodes may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PathChoice {
    /// The same-host path where it works, else packets.
    #[default]
    Auto,
    /// Only the same-host path.
    SameHost,
    /// Packets only, also to nodes of this host.
    Packets,
}

/// Event about a peer.
#[derive(Debug)]
pub enum PeerEvent {
    /// The same-host path is open.
    SameHost {
        /// EID of the peer's node.
        eid: RawEid,
        /// What the two share.
        parts: Box<SameHostParts>,
    },
    /// It can be reached by packets.
    Packets {
        /// EID of the peer's node.
        eid: RawEid,
    },
    /// There is no path to it.
    NoPeer {
        /// EID of the peer's node.
        eid: RawEid,
        /// Reason why the node is not reachable.
        status: CmdStatus,
    },
    /// It died or hung up.
    Gone {
        /// EID of the peer's node.
        eid: RawEid,
    },
    /// A process of the same user asks for the description of this node.
    Inspect {
        /// Connection for the answer.
        socket: Arc<ForkGuarded>,
    },
    /// A process of the same user asks for a copy of each packet.
    Capture {
        /// Connection over which copies of the packets are sent.
        socket: Arc<ForkGuarded>,
    },
    /// A process of the same user asks for a copy of each lookup of contexts.
    Contexts {
        /// Connection over which copies of the lookups are sent.
        socket: Arc<ForkGuarded>,
    },
}

/// State of another node, as this host part sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerLook {
    /// EID of the peer's node.
    pub eid: RawEid,
    /// Its process, when memory is shared with it.
    pub pid: Option<u32>,
    /// Why packets are used and memory is not shared.
    pub why_not_faster: Option<&'static str>,
}

/// All peers of a node.
#[derive(Debug)]
pub struct Peers {
    share: LocalShare,
    /// Dropped before the claim: no peer must mistake the next owner of the EID for this node.
    links: BTreeMap<u64, PeerConnection>,
    claim: Claim,
    path: PathChoice,
    share_with: ShareWith,
    poll: Arc<Poll>,
    key_next: u64,
    events: VecDeque<PeerEvent>,
    lies: u64,
    shortages: Shortages,
    noise: Noise,
    /// Set while connections cannot be accepted.
    pause: RetryPause,
    /// When mapped files of peers are checked next; [`Nanos::MAX`]: there are none.
    files_at: Nanos,
    /// Nodes that are reached by packets, and why; at most [`REASONS_MAX`].
    reasons: BTreeMap<RawEid, &'static str>,
}

/// A connection, or the attempt to get one.
#[derive(Debug)]
struct PeerConnection {
    /// `None` while the peer's queue of connections is full, or after leaving the connection to the peer.
    socket: Option<Arc<ForkGuarded>>,
    state: ConnectionState,
}

#[derive(Debug)]
enum ConnectionState {
    /// Ours, not connected yet: the peer's queue is full, or it is connecting to us.
    Wanted { eid: RawEid, deadline: Nanos },
    /// Ours: offered, no answer yet.
    Offered { eid: RawEid, deadline: Nanos, offer: Box<SharingOffer>, credentials: Credentials },
    /// The peer's: nothing received yet.
    Accepted { deadline: Nanos, credentials: Credentials },
    /// The connection is in use, with a node of this incarnation.
    Up { eid: RawEid, incarnation: u64, files: Option<Arc<MappedFiles>> },
}

impl ConnectionState {
    /// Files of the peer that are mapped and may end.
    fn mapped(&self) -> Option<&MappedFiles> {
        match self {
            Self::Up { files, .. } => files.as_deref().filter(|files| files.has_files()),
            Self::Wanted { .. } | Self::Offered { .. } | Self::Accepted { .. } => None,
        }
    }
}

impl ConnectionState {
    fn deadline(&self) -> Deadline {
        match *self {
            Self::Wanted { deadline, .. }
            | Self::Offered { deadline, .. }
            | Self::Accepted { deadline, .. } => Some(deadline),
            Self::Up { .. } => None,
        }
    }

    /// The peer that this side wants to reach, or reached, on this connection.
    fn peer(&self) -> Option<RawEid> {
        match *self {
            Self::Wanted { eid, .. } | Self::Offered { eid, .. } | Self::Up { eid, .. } => {
                Some(eid)
            }
            Self::Accepted { .. } => None,
        }
    }

    /// The peer that this side wants to reach on this connection.
    fn sought(&self) -> Option<RawEid> {
        match *self {
            Self::Wanted { eid, .. } | Self::Offered { eid, .. } => Some(eid),
            Self::Accepted { .. } | Self::Up { .. } => None,
        }
    }
}

impl Peers {
    /// Creates the state without peers. Watches the claim under [`CLAIM_KEY`]; connections get keys above it.
    ///
    /// # Errors
    /// The claim cannot be watched.
    pub fn new(
        share: LocalShare,
        claim: Claim,
        path: PathChoice,
        poll: Arc<Poll>,
    ) -> std::io::Result<Self> {
        poll.add(&claim, CLAIM_KEY, Interest::Read)?;
        Ok(Self {
            share,
            claim,
            path,
            share_with: ShareWith::default(),
            poll,
            links: BTreeMap::new(),
            key_next: CLAIM_KEY + 1,
            events: VecDeque::new(),
            lies: 0,
            shortages: Shortages::default(),
            noise: Noise::default(),
            pause: RetryPause::default(),
            files_at: Nanos::MAX,
            reasons: BTreeMap::new(),
        })
    }

    /// Sets the processes with which memory is shared from now on.
    pub fn share_with(&mut self, whom: ShareWith) {
        self.share_with = whom;
    }

    /// Searches a path to `eid` for the core; an event reports the result within [`ANSWER_NS`].
    pub fn find(&mut self, now: Nanos, eid: RawEid) {
        if self.path == PathChoice::Packets {
            self.remember(eid, "this node is configured for packets only");
            self.events.push_back(PeerEvent::Packets { eid });
            return;
        }
        let up = |link: &PeerConnection| matches!(link.state, ConnectionState::Up { eid: up, .. } if up == eid);
        if let Some((&key, _)) = self.links.iter().find(|(_, link)| up(link)) {
            // The peer may have closed and started again, so it is searched for.
            self.on_ready(key);
        }
        if self.links.values().any(|link| link.state.peer() == Some(eid)) {
            // Its event has been given, or will be.
            return;
        }
        let key = self.add(None, ConnectionState::Wanted { eid, deadline: now + ANSWER_NS });
        self.try_connect(key);
    }

    /// Drops the path to `eid`, which the core no longer needs.
    pub fn forget(&mut self, eid: RawEid) {
        self.links.retain(|_, link| link.state.peer() != Some(eid));
    }

    /// Accepts the connections that wait at the claim. If none can be accepted, they wait, and the claim is not
    /// watched for a time that doubles: it stays readable, and would keep the thread busy.
    pub fn on_claim_ready(&mut self, now: Nanos) {
        for _ in 0..ACCEPTS_PER_CALL {
            match self.claim.accept() {
                Ok(Some(socket)) => {
                    self.pause.end();
                    self.on_accepted(now, socket);
                }
                Ok(None) => return,
                Err(error) => {
                    self.shortages.note("connections wait to be accepted", &error);
                    self.pause.start(now);
                    self.watch_claim(Interest::HangUp);
                    return;
                }
            }
        }
    }

    fn watch_claim(&self, interest: Interest) {
        if let Err(error) = self.poll.modify(&self.claim, CLAIM_KEY, interest) {
            tracing::error!(%error, ?interest, "connections to this node cannot be watched");
        }
    }

    /// Reads connection `key`, which is readable or hung up. Other keys are ignored.
    pub fn on_ready(&mut self, key: u64) {
        let Some(link) = self.links.get(&key) else { return };
        let Some(socket) = &link.socket else { return };
        match (&link.state, hello::receive(socket)) {
            (_, Err(hello::HelloError::NotYet)) => {}
            (ConnectionState::Up { .. }, Err(error)) if !error.is_lie() => self.on_gone(key),
            (ConnectionState::Up { eid, .. }, _) => {
                let eid = *eid;
                if let Some(times) = self.noise.count("invalid message") {
                    tracing::warn!(
                        ?eid,
                        times,
                        "a peer sent an invalid message over its connection, which is closed"
                    );
                }
                self.lies += 1;
                self.on_gone(key);
            }
            (ConnectionState::Offered { .. }, answer) => self.on_answer(key, answer),
            (ConnectionState::Accepted { .. }, offer) => self.on_offer(key, offer),
            (ConnectionState::Wanted { .. }, _) => {}
        }
    }

    /// Handles the time: retries and timeouts.
    pub fn on_tick(&mut self, now: Nanos) {
        if self.pause.is_over(now) {
            self.watch_claim(Interest::Read);
            self.on_claim_ready(now);
        }
        self.look_after_files(now);
        let late: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.state.deadline().is_some_and(|at| at <= now))
            .map(|(key, _)| *key)
            .collect();
        for key in late {
            let Some(link) = self.links.remove(&key) else { continue };
            if let Some(eid) = link.state.sought() {
                tracing::warn!(?eid, "a node on this host did not answer in time");
                self.events.push_back(PeerEvent::NoPeer { eid, status: CmdStatus::Timeout });
            }
        }
        let unconnected = |link: &PeerConnection| {
            matches!(link.state, ConnectionState::Wanted { .. }) && link.socket.is_none()
        };
        let wanted: Vec<u64> =
            self.links.iter().filter(|(_, link)| unconnected(link)).map(|(key, _)| *key).collect();
        for key in wanted {
            self.try_connect(key);
        }
    }

    /// Unmaps files of peers in which no segment is alive any more.
    fn look_after_files(&mut self, now: Nanos) {
        let is_due = self.files_at <= now;
        let mut has_files = false;
        for files in self.links.values().filter_map(|link| link.state.mapped()) {
            if is_due {
                files.drop_ended();
            }
            has_files |= files.has_files();
        }
        if !has_files {
            self.files_at = Nanos::MAX;
        } else if is_due || self.files_at == Nanos::MAX {
            self.files_at = now + files::LOOK_NS;
        }
    }

    /// When [`Peers::on_tick`] has to be called at the latest.
    #[must_use]
    pub fn poll_deadline(&self, now: Nanos) -> Deadline {
        let deadlines = self.links.values().filter_map(|link| link.state.deadline());
        let files = (self.files_at != Nanos::MAX).then_some(self.files_at);
        let earliest = deadlines.chain(self.pause.until()).chain(files).min()?;
        let retries =
            self.links.values().any(|l| matches!(l.state, ConnectionState::Wanted { .. }));
        Some(if retries { earliest.min(now + RETRY_NS) } else { earliest })
    }

    /// Takes the next event, in order.
    pub fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    /// Lists what is known about other nodes.
    #[must_use]
    pub fn look(&self) -> Vec<PeerLook> {
        let up = self.links.values().filter_map(|link| {
            let (ConnectionState::Up { eid, .. }, Some(socket)) = (&link.state, &link.socket)
            else {
                return None;
            };
            let pid = trust::credentials(socket).ok().map(|credentials| credentials.pid);
            Some(PeerLook { eid: *eid, pid, why_not_faster: None })
        });
        let mut look: Vec<PeerLook> = up.collect();
        let reasons = self.reasons.iter();
        look.extend(reasons.map(|(eid, why)| PeerLook {
            eid: *eid,
            pid: None,
            why_not_faster: Some(why),
        }));
        look
    }

    /// Records why packets are used for `eid`; the newest reason counts.
    fn remember(&mut self, eid: RawEid, why: &'static str) {
        if self.reasons.len() >= REASONS_MAX {
            self.reasons.clear();
        }
        self.reasons.insert(eid, why);
    }

    /// Number of connections cut because of wrong data or another protocol.
    #[must_use]
    pub fn lies(&self) -> u64 {
        self.lies
    }

    /// Number of times that this process was out of descriptors or memory while it connected to peers.
    #[must_use]
    pub fn shortages(&self) -> u64 {
        self.shortages.count()
    }

    fn add(&mut self, socket: Option<Arc<ForkGuarded>>, state: ConnectionState) -> u64 {
        let key = self.key_next;
        self.key_next += 1;
        self.links.insert(key, PeerConnection { socket, state });
        key
    }

    fn on_gone(&mut self, key: u64) {
        let Some(link) = self.links.remove(&key) else { return };
        if let ConnectionState::Up { eid, .. } = link.state {
            self.events.push_back(PeerEvent::Gone { eid });
        }
    }

    /// Reports that there is no path to `eid` on this host; the path choice decides whether packets are used.
    fn give_up(&mut self, eid: RawEid, status: CmdStatus) {
        self.events.push_back(match self.path {
            PathChoice::SameHost => PeerEvent::NoPeer { eid, status },
            PathChoice::Auto | PathChoice::Packets => PeerEvent::Packets { eid },
        });
    }
}

/// The claim's key in the poll set.
pub const CLAIM_KEY: u64 = 16;
/// Time after which a peer that has not answered counts as stopped, in nanoseconds.
pub const ANSWER_NS: Nanos = 1_000_000_000;
/// Time between two attempts to connect to a peer whose queue is full, in nanoseconds.
const RETRY_NS: Nanos = 5_000_000;
/// Connections accepted in one call, before other work.
const ACCEPTS_PER_CALL: usize = 32;
/// Most connections without a first message; further ones are closed.
const STRANGERS_MAX: usize = 256;
/// Most reasons kept; beyond it all are dropped, and found again by the next search.
const REASONS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
