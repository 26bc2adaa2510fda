//! The exchange of hellos on one connection.
//!
//! *Owns*: the steps from a connection to a pair. *Takes*: connections and messages. *Gives*: state changes and
//! events of [`Peers`]. *Must not*: wait for the other side.

use std::os::fd::AsFd;

use super::hello::{Hello, HelloError, ReceivedHello};
use super::offer::BadOffer;
use super::*;
use crate::host::descriptor::is_shortage;
use crate::host::memory::FileSharing;
use crate::ports::PeerFiles;

impl Peers {
    /// Connects connection `key` and sends an offer, if its peer's queue has room.
    pub(super) fn try_connect(&mut self, key: u64) {
        let Some(PeerConnection { state: ConnectionState::Wanted { eid, deadline }, .. }) =
            self.links.get(&key)
        else {
            return;
        };
        let (eid, deadline) = (*eid, *deadline);
        match self.connect_and_offer(key, eid, deadline) {
            Ok(Some(link)) => {
                self.links.insert(key, link);
            }
            Ok(None) => {}
            Err(status) => {
                self.links.remove(&key);
                self.give_up(eid, status);
            }
        }
    }

    /// `None`: try again later.
    fn connect_and_offer(
        &mut self,
        key: u64,
        eid: RawEid,
        deadline: Nanos,
    ) -> Result<Option<PeerConnection>, CmdStatus> {
        let socket = match claim::connect(eid).map_err(|error| self.unreachable(eid, &error))? {
            Connect::Connected(socket) => socket,
            Connect::NotHere => {
                self.remember(eid, "no such node on this host or in this network namespace");
                return Err(CmdStatus::Unreachable);
            }
            Connect::Busy => return Ok(None),
        };
        let credentials = match trust::check(&socket, self.share_with) {
            Ok(credentials) => credentials,
            Err(distrust) => {
                tracing::info!(?eid, %distrust, "no shared memory with a node on this host");
                self.remember(eid, distrust.reason());
                return match distrust.cause().filter(|error| is_shortage(error)) {
                    Some(error) => Err(self.unreachable(eid, error)),
                    None => Err(CmdStatus::Denied),
                };
            }
        };
        match self.send_offer(key, eid, socket) {
            Ok((socket, offer)) => {
                let state = ConnectionState::Offered { eid, deadline, offer, credentials };
                Ok(Some(PeerConnection { socket: Some(socket), state }))
            }
            Err(error) => Err(self.unreachable(eid, &error)),
        }
    }

    fn send_offer(
        &self,
        key: u64,
        eid: RawEid,
        socket: OwnedFd,
    ) -> std::io::Result<(Arc<ForkGuarded>, Box<SharingOffer>)> {
        let socket = Arc::new(ForkGuarded::new(socket)?);
        let offer = Box::new(SharingOffer::new(&self.share)?);
        let (message, fds) = offer.message(&self.share, HelloKind::Offer, eid)?;
        hello::send(&socket, &message, &fds)?;
        self.poll.add(&socket, key, Interest::Read)?;
        Ok((socket, offer))
    }

    /// The status for a system error on the way to a pair with `eid`.
    fn unreachable(&mut self, eid: RawEid, error: &std::io::Error) -> CmdStatus {
        let is_short = self.shortages.note("a node on this host cannot be reached", error);
        self.remember(eid, if is_short { SHORT_HERE } else { "the system refused the connection" });
        CmdStatus::Unreachable
    }

