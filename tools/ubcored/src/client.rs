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

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use ubcore_sim::{
    Node,
    device::{FunctionCfg, FunctionQuota},
};
use ubcored::{Attendants, DescriptorBudget, NodeFunction};
use udma_vfio::user::{MapQuota, refuse, serve};

use crate::{
    policy::{ClientPlace, ClientPlaces, ClientUsers},
    status::{ClientProcess, ClientRoster, RefusalReason, ServedEntry},
};

/// What every client is served with.
#[derive(Debug)]
pub(crate) struct ClientService {
    pub(crate) node: Arc<Node>,
    pub(crate) attendants: Arc<Attendants>,
    pub(crate) roster: Arc<ClientRoster>,
    pub(crate) users: ClientUsers,
    pub(crate) quota: FunctionQuota,
    pub(crate) places: Arc<ClientPlaces>,
    pub(crate) descriptors: Arc<DescriptorBudget>,
}

impl ClientService {
    /// Serves the connection of a process that is let in, in a thread of its own, which ends with it.
    pub(crate) fn serve(
        self: &Arc<Self>,
        socket: UnixStream,
        process: ClientProcess,
        place: ClientPlace,
    ) {
        let service = Arc::clone(self);
        let thread = std::thread::Builder::new().name("ubcored-client".to_owned());
        let spawned = thread.spawn(move || {
            // Given back whatever happens, and behind the connection.
            let _place = place;
            let socket = socket;
            let ClientProcess { uid, pid } = process;
            if let Err(error) = service.serve_process(&socket, process) {
                tracing::warn!(uid, pid, %error, "a client is refused: no resources");
                service.roster.count_refusal(RefusalReason::Resources);
                let bound = Timespec::try_from(REFUSAL_BOUND).ok();
                let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], bound.as_ref());
                let _ = refuse(&socket, Errno::NOMEM);
            }
        });
        self.note_start(spawned.map(drop));
    }

    /// Counts a client whose thread did not start.
    fn note_start(&self, spawned: io::Result<()>) {
        if let Err(error) = spawned {
            self.roster.count_refusal(RefusalReason::Resources);
            tracing::warn!(%error, "a client is refused: no thread");
        }
    }

    /// Serves a client until it leaves.
    ///
    /// # Errors
    /// The daemon has no room for it.
    fn serve_process(&self, socket: &UnixStream, process: ClientProcess) -> io::Result<()> {
        let ClientProcess { uid, pid } = process;
        let cfg = FunctionCfg { uasid: uasid_of(uid), quota: self.quota };
        let shared = (Arc::clone(&self.attendants), Arc::clone(&self.descriptors));
        let mut served = NodeFunction::new(&self.node, cfg, shared)?;
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

/// The address space of a user's functions, as peers see it.
const fn uasid_of(uid: u32) -> u32 {
    uid & UASID_MASK
}

/// A UASID has 24 bits.
const UASID_MASK: u32 = (1 << 24) - 1;
/// How long a client has to ask, for which there is no room.
const REFUSAL_BOUND: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_space_is_the_low_bits_of_the_user() {
        let found = [0, 1000, (1 << 24) - 1, 1 << 24, (1 << 24) + 1000, u32::MAX].map(uasid_of);
        assert_eq!(found, [0, 1000, (1 << 24) - 1, 0, 1000, (1 << 24) - 1]);
    }

    #[derive(Debug)]
    struct Silent;
    impl ubcore_sim::ports::Interrupt for Silent {
        fn raise(&self, _: u16) {}
    }

    /// A node that has as many functions as it can have: the client reads why, is counted, and its place is free.
    #[test]
    fn a_client_for_which_there_is_no_room_reads_why_and_is_counted() {
        use std::io::{Read as _, Write as _};

        let node = Node::open(ubcore_sim::NodeCfg::from_env().unwrap()).unwrap();
        let cfg = FunctionCfg { uasid: 1, quota: FunctionQuota::NONE };
        let all: Vec<_> =
            std::iter::from_fn(|| node.add_function(cfg, Arc::new(Silent)).ok()).collect();
        let service = Arc::new(ClientService {
            node,
            attendants: Attendants::start().unwrap(),
            roster: Arc::default(),
            users: ClientUsers::Any,
            quota: FunctionQuota::NONE,
            places: ClientPlaces::new(1, false),
            descriptors: DescriptorBudget::new(64, 1),
        });
        let (mut client, server) = UnixStream::pair().unwrap();
        let place = service.places.take(7).unwrap();
        service.serve(server, ClientProcess { uid: 7, pid: 8 }, place);
        client.write_all(&[7, 0, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut read = Vec::new();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.read_to_end(&mut read).unwrap();
        assert_eq!(read, [7, 0, 1, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 12, 0, 0, 0], "ENOMEM");
        let until = Instant::now() + Duration::from_secs(20);
        while service.places.take(7).is_none() {
            assert!(Instant::now() < until, "its place is free again");
            std::thread::yield_now();
        }
        let refusals = RefusalReason::ALL.map(|reason| service.roster.refusals(reason));
        assert_eq!(refusals.iter().sum::<u64>(), 1);
        assert_eq!(service.roster.refusals(RefusalReason::Resources), 1);
        // Nor is there a thread for one.
        service.note_start(Ok(()));
        assert_eq!(service.roster.refusals(RefusalReason::Resources), 1);
        service.note_start(Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(service.roster.refusals(RefusalReason::Resources), 2);
        assert!(service.roster.all().is_empty() && service.roster.left().served == 0);
        drop(all);
    }
}
