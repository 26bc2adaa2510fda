//! URMA nodes of a C program's process, by whose UDP ports groups reduce.
//!
//! - owns: a node for each address, for as long as a group uses it. takes: an address, the environment. gives: the node's port.
//! - must not: open two nodes at one address.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use inc_net::shared::SharedPort;
use ubcore_sim::host::ip_eid;
use urma::{Answerer, NodeCfg, Opened};

use crate::answer::IncclError;

/// A node, what answers pings at it, and the groups that use both. Fields are dropped in order.
#[derive(Debug)]
struct ProcessNode {
    _answerer: Answerer,
    opened: Opened,
    users: usize,
}

/// The use of a node by a group. The last one that is dropped closes it.
#[derive(Debug)]
pub(crate) struct NodeUse(IpAddr);

fn nodes() -> MutexGuard<'static, BTreeMap<IpAddr, ProcessNode>> {
    static NODES: Mutex<BTreeMap<IpAddr, ProcessNode>> = Mutex::new(BTreeMap::new());
    NODES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NodeUse {
    /// Of the node at an address, which is opened if this process has none there; and its UDP port.
    pub(crate) fn of(address: IpAddr) -> Result<(Self, SharedPort), IncclError> {
        let mut nodes = nodes();
        let node = match nodes.entry(address) {
            Entry::Occupied(node) => node.into_mut(),
            Entry::Vacant(place) => {
                let why = |error| IncclError::system(format!("INCCL_NODE: {error}"));
                place.insert(ProcessNode::open(address).map_err(why)?)
            }
        };
        node.users += 1;
        Ok((Self(address), inc_node::at(&node.opened.node)))
    }
}

impl Drop for NodeUse {
    fn drop(&mut self) {
        let mut nodes = nodes();
        let Some(node) = nodes.get_mut(&self.0) else { return };
        node.users -= 1;
        if node.users == 0 {
            // Under the lock: who opens the next one finds the address free.
            nodes.remove(&self.0);
        }
    }
}

impl ProcessNode {
    fn open(address: IpAddr) -> Result<Self, String> {
        let mut cfg = NodeCfg::from_env().map_err(|error| error.to_string())?;
        cfg.eid = Some(ip_eid(address));
        let opened = urma::open_node(cfg).map_err(|error| error.to_string())?;
        let answerer = Answerer::start(&opened.device, 0);
        let _answerer = answerer.map_err(|status| format!("answering pings: {status}"))?;
        Ok(Self { _answerer, opened, users: 0 })
    }
}
