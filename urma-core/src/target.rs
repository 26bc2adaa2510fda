//! Imported queues of other nodes.
//!
//! *Owns*: the path to the node while a target or a binding needs it. *Takes*: what a peer exported
//! of its queue. *Gives*: `TargetJetty`, to name in requests. *Must not*: ask the peer whether the
//! queue exists: the first request finds out.

use std::sync::Arc;

use crate::{
    Eid, JettyId, OrderType, Path, Status, TargetId, TargetKind, TokenPolicy, TransportMode,
    access::ObjectNumber,
    memory::MemoryHome,
    rules::{self, ensure},
};

/// Kind of transport path; numbers of `urma_tp_type_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum TpType {
    /// Reliable; of RM and RC.
    #[default]
    Rtp = 0,
    /// Compact: reliability is left to the layer below. Needs the feature CTP.
    Ctp = 1,
    /// Unreliable transport path, which UM uses.
    Utp = 2,
}

impl TpType {
    /// The usual one of a transport mode.
    #[must_use]
    pub const fn of(mode: TransportMode) -> Self {
        match mode {
            TransportMode::Rm | TransportMode::Rc => Self::Rtp,
            TransportMode::Um => Self::Utp,
        }
    }
}

/// What a peer needs to import a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteJetty {
    /// EID and number of the queue.
    pub id: JettyId,
    /// Kind of the queue: a jetty, a JFR or a group of jetties.
    pub kind: TargetKind,
    /// Transport mode; that of the queues that send to it must be the same.
    pub mode: TransportMode,
    /// Order type that the queue was created with.
    pub order: OrderType,
    /// How it is guarded, with the token to show.
    pub policy: TokenPolicy,
    /// Kind of transport path.
    pub tp: TpType,
}

/// A path to a node, closed with its last holder.
#[derive(Debug)]
pub(crate) struct HeldPath {
    path: Path,
    home: Arc<dyn MemoryHome>,
}

impl HeldPath {
    pub(crate) fn open(
        home: &Arc<dyn MemoryHome>,
        eid: Eid,
        mode: TransportMode,
    ) -> Result<Arc<Self>, Status> {
        ensure(!eid.is_unspecified(), format_args!("the EID is zero"))?;
        let path = home.paths().connect(eid, mode)?;
        Ok(Arc::new(Self { path, home: Arc::clone(home) }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for HeldPath {
    fn drop(&mut self) {
        self.home.paths().disconnect(&self.path);
    }
}

/// A queue to send to.
#[derive(Debug)]
pub struct TargetJetty {
    id: TargetId,
    home: usize,
    number: ObjectNumber,
    held_path: Arc<HeldPath>,
}

impl TargetJetty {
    /// What [`crate::Context::import_jetty`] does for a context.
    pub(crate) fn import(home: &Arc<dyn MemoryHome>, remote: &RemoteJetty) -> Result<Self, Status> {
        rules::mode(home.attr(), remote.mode)?;
        let order = rules::order(remote.mode, remote.order)?;
        rules::id(remote.id.id)?;
        ensure(remote.id.id != 0, format_args!("the id of the target is 0, which no queue has"))?;
        let is_um = remote.mode == TransportMode::Um;
        match remote.tp {
            TpType::Rtp => {
                ensure(!is_um, format_args!("a UM target needs an unreliable path (UTP)"))
            }
            TpType::Utp => {
                ensure(is_um, format_args!("an unreliable path (UTP) is for UM targets only"))
            }
            TpType::Ctp => rules::compact_path(home.attr()),
        }?;
        let token = remote.policy.token()?;
        let held_path = HeldPath::open(home, remote.id.eid, remote.mode)?;
        let (kind, id, path, mode) = (remote.kind, remote.id, *held_path.path(), remote.mode);
        let id = TargetId { kind, id, path, token, mode, order };
        Ok(Self { id, home: home.key(), number: ObjectNumber::next(), held_path })
    }

    /// Everything that names it.
    #[inline]
    #[must_use]
    pub fn target(&self) -> &TargetId {
        &self.id
    }

    /// Forgets it. Requests posted to it go on; a jetty bound to it stays bound.
    pub fn unimport(self) {
        drop(self);
    }

    #[inline]
    pub(crate) fn home(&self) -> usize {
        self.home
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> ObjectNumber {
        self.number
    }

    pub(crate) fn held_path(&self) -> &Arc<HeldPath> {
        &self.held_path
    }
}
