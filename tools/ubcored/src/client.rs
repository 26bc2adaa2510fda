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
use rustix::io::Errno;
use ubcore_sim::{
    Node,
    device::{FunctionCfg, FunctionQuota},
};
use ubcored::{Attendants, NodeFunction, RefusedFunction};
use udma_vfio::user::{MapQuota, serve, serve_for};
use urma_mem::sync::{AtomicUsize, Ordering};

use crate::{
    policy::ClientUsers,
    roster::{ClientProcess, ClientRoster, RefusalReason, ServedEntry},
};

/// What every client is served with.
#[derive(Debug)]
pub(crate) struct ClientService {
    pub(crate) node: Arc<Node>,
    pub(crate) attendants: Arc<Attendants>,
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
        let cfg = FunctionCfg { uasid: uid & UASID_MASK, quota: self.quota };
        let mut served = NodeFunction::new(&self.node, cfg, Arc::clone(&self.attendants))?;
        let function = Arc::clone(served.function());
        let number = function.id().number();
        let entry = ServedEntry { process, since: Instant::now(), function };
        let entry = self.roster.add(entry);
        tracing::info!(uid, pid, function = number, "a client is served");
        // The bytes have a quota of the function.
        let quota = MapQuota { bytes: u64::MAX, ..MapQuota::default() };
        let result = serve(socket, &mut served, quota);
        let begun = Instant::now();
        drop(served);
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
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
    let mut function = RefusedFunction { errno };
    let _ = serve_for(socket, &mut function, MapQuota { maps: 0, bytes: 0 }, REFUSAL_BOUND);
}

/// A UASID has 24 bits.
const UASID_MASK: u32 = (1 << 24) - 1;
/// Connections beside those that are served, which have a thread until they have read their refusal.
const REFUSED_MAX: usize = 16;
/// How long a client that is refused has to read why.
const REFUSAL_BOUND: Duration = Duration::from_secs(2);