    /// Takes an incoming connection.
    pub(super) fn on_accepted(&mut self, now: Nanos, socket: OwnedFd) {
        let strangers = self
            .links
            .values()
            .filter(|l| matches!(l.state, ConnectionState::Accepted { .. }))
            .count();
        if strangers >= STRANGERS_MAX {
            if let Some(times) = self.noise.count("too many") {
                tracing::warn!(
                    times,
                    "too many connections wait without a first message; a new one is closed"
                );
            }
            return;
        }
        let credentials = match trust::check(&socket, self.share_with) {
            Ok(credentials) => credentials,
            Err(distrust) => {
                if let Some(times) = self.noise.count("distrust") {
                    tracing::info!(%distrust, times, "a connection is refused");
                }
                let is_short = distrust
                    .cause()
                    .is_some_and(|e| self.shortages.note("a connection is refused", e));
                let refusal = match distrust {
                    _ if is_short => SharingRefusal::NoResources,
                    Distrust::Guarded => SharingRefusal::Guarded,
                    Distrust::OtherUser
                    | Distrust::UnmappedUser
                    | Distrust::OtherNamespace
                    | Distrust::Unknown(_) => SharingRefusal::OtherUser,
                };
                self.refuse(&socket, RawEid::default(), refusal);
                return;
            }
        };
        let key = self.key_next;
        let watched = ForkGuarded::new(socket).and_then(|socket| {
            self.poll.add(&socket, key, Interest::Read)?;
            Ok(Arc::new(socket))
        });
        match watched {
            Ok(socket) => {
                self.add(
                    Some(socket),
                    ConnectionState::Accepted { deadline: now + ANSWER_NS, credentials },
                );
            }
            Err(error) => {
                self.shortages
                    .note("the first message of a connection is invalid; it is refused", &error);
            }
        }
    }

    /// Takes the first message on an incoming connection.
    pub(super) fn on_offer(&mut self, key: u64, offer: Result<ReceivedHello, HelloError>) {
        let Some(PeerConnection {
            socket: Some(socket),
            state: ConnectionState::Accepted { credentials, .. },
        }) = self.links.remove(&key)
        else {
            return;
        };
        let shown = match offer {
            Ok(shown) => shown,
            // A process that looks up an owner connects and hangs up without a message.
            Err(HelloError::HungUp) => return,
            Err(HelloError::Os(error)) => {
                self.shortages.note("an offer could not be received", &error);
                return self.refuse(&socket, RawEid::default(), SharingRefusal::NoResources);
            }
            Err(error) => {
                if let Some(times) = self.noise.count("first message") {
                    let pid = credentials.pid;
                    tracing::warn!(pid, %error, times, "the first message of a connection is invalid; it is refused");
                }
                self.lies += 1;
                return self.refuse(&socket, RawEid::default(), SharingRefusal::Incompatible);
            }
        };
        match shown.hello.kind {
            HelloKind::Inspect => return self.events.push_back(PeerEvent::Inspect { socket }),
            HelloKind::Capture => return self.events.push_back(PeerEvent::Capture { socket }),
            HelloKind::Contexts => return self.events.push_back(PeerEvent::Contexts { socket }),
            HelloKind::Offer | HelloKind::Accept | HelloKind::Refuse(_) => {}
        }
        let eid = shown.hello.eid;
        if let Err(refusal) = self.judge(&shown, credentials) {
            if let Some(times) = self.noise.count("offer") {
                let pid = credentials.pid;
                tracing::info!(?eid, pid, ?refusal, times, "a peer's offer is refused");
            }
            self.lies += u64::from(refusal == SharingRefusal::Lied);
            self.refuse(&socket, eid, refusal);
            return;
        }
        self.accept(key, socket, shown, credentials);
    }

