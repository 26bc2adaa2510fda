//! What the service knows.
//!
//! *Owns*: topology, main EIDs, names of aggregated devices, of this process. *Takes*: what callers
//! insert. *Gives*: lookups. *Must not*: touch C memory.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    No,
    abi::{byte_of, urma_topo_node, urma_topo_ue},
};

/// The bytes of an EID.
pub(crate) type Raw = [u8; 16];

/// The EID of no device: zeros.
pub(crate) const NONE: Raw = [0; 16];

/// Main EIDs known at most: what 1024 nodes of 256 devices of two dies with nine ports each need.
const MAIN_MAX: usize = 1024 * 256 * 2 * 10;
/// Aggregated devices at most, as a node has in its topology.
const AGG_MAX: usize = 256;

/// What the service knows: topology, aggregated devices, main EIDs.
#[derive(Default)]
pub(crate) struct Service {
    pub(crate) nodes: Vec<urma_topo_node>,
    main: BTreeMap<Raw, Raw>,
    agg: BTreeMap<Raw, Vec<u8>>,
}

static SERVICE: Mutex<Service> = Mutex::new(Service::new());

/// The service of this process.
pub(crate) fn service() -> MutexGuard<'static, Service> {
    SERVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    pub(crate) const fn new() -> Self {
        Self { nodes: Vec::new(), main: BTreeMap::new(), agg: BTreeMap::new() }
    }

    /// `main` is the main EID of each of `eids` from now on, in the place of an earlier one.
    ///
    /// # Errors
    /// EINVAL: an EID is all zero; then nothing is inserted. ENOSPC.
    pub(crate) fn insert_main(&mut self, main: Raw, eids: &[Raw]) -> Result<(), No> {
        if main == NONE || eids.contains(&NONE) {
            return Err(No::Service(libc::EINVAL));
        }
        if self.main.len() + eids.len() > MAIN_MAX {
            return Err(No::Service(libc::ENOSPC));
        }
        self.main.extend(eids.iter().map(|eid| (*eid, main)));
        Ok(())
    }

    /// Forgets the main EID of an EID.
    ///
    /// # Errors
    /// ENOENT.
    pub(crate) fn delete_main(&mut self, eid: Raw) -> Result<(), No> {
        self.main.remove(&eid).map(|_| ()).ok_or(No::Service(libc::ENOENT))
    }

    /// The main EID of an EID.
    ///
    /// # Errors
    /// ENOENT.
    pub(crate) fn main_of(&self, eid: Raw) -> Result<Raw, No> {
        self.main.get(&eid).copied().ok_or(No::Service(libc::ENOENT))
    }

    pub(crate) fn flush_main(&mut self) {
        self.main.clear();
    }

    /// # Errors
    /// EEXIST: a device has this EID or name. EINVAL: the EID is all zero. ENOSPC.
    pub(crate) fn create_agg(&mut self, eid: Raw, name: &[u8]) -> Result<(), No> {
        if eid == NONE {
            return Err(No::Service(libc::EINVAL));
        }
        if self.agg.contains_key(&eid) || self.agg.values().any(|known| known == name) {
            return Err(No::Service(libc::EEXIST));
        }
        if self.agg.len() >= AGG_MAX {
            return Err(No::Service(libc::ENOSPC));
        }
        self.agg.insert(eid, name.to_vec());
        Ok(())
    }

    /// Forgets an aggregated device.
    ///
    /// # Errors
    /// ENOENT.
    pub(crate) fn delete_agg(&mut self, eid: Raw) -> Result<(), No> {
        self.agg.remove(&eid).map(|_| ()).ok_or(No::Service(libc::ENOENT))
    }

    /// The name of an aggregated device.
    ///
    /// # Errors
    /// ENOENT.
    pub(crate) fn agg_name(&self, eid: Raw) -> Result<&[u8], No> {
        self.agg.get(&eid).map(Vec::as_slice).ok_or(No::Service(libc::ENOENT))
    }

    /// Main EIDs as the endpoints of `nodes` say: of the endpoints of a node with the same entity
    /// and chip, the one with the smallest primary EID answers for the EIDs of all of them.
    ///
    /// # Errors
    /// ENOSPC.
    pub(crate) fn learn_main(&mut self, nodes: &[urma_topo_node]) -> Result<(), No> {
        for node in nodes {
            let mut groups: BTreeMap<(u32, u32), Vec<Raw>> = BTreeMap::new();
            let mut mains: BTreeMap<(u32, u32), Raw> = BTreeMap::new();
            for ue in node.agg_devs.iter().flat_map(|device| &device.ues) {
                let primary = raw(ue.primary_eid);
                if primary == NONE {
                    continue;
                }
                let key = (ue.entity_id, ue.chip_id);
                mains.entry(key).and_modify(|main| *main = primary.min(*main)).or_insert(primary);
                groups.entry(key).or_default().extend(eids(ue));
            }
            for (key, eids) in groups {
                if let Some(main) = mains.get(&key) {
                    self.insert_main(*main, &eids)?;
                }
            }
        }
        Ok(())
    }
}

/// The EIDs of an endpoint that has a primary one: that, and those of its ports.
fn eids(ue: &urma_topo_ue) -> impl Iterator<Item = Raw> {
    std::iter::once(raw(ue.primary_eid)).chain(ue.port_eid.map(raw)).filter(|eid| *eid != NONE)
}

/// An EID as the topology spells it.
pub(crate) fn raw(chars: [core::ffi::c_char; 16]) -> Raw {
    chars.map(byte_of)
}
