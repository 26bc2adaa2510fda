//! A window of the function: registers by messages, or memory that the server shares.
//!
//! - owns: accesses of one region. takes: what the server says of it. gives: a [`PciWindow`]. must not: map memory that
//!   the server could take away.

use std::sync::Arc;

use urma_mem::{MapAccess, Region};

use super::{
    link::{UserError, UserLink, refused},
    wire::{Fields, RegionAccess, RegionInfo, command},
};
use crate::device::{AccessWidth, PciError, PciWindow, check_access};

/// Most bytes of a window that is mapped.
const MAPPED_MAX: u64 = 1 << 30;

/// A region of the server's function.
#[derive(Debug)]
pub(crate) struct UserWindow {
    link: Arc<UserLink>,
    name: String,
    region: u32,
    len: u64,
    /// Its bytes, where they are memory and not registers.
    memory: Option<Region>,
}

impl UserWindow {
    /// Asks for region `region`. `None`: there is none.
    pub(crate) fn open(
        link: &Arc<UserLink>,
        region: u32,
        name: &str,
    ) -> Result<Option<Self>, UserError> {
        let question = RegionInfo::question(region);
        let mut reply = link.request(command::GET_REGION_INFO, &question, &[], 32)?;
        let broken = |rule| link.broken(command::GET_REGION_INFO, rule);
        let info = RegionInfo::decode(&reply.body).filter(|info| info.region == region);
        let info = info.ok_or_else(|| broken("the reply is about the region asked for"))?;
        if info.len == 0 {
            return Ok(None);
        }
        let memory = match reply.fds.pop().filter(|_| info.is_mapped) {
            None => None,
            Some(fd) => {
                let len = usize::try_from(info.len.min(MAPPED_MAX + 1)).unwrap_or(usize::MAX);
                if info.len > MAPPED_MAX {
                    return Err(broken("a mapped region has at most 1 GiB"));
                }
                let mapped = Region::map_fd(fd, info.offset, len, MapAccess::ReadWrite);
                Some(mapped.map_err(|_| broken("a mapped region is a sealed file of its length"))?)
            }
        };
        let (link, name) = (Arc::clone(link), name.to_owned());
        Ok(Some(Self { link, name, region, len: info.len, memory }))
    }

    fn failed(&self, error: UserError) -> PciError {
        refused(&self.name, "access to a region", error)
    }
}

impl PciWindow for UserWindow {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, width: AccessWidth) -> Result<u64, PciError> {
        check_access(self.len, offset, width)?;
        let access = RegionAccess { offset, region: self.region, count: u32::from(width.count()) };
        let sent = self.link.request(command::REGION_READ, &access.encode(&[]), &[], 16);
        let reply = sent.map_err(|error| self.failed(error))?;
        match RegionAccess::decode(&reply.body) {
            Some((same, data)) if same == access && data.len() as u64 == width.bytes() => {
                let mut bytes = [0; 8];
                bytes.get_mut(..data.len()).unwrap_or_default().copy_from_slice(data);
                Ok(Fields(&bytes).long().unwrap_or(0))
            }
            _ => {
                let rule = "the reply has the bytes that were asked for";
                Err(self.failed(self.link.broken(command::REGION_READ, rule)))
            }
        }
    }

    /// Posted: the server's refusal is not seen. A later read waits until it was made.
    fn write(&self, offset: u64, width: AccessWidth, value: u64) -> Result<(), PciError> {
        check_access(self.len, offset, width)?;
        self.post(offset, value.to_le_bytes().get(..usize::from(width.count())).unwrap_or_default())
    }

    /// Sends all of it in one message.
    fn write_block(&self, offset: u64, words: &[u64; 8]) -> Result<(), PciError> {
        if offset.checked_add(64).is_none_or(|end| end > self.len) || !offset.is_multiple_of(8) {
            return Err(PciError::Access { offset, width: 64, len: self.len });
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.post(offset, &bytes)
    }

    fn memory(&self, offset: u64, len: u64) -> Option<Region> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        self.memory.as_ref()?.sub(offset, len).ok()
    }
}

impl UserWindow {
    fn post(&self, offset: u64, data: &[u8]) -> Result<(), PciError> {
        let count = u32::try_from(data.len()).unwrap_or(0);
        let access = RegionAccess { offset, region: self.region, count };
        let sent = self.link.post(command::REGION_WRITE, &access.encode(data));
        sent.map_err(|error| self.failed(error))
    }
}