    /// Checks whether an offer may be accepted.
    fn judge(
        &mut self,
        shown: &ReceivedHello,
        credentials: Credentials,
    ) -> Result<(), SharingRefusal> {
        let ReceivedHello { hello, .. } = shown;
        let is_own = hello.eid == self.share.eid;
        if hello.kind != HelloKind::Offer || hello.to != self.share.eid || is_own {
            return Err(SharingRefusal::Lied);
        }
        if self.path == PathChoice::Packets {
            return Err(SharingRefusal::PacketsOnly);
        }
        // The EID is proven by asking which process holds its claim.
        match claim::owner_of(hello.eid) {
            Ok(Some(owner)) if owner == credentials => {}
            Ok(Some(_)) => return Err(SharingRefusal::Lied),
            // It is gone already, or its queue is full: it may try again.
            Ok(None) => return Err(SharingRefusal::Busy),
            Err(error) => {
                self.shortages.note("the name of a peer could not be checked", &error);
                return Err(SharingRefusal::NoResources);
            }
        }
        let (mut seeking, mut replaced) = (false, None);
        for (key, link) in &self.links {
            match link.state {
                ConnectionState::Offered { eid, .. } if eid == hello.eid => seeking = true,
                ConnectionState::Up { eid, incarnation, .. } if eid == hello.eid => {
                    if incarnation == hello.incarnation {
                        return Err(SharingRefusal::Busy);
                    }
                    replaced = Some(*key);
                }
                ConnectionState::Offered { .. } | ConnectionState::Up { .. } => {}
                ConnectionState::Wanted { .. } | ConnectionState::Accepted { .. } => {}
            }
        }
        // Both connect at once: the connection of the lower EID stays.
        if seeking && self.share.eid < hello.eid {
            return Err(SharingRefusal::Busy);
        }
        if let Some(key) = replaced {
            self.on_gone(key);
        }
        Ok(())
    }

    /// Accepts an offer and opens the pair.
    fn accept(
        &mut self,
        key: u64,
        socket: Arc<ForkGuarded>,
        shown: ReceivedHello,
        credentials: Credentials,
    ) {
        let Hello { eid, incarnation, .. } = shown.hello;
        let offer = match SharingOffer::new(&self.share) {
            Ok(offer) => offer,
            Err(error) => {
                self.shortages.note("no memory for a pair", &error);
                return self.refuse(&socket, eid, SharingRefusal::NoResources);
            }
        };
        let opened = match parts(&self.share, offer.clone(), shown, (&socket, credentials)) {
            Ok(opened) => opened,
            Err(bad) => {
                let is_short = self.on_bad_offer(eid, &bad);
                let is_unmapped = matches!(bad, BadOffer::Unmapped(..));
                let refusal = if is_short || is_unmapped {
                    SharingRefusal::NoResources
                } else {
                    SharingRefusal::Lied
                };
                return self.refuse(&socket, eid, refusal);
            }
        };
        let sent = offer
            .message(&self.share, HelloKind::Accept, eid)
            .and_then(|(message, fds)| hello::send(&socket, &message, &fds));
        match sent {
            Ok(()) => self.open(key, socket, (eid, incarnation), (credentials.pid, opened)),
            Err(error) => {
                self.shortages.note("an offer could not be answered", &error);
            }
        }
    }

    /// Counts why a peer's offer could not be mapped. Returns whether this process lacks a resource.
    fn on_bad_offer(&mut self, eid: RawEid, bad: &BadOffer) -> bool {
        if let Some(error) = bad.shortage() {
            return self.shortages.note("a peer's memory could not be mapped", error);
        }
        if let BadOffer::Unmapped(..) = bad {
            if let Some(times) = self.noise.count("unmapped") {
                tracing::warn!(?eid, error = %bad, times, "no memory is shared with a peer on this host");
            }
            self.remember(eid, UNMAPPED);
            return false;
        }
        if let Some(times) = self.noise.count("other memory") {
            tracing::warn!(?eid, error = %bad, times, "the memory that a peer shows is not that of its message; it is refused");
        }
        self.lies += 1;
        false
    }

