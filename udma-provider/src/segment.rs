//! Segments: memory of the user that the device may reach.
//!
//! *Owns*: the device addresses of registered memory. *Takes*: regions and rights. *Gives*: token ids, windows on
//! peers' memory. *Must not*: remove a mapping before the device answered that it withdrew the segment (a device that
//! does not answer loses the mapping all the same: the user's memory may be gone after the call).

use std::{collections::btree_map::Entry, sync::Arc};

use udma_abi::{
    DmaAccess,
    cmd::{Access, Command, RegisterSeg},
};
use urma_core::{Path, SegmentCfg, Status, Token, TokenId, ops::RemoteSegmentId};
use urma_mem::Region;

use crate::{alloc::lock, device::Driver};

/// Allocates a token id.
///
/// # Errors
/// `NoMemory`: all are in use.
pub(crate) fn alloc_token_id(driver: &Driver) -> Result<TokenId, Status> {
    let results = driver.execute(&Command::AllocTid)?;
    u32::try_from(results[0]).map(TokenId::new).map_err(|_| Status::Fail)
}

/// Frees a token id.
///
/// # Errors
/// `Invalid`: a segment has it, or it was never allocated.
pub(crate) fn free_token_id(driver: &Driver, token_id: TokenId) -> Result<(), Status> {
    let freed = driver.execute(&Command::FreeTid { token_id: token_id.value() });
    freed.map(|_| ()).map_err(|error| {
        if error != Status::Again {
            return error;
        }
        let id = token_id.value();
        Status::Invalid
            .why(format_args!("a segment lives under token id {id:#x}; unregister it first"))
    })
}

/// Registers memory under a token id.
///
/// # Errors
/// `Exists`: a live segment has the token id. `Unsupported`: the token policy. `NoMemory`,
/// `Invalid`: the device cannot reach the memory.
pub(crate) fn register(
    driver: &Arc<Driver>,
    region: &Region,
    token_id: TokenId,
    va: u64,
    cfg: &SegmentCfg,
) -> Result<(), Status> {
    let token_value = cfg.policy.token()?.map(Token::value);
    // The place is reserved before the command, so that two callers do not both map.
    match lock(&driver.segments).entry(token_id) {
        Entry::Occupied(_) => return Err(Status::Exists),
        Entry::Vacant(place) => place.insert(None),
    };
    let access = if region.is_writable() { DmaAccess::Both } else { DmaAccess::ToDevice };
    let registered = driver.dma.map(region, access).and_then(|map| {
        let command = Command::RegisterSeg(RegisterSeg {
            token_id: token_id.value(),
            iova: map.iova(),
            va,
            len: region.len() as u64,
            access: Access::from_bits_truncate(cfg.access.bits()),
            token_value,
        });
        driver.execute(&command).map(|_| map)
    });
    let mut maps = lock(&driver.segments);
    match registered {
        Ok(map) => {
            maps.insert(token_id, Some(map));
            Ok(())
        }
        Err(error) => {
            maps.remove(&token_id);
            Err(error)
        }
    }
}

/// Unregisters memory and removes its mapping.
///
/// # Errors
/// `Invalid`: no such segment.
pub(crate) fn unregister(driver: &Driver, token_id: TokenId) -> Result<(), Status> {
    if !matches!(lock(&driver.segments).get(&token_id), Some(Some(_))) {
        let id = token_id.value();
        return Err(
            Status::Invalid.why(format_args!("no segment is registered under token id {id:#x}"))
        );
    }
    match driver.execute(&Command::UnregisterSeg { token_id: token_id.value() }) {
        Ok(_) => {}
        Err(error) if error == Status::NoDevice => driver.on_failure(),
        Err(refused) => return Err(refused),
    }
    lock(&driver.segments).remove(&token_id);
    Ok(())
}

/// Maps a peer's segment for load and store.
///
/// # Errors
/// `Unsupported`: not on this host, or its pages are not shared. `NoPermission`.
pub(crate) fn map(
    driver: &Driver,
    path: &Path,
    segment: &RemoteSegmentId,
) -> Result<Region, Status> {
    let place = place(driver, path, segment)?;
    driver.regs.map(place, segment.len).ok_or(Status::Unsupported)
}

/// Hints that a peer's segment will be used. What the device refuses here it refuses again, request by request.
pub(crate) fn prepare(driver: &Driver, path: &Path, segment: &RemoteSegmentId) {
    if let Ok(place) = place(driver, path, segment) {
        driver.regs.prepare(place, segment.len);
    }
}

/// The offset of a peer's segment in the register window; the backing has the memory behind it.
fn place(driver: &Driver, path: &Path, segment: &RemoteSegmentId) -> Result<u64, Status> {
    let results = driver.execute(&Command::MapSeg {
        tpn: path.tpn,
        token_id: segment.token_id.value(),
        token_value: segment.token.map_or(0, Token::value),
        va: segment.va,
        len: segment.len,
    })?;
    Ok(results[0])
}
