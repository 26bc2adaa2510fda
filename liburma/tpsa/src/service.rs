//! What the service of this process knows: topology, main EIDs, aggregated devices, paths between two EIDs.
//!
//! Takes what callers insert, gives lookups and sets of at least one path. Must not touch C memory.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    No,
    abi::{
        PORT_NUM, UVS_MAX_ROUTES, UVS_TOPO_TYPE_CLOS, UVS_TOPO_TYPE_FULLMESH_1D, byte_of,
        urma_eid_t, urma_topo_agg_dev, urma_topo_node, urma_topo_ue, uvs_node_id_t, uvs_path_set_t,
        uvs_path_t, uvs_port_id, uvs_port_id_u,
    },
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

/// What a path joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// The primary EIDs of two dies.
    Die,
    /// The EIDs of two ports.
    Port,
}

/// An end of a path.
#[derive(Clone, Copy)]
struct End {
    eid: Raw,
    port: uvs_port_id,
    /// Its place in a node's matrix of links.
    link: usize,
}

const NO_NODE: uvs_node_id_t = uvs_node_id_t { super_node_id: 0, node_id: 0 };
const NO_PATH: uvs_path_t = uvs_path_t {
    src_port: uvs_port_id { value: 0 },
    dst_port: uvs_port_id { value: 0 },
    src_eid: urma_eid_t { words: [0; 2] },
    dst_eid: urma_eid_t { words: [0; 2] },
};

/// The paths from `src` to `dst`: those that the topology has between two aggregated devices, or,
/// where it knows none, the one between the EIDs themselves.
pub(crate) fn between(
    nodes: &[urma_topo_node],
    src: Raw,
    dst: Raw,
    level: Level,
) -> uvs_path_set_t {
    let mut set = uvs_path_set_t {
        topo_type: UVS_TOPO_TYPE_FULLMESH_1D,
        src_node: NO_NODE,
        dst_node: NO_NODE,
        chip_count: 1,
        die_count: 1,
        path_count: 0,
        paths: [NO_PATH; UVS_MAX_ROUTES as usize],
    };
    if let (Some(from), Some(to)) = (find(nodes, src), find(nodes, dst)) {
        describe(&mut set, from, to);
        for (here, there) in pairs(from.1, to, level) {
            add(&mut set, here, there);
        }
    }
    if set.path_count == 0 {
        let end = |eid| End { eid, port: uvs_port_id { value: 0 }, link: 0 };
        add(&mut set, end(src), end(dst));
    }
    set
}

type NodeDevice<'a> = (&'a urma_topo_node, &'a urma_topo_agg_dev);

fn find(nodes: &[urma_topo_node], eid: Raw) -> Option<NodeDevice<'_>> {
    nodes.iter().find_map(|node| {
        let device = node.agg_devs.iter().find(|device| raw(device.agg_eid) == eid)?;
        Some((node, device))
    })
}

fn describe(set: &mut uvs_path_set_t, from: NodeDevice<'_>, to: NodeDevice<'_>) {
    let id = |node: &urma_topo_node| uvs_node_id_t {
        super_node_id: node.super_node_id,
        node_id: node.node_id,
    };
    (set.src_node, set.dst_node) = (id(from.0), id(to.0));
    if from.0.r#type == UVS_TOPO_TYPE_CLOS {
        set.topo_type = UVS_TOPO_TYPE_CLOS;
    }
    let ues = || from.1.ues.iter().filter(|ue| raw(ue.primary_eid) != NONE);
    let distinct = |of: fn(&urma_topo_ue) -> u32| {
        let mut values: Vec<u32> = ues().map(of).collect();
        values.sort_unstable();
        values.dedup();
        u32::try_from(values.len()).unwrap_or(1).max(1)
    };
    (set.chip_count, set.die_count) = (distinct(|ue| ue.chip_id), distinct(|ue| ue.die_id));
}

/// The ends that are joined. In a mesh a die, and a port, is joined with the one of the same number;
/// where the target's node has a matrix of links, with those that it names.
fn pairs(from: &urma_topo_agg_dev, to: NodeDevice<'_>, level: Level) -> Vec<(End, End)> {
    let links = &to.0.links;
    let has_matrix = level == Level::Port && links.iter().flatten().any(|link| *link != 0);
    let (here, there) = (ends(from, level), ends(to.1, level));
    let mut pairs = Vec::new();
    for one in &here {
        for other in &there {
            let linked = links.get(one.link).and_then(|row| row.get(other.link));
            let is_joined =
                if has_matrix { linked.is_some_and(|l| *l != 0) } else { one.link == other.link };
            if is_joined {
                pairs.push((*one, *other));
            }
        }
    }
    pairs
}

fn ends(device: &urma_topo_agg_dev, level: Level) -> Vec<End> {
    let mut ends = Vec::new();
    for (die, ue) in device.ues.iter().enumerate() {
        let ports = match level {
            Level::Die => vec![(0, raw(ue.primary_eid))],
            Level::Port => ue.port_eid.iter().map(|eid| raw(*eid)).enumerate().collect(),
        };
        for (index, eid) in ports.into_iter().filter(|(_, eid)| *eid != NONE) {
            let port = port(ue, index);
            ends.push(End { eid, port, link: die * PORT_NUM as usize + index });
        }
    }
    ends
}

fn port(ue: &urma_topo_ue, index: usize) -> uvs_port_id {
    let low = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    let port_idx = u8::try_from(index).unwrap_or(u8::MAX);
    let parts =
        uvs_port_id_u { chip_id: low(ue.chip_id), die_id: low(ue.die_id), port_idx, reserved: 0 };
    let mut port = uvs_port_id { value: 0 };
    port.u = parts;
    port
}

/// Paths beyond what the set has room for are left out.
fn add(set: &mut uvs_path_set_t, here: End, there: End) {
    let Some(place) = set.paths.get_mut(set.path_count as usize) else { return };
    *place = uvs_path_t {
        src_port: here.port,
        dst_port: there.port,
        src_eid: urma_eid_t::from_raw(here.eid),
        dst_eid: urma_eid_t::from_raw(there.eid),
    };
    set.path_count += 1;
}
