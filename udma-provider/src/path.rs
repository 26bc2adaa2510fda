//! Paths to other nodes.
//!
//! *Takes*: EIDs. *Gives*: paths. *Must not*: cache any. The device counts the users of a path and notices the end of
//! its peer: a call after the peer's death gets the path to its next life.

use udma_abi::{
    RawEid,
    cmd::{Command, Mode},
};
use urma_core::{Eid, Path, PathKind, Status, TransportMode};

use crate::device::Driver;

/// Connects to `eid`; the device limits the wait.
///
/// # Errors
/// `TimedOut`, `Unreachable`, `NoDevice`.
pub(crate) fn connect(driver: &Driver, eid: Eid, mode: TransportMode) -> Result<Path, Status> {
    let connect = Command::Connect { eid: RawEid(eid.bytes()), mode: mode_of(mode) };
    let results = driver.execute(&connect)?;
    let tpn = u32::try_from(results[0]).ok().filter(|tpn| *tpn < TPN_LIMIT);
    let kind = match results[1] {
        0 => PathKind::Local,
        1 => PathKind::SameHost,
        _ => PathKind::Packets,
    };
    Ok(Path { tpn: tpn.ok_or(Status::Fail)?, eid, kind })
}

/// The mode in the encoding of commands.
pub(crate) const fn mode_of(mode: TransportMode) -> Mode {
    match mode {
        TransportMode::Rm => Mode::Rm,
        TransportMode::Rc => Mode::Rc,
        TransportMode::Um => Mode::Um,
    }
}

/// Gives up one use of a path; the device closes it after the last user.
pub(crate) fn disconnect(driver: &Driver, path: &Path) {
    if let Err(error) = driver.execute(&Command::Disconnect { tpn: path.tpn }) {
        tracing::debug!(%error, tpn = path.tpn, "a path could not be closed");
    }
}

/// TPNs have 24 bits.
const TPN_LIMIT: u32 = 1 << 24;