    /// Takes the answer to an offer of this node.
    pub(super) fn on_answer(&mut self, key: u64, answer: Result<ReceivedHello, HelloError>) {
        let Some(PeerConnection {
            socket: Some(socket),
            state: ConnectionState::Offered { eid, deadline, offer, credentials },
        }) = self.links.remove(&key)
        else {
            return;
        };
        let shown = match answer {
            Ok(shown) => shown,
            Err(HelloError::HungUp) => return self.give_up(eid, CmdStatus::Unreachable),
            Err(HelloError::Os(error)) => {
                let status = self.unreachable(eid, &error);
                return self.give_up(eid, status);
            }
            Err(error) => {
                if let Some(times) = self.noise.count("answer") {
                    tracing::warn!(?eid, %error, times, "a peer's answer is not acceptable");
                }
                self.lies += 1;
                return self.give_up(eid, CmdStatus::Denied);
            }
        };
        match shown.hello.kind {
            HelloKind::Refuse(SharingRefusal::Busy) => {
                // Its own connection to this node is in progress, or this one comes too early.
                let state = ConnectionState::Wanted { eid, deadline };
                self.links.insert(key, PeerConnection { socket: None, state });
            }
            HelloKind::Refuse(reason) => {
                tracing::info!(?eid, ?reason, "a node on this host refuses to share memory");
                self.remember(
                    eid,
                    match reason {
                        SharingRefusal::PacketsOnly => {
                            "the other node is configured for packets only"
                        }
                        SharingRefusal::OtherUser => "it takes this process for another user's",
                        SharingRefusal::Guarded => "this process may not trace the other node's",
                        SharingRefusal::Incompatible => "the other node has another version",
                        SharingRefusal::NoResources => SHORT_THERE,
                        SharingRefusal::Busy
                        | SharingRefusal::Lied
                        | SharingRefusal::Unknown(_) => "the other node refuses to share memory",
                    },
                );
                self.give_up(eid, CmdStatus::Denied);
            }
            HelloKind::Accept if shown.hello.eid == eid && shown.hello.to == self.share.eid => {
                let incarnation = shown.hello.incarnation;
                match parts(&self.share, *offer, shown, (&socket, credentials)) {
                    Ok(opened) => {
                        self.open(key, socket, (eid, incarnation), (credentials.pid, opened));
                    }
                    Err(bad) if self.on_bad_offer(eid, &bad) => {
                        self.remember(eid, SHORT_HERE);
                        self.give_up(eid, CmdStatus::Unreachable);
                    }
                    Err(_) => self.give_up(eid, CmdStatus::Denied),
                }
            }
            HelloKind::Accept
            | HelloKind::Offer
            | HelloKind::Inspect
            | HelloKind::Capture
            | HelloKind::Contexts => {
                self.lies += 1;
                self.give_up(eid, CmdStatus::Denied);
            }
        }
    }

    /// Opens the pair; other connections that sought the same peer are no longer needed.
    fn open(
        &mut self,
        key: u64,
        socket: Arc<ForkGuarded>,
        (eid, incarnation): (RawEid, u64),
        (pid, parts): (u32, SameHostParts),
    ) {
        let files = (self.share.file_sharing == FileSharing::On)
            .then(|| Arc::new(MappedFiles::new(pid, Arc::clone(&self.share.wake))));
        let of_core = files.clone().map(|files| files as Arc<dyn PeerFiles>);
        let parts = SameHostParts { files: of_core, ..parts };
        self.links.retain(|_, link| link.state.sought() != Some(eid));
        self.reasons.remove(&eid);
        self.shortages.on_pair();
        self.links.insert(
            key,
            PeerConnection {
                socket: Some(socket),
                state: ConnectionState::Up { eid, incarnation, files },
            },
        );
        self.events.push_back(PeerEvent::SameHost { eid, parts: Box::new(parts) });
    }

    fn refuse(&self, socket: impl AsFd, to: RawEid, refusal: SharingRefusal) {
        let hello = Hello {
            kind: HelloKind::Refuse(refusal),
            incarnation: self.share.incarnation,
            eid: self.share.eid,
            to,
            node_len: 0,
            arena_len: 0,
            half_len: 0,
            probe: 0,
        };
        // It may be gone already.
        let _ = hello::send(socket, &hello, &[]);
    }
}

/// Why packets go to a node: this process's address space, as under valgrind.
const UNMAPPED: &str = "this process cannot map the other's memory";
/// The same: this process's limits.
const SHORT_HERE: &str = "this process was out of descriptors or memory";
/// The same, at the node.
const SHORT_THERE: &str = "the other process was out of descriptors or memory";
