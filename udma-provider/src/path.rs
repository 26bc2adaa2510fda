//! Ways to other nodes, shared by all who want the same one.
//!
//! *Owns*: how many users each way has. *Takes*: EIDs. *Gives*: paths. *Must not*: ask the device
//! twice for the same way, or close one in use.

use std::{collections::BTreeMap, sync::Mutex};

use udma_abi::{RawEid, cmd::Command};
use urma_core::{Eid, Path, PathKind, Status, TransportMode};

use crate::{alloc::lock, device::Driver};

/// All ways of a device.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    by_node: Mutex<BTreeMap<(Eid, Reliability), Way>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reliability {
    Reliable,
    Unreliable,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    path: Path,
    users: u32,
}

impl Paths {
    /// Finds a way to `eid`. Others who want a way wait meanwhile; the device bounds that.
    ///
    /// # Errors
    /// `TimedOut`, `Unreachable`, `NoDevice`.
    pub(crate) fn connect(
        &self,
        driver: &Driver,
        eid: Eid,
        mode: TransportMode,
    ) -> Result<Path, Status> {
        let reliability = match mode {
            TransportMode::Um => Reliability::Unreliable,
            TransportMode::Rm | TransportMode::Rc => Reliability::Reliable,
        };
        let mut ways = lock(&self.by_node);
        if let Some(way) = ways.get_mut(&(eid, reliability)) {
            way.users += 1;
            return Ok(way.path);
        }
        let unreliable = reliability == Reliability::Unreliable;
        let results = driver.execute(&Command::Connect { eid: RawEid(eid.bytes()), unreliable })?;
        let tpn = u32::try_from(results[0]).ok().filter(|tpn| *tpn < TPN_LIMIT);
        let kind = match results[1] {
            0 => PathKind::Local,
            1 => PathKind::SameHost,
            _ => PathKind::Packets,
        };
        let path = Path { tpn: tpn.ok_or(Status::Fail)?, eid, kind };
        ways.insert((eid, reliability), Way { path, users: 1 });
        Ok(path)
    }

    /// Gives a way back; the last user closes it.
    pub(crate) fn disconnect(&self, driver: &Driver, path: &Path) {
        let mut ways = lock(&self.by_node);
        let Some((key, way)) = ways.iter_mut().find(|(_, way)| way.path == *path) else { return };
        way.users -= 1;
        if way.users > 0 {
            return;
        }
        let key = *key;
        ways.remove(&key);
        if let Err(error) = driver.execute(&Command::Disconnect { tpn: path.tpn }) {
            tracing::debug!(%error, tpn = path.tpn, "a way could not be given back");
        }
    }
}

/// TPNs have 24 bits.
const TPN_LIMIT: u32 = 1 << 24;
