//! Snapshot of the device for reports: objects, paths, counters.
//!
//! *Owns*: plain copies. *Takes*: the device, between two steps. *Must not*: change anything, or show a token.

use udma_abi::{
    caps::Caps,
    cmd::{Access, CmdQueueKind, Mode, QueueState},
    counters::Counter,
};

use super::{SoftwareDevice, shared::SharedPart};
use crate::limits;

pub use crate::exchange::paths::{PathLook, RouteLook};

/// State of one queue for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueLook {
    /// Number of the queue.
    pub id: u32,
    /// Kind of the queue.
    pub kind: CmdQueueKind,
    /// Transport mode that it was created with.
    pub mode: Mode,
    /// State of its sending side; `None`: it has none, or is being stepped just now.
    pub send_state: Option<QueueState>,
    /// State of its receiving side.
    pub recv_state: Option<QueueState>,
    /// Number of posted receives.
    pub receives: Option<u32>,
    /// JFCs of its completions.
    pub jfcs: Vec<u32>,
    /// The JFR that it receives through, if that is not its own.
    pub shared_jfr: Option<u32>,
    /// The group that it belongs to.
    pub group: Option<u32>,
    /// RC: path and number of the jetty that it is bound to.
    pub bound: Option<(u32, u32)>,
}

/// State of one registered segment for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentLook {
    /// Token id, `tid << 8`.
    pub token_id: u32,
    /// First address as registered.
    pub va: u64,
    /// Length of the segment in bytes.
    pub len: u64,
    /// Access rights of peers.
    pub access: Access,
    /// Whether a token guards it.
    pub has_token: bool,
    /// Whether peers on this host reach (part of) it directly.
    pub is_shared: bool,
    /// Why they do not, if known.
    pub why_not_direct: Option<String>,
}

/// State of all objects of a device at one time, for reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceSnapshot {
    /// All queues, in the order of their numbers.
    pub queues: Vec<QueueLook>,
    /// Numbers of all JFCs, ascending.
    pub jfcs: Vec<u32>,
    /// Groups with their members.
    pub groups: Vec<(u32, Vec<u32>)>,
    /// Segments by token id.
    pub segments: Vec<SegmentLook>,
    /// All paths, in the order of their nodes.
    pub paths: Vec<PathLook>,
    /// Number of blocks in the knitting pool.
    pub pool_blocks: u64,
    /// Blocks that no TP holds.
    pub pool_free: u64,
}

impl SoftwareDevice {
    /// Takes a snapshot of everything in the device. Waits for the holder of the shared part: for reports only.
    #[must_use]
    pub fn look(&self) -> DeviceSnapshot {
        let look = |shared: &mut SharedPart| {
            let objects = &shared.commands.objects;
            let queues = objects.queues.iter().map(|(id, record)| {
                let send = self.core.queues.get(*id).filter(|_| record.sends);
                let send = send.and_then(|queue| {
                    let looked = queue.send.try_with(|place| {
                        place.engine().as_ref().map(|engine| (engine.state(), engine.bound()))
                    });
                    looked?.value
                });
                QueueLook {
                    id: *id,
                    kind: record.kind,
                    mode: record.mode,
                    send_state: send.map(|(state, _)| state),
                    recv_state: shared.exchange.receives.state(*id),
                    receives: shared.exchange.receives.left(*id),
                    jfcs: record.jfcs.clone(),
                    shared_jfr: record.shared_jfr,
                    group: record.group,
                    bound: send.and_then(|(_, bound)| bound),
                }
            });
            let segments = objects.tids.iter().filter_map(|tid| {
                let segment = self.core.tables.segments.find(tid << TOKEN_ID_SHIFT)?;
                Some(SegmentLook {
                    token_id: segment.token_id,
                    va: segment.va,
                    len: segment.len,
                    access: segment.access,
                    has_token: segment.token.is_some(),
                    is_shared: segment.has_extents || segment.has_file,
                    why_not_direct: self.core.tables.ports.memory.why_not_direct(tid),
                })
            });
            let groups = objects.groups.iter();
            let [_, pool_blocks, pool_free, _] = shared.exchange.endpoint.pool_usage();
            DeviceSnapshot {
                queues: queues.collect(),
                jfcs: objects.jfcs.iter().collect(),
                groups: groups.map(|(id, set)| (*id, set.iter().copied().collect())).collect(),
                segments: segments.collect(),
                paths: shared.exchange.look(&self.core.tables.cfg),
                pool_blocks,
                pool_free,
            }
        };
        self.shared.with_blocking(look).value
    }

    /// Limits and abilities of the device.
    #[must_use]
    pub fn caps(&self) -> Caps {
        limits::caps(self.cfg())
    }

    /// All counters by name, then those of the model.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let own = Counter::ALL.iter().map(|counter| (counter.name(), self.counter(*counter)));
        own.chain(self.core.tables.nic.iter().flat_map(|nic| nic.counters())).collect()
    }
}

/// A token id is a table index shifted by this.
const TOKEN_ID_SHIFT: u32 = 8;
