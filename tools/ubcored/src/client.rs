//! One client, from its connection to the end of everything that it had.
//!
//! - owns: its function of the node, its vectors, its line in the roster. takes: a connected socket. gives: service, or a
//!   refusal that the client can read. must not: believe what a client says of itself.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use ubcore_sim::{
    Node,
    device::{FunctionCfg, FunctionQuota},
};
use udma_abi::DeviceBacking;
use udma_vfio::user::{MapQuota, serve};
use urma_mem::sync::{AtomicUsize, Ordering};

use crate::{
    function::{NodeFunction, RefusedFunction},
    policy::ClientUsers,
    roster::{ClientProcess, ClientRoster, RefusalReason, ServedEntry},
    vectors::ClientVectors,
};

/// What every client is served with.
#[derive(Debug)]
pub(crate) struct ClientService {
    pub(crate) node: Arc<Node>,
    pub(crate) roster: Arc<ClientRoster>,
    pub(crate) users: ClientUsers,
    pub(crate) quota: FunctionQuota,
    /// Clients at a time.
    pub(crate) clients_max: usize,
    /// Connections that have a thread.
    pub(crate) threads: AtomicUsize,
    /// Clients that are served now.
    pub(crate) served: AtomicUsize,
}

impl ClientService {
    /// Serves the connection in a thread of its own, which ends with it.
    pub(crate) fn accept(self: &Arc<Self>, socket: UnixStream) {
        if self.threads.fetch_add(1, Ordering::Relaxed) >= self.clients_max + REFUSED_MAX {
            // Not even a refusal: who connects without end has no thread for each.
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return self.roster.count_refusal(RefusalReason::TooMany);
        }
        let service = Arc::clone(self);
        let thread = std::thread::Builder::new().name("ubcored-client".to_owned());
        let spawned = thread.spawn(move || {
            service.serve_client(&socket);
            drop(socket);
            service.threads.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = spawned {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            self.roster.count_refusal(RefusalReason::Resources);
            tracing::warn!(%error, "a client is refused: no thread");
        }
    }

    fn serve_client(&self, socket: &UnixStream) {
        let process = match getsockopt(socket, PeerCredentials) {
            Ok(peer) => ClientProcess { uid: peer.uid(), pid: peer.pid() },
            Err(error) => {
                tracing::warn!(%error, "a client is refused: no credentials");
                return self.roster.count_refusal(RefusalReason::Resources);
            }
        };
        let ClientProcess { uid, pid } = process;
        let (reason, errno) = if !self.users.allows(uid) {
            (RefusalReason::User, Errno::ACCESS)
        } else if self.served.fetch_add(1, Ordering::Relaxed) >= self.clients_max {
            self.served.fetch_sub(1, Ordering::Relaxed);
            (RefusalReason::TooMany, Errno::USERS)
        } else {
            let served = self.serve_process(socket, process);
            self.served.fetch_sub(1, Ordering::Relaxed);
            match served {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(uid, pid, %error, "a client is refused: no resources");
                    (RefusalReason::Resources, Errno::NOMEM)
                }
            }
        };
        tracing::warn!(uid, pid, reason = reason.name(), "a client is refused");
        self.roster.count_refusal(reason);
        refuse(socket, errno);
    }

    /// Serves a client until it leaves.
    ///
    /// # Errors
    /// The daemon has no room for it.
    fn serve_process(&self, socket: &UnixStream, process: ClientProcess) -> io::Result<()> {
        let ClientProcess { uid, pid } = process;
        let (vectors, thread) = ClientVectors::start()?;
        let cfg = FunctionCfg { uasid: uid & UASID_MASK, quota: self.quota };
        let client = self.node.add_function(cfg, Arc::<ClientVectors>::clone(&vectors))?;
        let function = Arc::clone(client.function());
        let number = function.id().number();
        let entry = ServedEntry { process, since: Instant::now(), function };
        let entry = self.roster.add(entry);
        tracing::info!(uid, pid, function = number, "a client is served");
        let mut function = NodeFunction::new(client, vectors);
        let mut before_wait = |socket: &UnixStream| progress(&self.node, socket);
        // The bytes have a quota of the function.
        let quota = MapQuota { bytes: u64::MAX, ..MapQuota::default() };
        let result = serve(socket, &mut function, quota, &mut before_wait);
        let begun = Instant::now();
        drop(function);
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        drop(thread);
        self.roster.remove(entry, ns, result.is_err());
        match result {
            Ok(()) => tracing::info!(uid, pid, function = number, end_ns = ns, "a client left"),
            Err(error) => {
                tracing::warn!(uid, pid, function = number, end_ns = ns, %error, "a client is cut off");
            }
        }
        Ok(())
    }
}

/// Lets a client read why it is not served.
fn refuse(socket: &UnixStream, errno: Errno) {
    let bound = Timespec { tv_sec: REFUSAL_SECONDS, tv_nsec: 0 };
    let mut left = REFUSAL_MESSAGES;
    let mut before_wait = |socket: &UnixStream| {
        let is_late = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&bound)) == Ok(0);
        if is_late || left == 0 {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        left = left.saturating_sub(1);
    };
    let mut function = RefusedFunction { errno };
    let _ = serve(socket, &mut function, MapQuota { maps: 0, bytes: 0 }, &mut before_wait);
}

/// Polls the node in the place of its client, which cannot, until the next message or for [`POLL_BOUND`]: the node's own
/// thread looks once a millisecond only while a node is active.
fn progress(node: &Node, socket: &UnixStream) {
    let begun = Instant::now();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    while begun.elapsed() < POLL_BOUND {
        node.progress();
        if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&now)) != Ok(0) {
            return;
        }
        std::thread::yield_now();
    }
}

/// How long a node is polled after a message: two looks of its own thread.
const POLL_BOUND: Duration = Duration::from_millis(2);
/// A UASID has 24 bits.
const UASID_MASK: u32 = (1 << 24) - 1;
/// Connections beside those that are served, which have a thread until they have read their refusal.
const REFUSED_MAX: usize = 16;
/// Messages of a client that are answered to refuse it: version, and the first access.
const REFUSAL_MESSAGES: u32 = 4;
/// Longest wait for each of them.
const REFUSAL_SECONDS: i64 = 2;
