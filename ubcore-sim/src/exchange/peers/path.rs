//! One path to a node with its users, and the requests that keep it open.
//!
//! *Owns*: users, how far each send queue has to retire. *Must not*: wait for a queue.

use udma_abi::RawEid;
use urma_mem::sync::Ordering;

use crate::engine::core::DeviceCore;

/// One path with its users.
#[derive(Clone, Debug)]
pub(crate) struct UsedPath {
    pub(crate) eid: RawEid,
    /// Number of imports and bindings; at 0 it is closing.
    pub(crate) users: u32,
    /// Life of the node that it was opened to; 0 when not known.
    pub(crate) life: u64,
    /// Requests for which a closing path stays open.
    pub(crate) posted: Vec<Posted>,
    /// It carries packets of the standard opcodes.
    pub(crate) standard: bool,
    /// The node died; the number is kept until its users gave it back.
    pub(crate) dead: bool,
}

impl UsedPath {
    /// Whether it leads to a former life of the node, not to `incarnation`.
    pub(crate) fn is_of_former_life(&self, incarnation: u64) -> bool {
        self.life != 0 && self.life != incarnation
    }

    /// Marks the path with number `tpn` as dead: nothing uses it any more.
    pub(crate) fn end(&mut self, core: &DeviceCore, tpn: u32) {
        self.dead = true;
        core.tables.links.end(tpn);
    }
}

/// Requests of one send queue that may use a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Posted {
    pub(crate) queue: u32,
    /// Producer index after the last of them, in blocks.
    end: u32,
}

impl Posted {
    /// Requests of `queue` that are posted and not retired; `None`: there are none.
    pub(crate) fn of(core: &DeviceCore, queue: u32) -> Option<Self> {
        let place = core.queues.get(queue)?;
        let held = place.send.with_blocking(|at| Some(at.engine().as_ref()?.blocks_left(place)));
        if held.marked {
            core.make_runnable(place);
        }
        let end = place.pi.load(Ordering::Acquire);
        held.value.filter(|&left| left != 0).map(|_| Self { queue, end })
    }

    /// Whether one of them is not retired. If another thread steps the queue, one may be left.
    pub(crate) fn is_left(&self, core: &DeviceCore) -> bool {
        let Some(place) = core.queues.get(self.queue) else { return false };
        let Some(held) = place.send.try_with(|at| at.engine().as_ref().map(|e| e.retired())) else {
            return true;
        };
        if held.marked {
            core.make_runnable(place);
        }
        held.value.is_some_and(|retired| self.end.wrapping_sub(retired).cast_signed() > 0)
    }
}
