//! Groups, communicators and requests of a C program, by number; and the URMA nodes by whose UDP ports groups
//! reduce.
//!
//! A handle that was given back, or never given, is refused. There is one node for each address, for as long as a
//! group uses it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use inc::{
    controller::GroupSecret,
    edge::{EdgeAttributes, Framing, MessageMode, Reliability},
    element::{ElementType, Operator, Reduction},
    wire::{Collective, Rank},
};
use inc_control::HOSTS_PORT;
use inc_net::{
    bootstrap::BOOTSTRAP_PORT,
    drive::LinkAccess,
    group::{CollectiveRequest, Communicator, CommunicatorCfg, IncGroup, IncGroupCfg},
    shared::SharedPort,
    udp::source_of,
};
use ubcore_sim::host::ip_eid;
use urma::{Answerer, NodeCfg, Opened};
use urma_mem::environment::variable;

use crate::{
    answer::{IncclAnswer, IncclError},
    memory::{CallerVector, Destination},
};

/// A group of C. Fields are dropped in order: the node is closed when nothing of the group is left.
#[derive(Debug)]
pub(crate) struct CGroup {
    group: IncGroup,
    /// Whose port it uses; `None`: it has a socket of its own.
    node: Option<NodeUse>,
}

/// A communicator of C: one of Rust for each mode, since its calls choose the mode.
#[derive(Debug)]
pub(crate) struct CCommunicator {
    attributes: EdgeAttributes,
    bound: Duration,
    write: OnceLock<Communicator>,
    send: OnceLock<Communicator>,
    last_error: Mutex<String>,
    /// Behind the communicators of Rust, which leave by its link.
    group: Arc<CGroup>,
}

/// A request of C: one operation or, of an allgather or reduce-scatter, one for each rank.
#[derive(Debug)]
pub(crate) struct CRequest {
    pub(crate) communicator: Arc<CCommunicator>,
    /// The operations that are not over, and where their results go.
    parts: Vec<(CollectiveRequest, Option<Destination>)>,
}

#[derive(Debug)]
enum CObject {
    Group(Arc<CGroup>),
    Communicator(Arc<CCommunicator>),
    Request(Box<CRequest>),
}

#[derive(Debug, Default)]
struct IncclObjects {
    all: BTreeMap<usize, CObject>,
    last: usize,
}

/// Handles are numbers that look like no pointer, and are never given twice.
const HANDLE_STEP: usize = 16;

fn objects() -> MutexGuard<'static, IncclObjects> {
    static OBJECTS: Mutex<IncclObjects> =
        Mutex::new(IncclObjects { all: BTreeMap::new(), last: 0 });
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(object: CObject) -> usize {
    let mut objects = objects();
    objects.last += HANDLE_STEP;
    let handle = objects.last;
    objects.all.insert(handle, object);
    handle
}

fn wrong(handle: usize, what: &str) -> IncclError {
    let why = if handle == 0 { "null" } else { "destroyed, or was never created" };
    IncclError::invalid(format!("{what} is {why}"))
}

/// The group behind a handle.
pub(crate) fn group(handle: usize) -> Result<Arc<CGroup>, IncclError> {
    match objects().all.get(&handle) {
        Some(CObject::Group(group)) => Ok(Arc::clone(group)),
        _ => Err(wrong(handle, "group")),
    }
}

/// The communicator behind a handle.
pub(crate) fn communicator(handle: usize) -> Result<Arc<CCommunicator>, IncclError> {
    match objects().all.get(&handle) {
        Some(CObject::Communicator(communicator)) => Ok(Arc::clone(communicator)),
        _ => Err(wrong(handle, "comm")),
    }
}

/// Takes a request out, to be put back if it is under way.
pub(crate) fn take_request(handle: usize) -> Result<Box<CRequest>, IncclError> {
    let mut objects = objects();
    match objects.all.remove(&handle) {
        Some(CObject::Request(request)) => Ok(request),
        Some(other) => {
            objects.all.insert(handle, other);
            Err(wrong(handle, "request"))
        }
        None => Err(wrong(handle, "request")),
    }
}

pub(crate) fn put_request(handle: usize, request: Box<CRequest>) {
    objects().all.insert(handle, CObject::Request(request));
}

pub(crate) fn add_request(request: CRequest) -> usize {
    add(CObject::Request(Box::new(request)))
}

/// Joins a group by the arguments of C and the environment.
pub(crate) fn create_group(
    world_size: i32,
    controller: Option<String>,
    rank: i32,
) -> Result<usize, IncclError> {
    let number = |value: i32, what: &str| {
        u16::try_from(value)
            .map_err(|_| IncclError::invalid(format!("{what} is {value}: it is from 0 to 65535")))
    };
    let (world_size, rank) = (number(world_size, "world_size")?, number(rank, "rank")?);
    let (controller, from) = match controller {
        Some(text) => (text, "controller_ip"),
        None => (environment("INCCL_MASTER")?.ok_or_else(no_controller)?, "INCCL_MASTER"),
    };
    let address = |text: &str, what: &str| {
        text.parse::<IpAddr>()
            .map_err(|_| IncclError::invalid(format!("{what} is \"{text}\": no IP address")))
    };
    // Several with commas between, if one of them is in charge.
    let controllers = controller.split(',').map(|one| address(one.trim(), from));
    let controllers = controllers.collect::<Result<Vec<_>, _>>()?;
    let [first, others @ ..] = &controllers[..] else { return Err(no_controller()) };
    let mut cfg = IncGroupCfg::new(*first, world_size, rank);
    match environment("INCCL_GROUP")?.filter(|name| !name.is_empty()) {
        Some(name) => cfg.name = name,
        None => cfg.bootstrap = Some(BOOTSTRAP_PORT),
    }
    if let Some(own) = environment("INCCL_ADDRESS")? {
        cfg.address = Some(address(&own, "INCCL_ADDRESS")?);
    }
    let port = environment_number("INCCL_PORT", u64::from(HOSTS_PORT))?;
    let port = u16::try_from(port)
        .map_err(|_| IncclError::invalid(format!("INCCL_PORT is {port}: no TCP port")))?;
    cfg.controller = SocketAddr::new(*first, port);
    cfg.others = others.iter().map(|&other| SocketAddr::new(other, port)).collect();
    cfg.wait = Duration::from_secs(environment_number("INCCL_WAIT", cfg.wait.as_secs())?);
    if let Some(file) = environment("INCCL_SECRET")? {
        let secret = std::fs::read(Path::new(&file));
        let secret =
            secret.map_err(|error| IncclError::system(format!("INCCL_SECRET: {file}: {error}")))?;
        cfg.secret = Some(GroupSecret::new(secret.trim_ascii()));
    }
    let mut node = None;
    if wants_node()? {
        let (of_node, port) = node_for(&cfg)?;
        (node, cfg.access) = (Some(of_node), LinkAccess::Shared(port));
    }
    Ok(add(CObject::Group(Arc::new(CGroup { group: IncGroup::join(cfg)?, node }))))
}

fn wants_node() -> Result<bool, IncclError> {
    match environment_number("INCCL_NODE", 0)? {
        0 => Ok(false),
        1 => Ok(true),
        other => {
            let words = "1 opens a URMA node, 0 does not";
            Err(IncclError::invalid(format!("INCCL_NODE is {other}: {words}")))
        }
    }
}

/// The node of this process at the address that switches are to send to.
fn node_for(cfg: &IncGroupCfg) -> Result<(NodeUse, SharedPort), IncclError> {
    let address = match cfg.address {
        Some(address) => address,
        None => source_of(cfg.controller)
            .map_err(|error| IncclError::system(format!("{}: {error}", cfg.controller)))?,
    };
    NodeUse::of(address)
}

fn no_controller() -> IncclError {
    IncclError::invalid(
        "controller_ip is null, and INCCL_MASTER does not name the controller".into(),
    )
}

fn environment(name: &str) -> Result<Option<String>, IncclError> {
    let Some(value) = variable(name) else { return Ok(None) };
    let value = value.into_string();
    value.map(Some).map_err(|_| IncclError::invalid(format!("{name} is no UTF-8")))
}

fn environment_number(name: &str, default: u64) -> Result<u64, IncclError> {
    let Some(text) = environment(name)? else { return Ok(default) };
    text.parse().map_err(|_| IncclError::invalid(format!("{name} is \"{text}\": no number")))
}

/// Forgets a group; it is left when its communicators are destroyed, too.
pub(crate) fn destroy_group(handle: usize) -> Result<(), IncclError> {
    group(handle)?;
    let gone = objects().all.remove(&handle);
    drop(gone);
    Ok(())
}

/// Makes a communicator in one mode; that in the other is made by the first call that needs it.
pub(crate) fn create_communicator(
    group_handle: usize,
    attributes: EdgeAttributes,
    bound: Duration,
) -> Result<usize, IncclError> {
    let made = CCommunicator {
        attributes,
        bound,
        write: OnceLock::new(),
        send: OnceLock::new(),
        last_error: Mutex::default(),
        group: group(group_handle)?,
    };
    made.of(attributes.mode)?;
    Ok(add(CObject::Communicator(Arc::new(made))))
}

/// Destroys a communicator. Its requests are under way no longer.
pub(crate) fn destroy_communicator(handle: usize) -> Result<(), IncclError> {
    let communicator = communicator(handle)?;
    let mut ended = Vec::new();
    {
        let mut objects = objects();
        objects.all.remove(&handle);
        let is_its = |_: &usize, object: &mut CObject| matches!(object, CObject::Request(request) if Arc::ptr_eq(&request.communicator, &communicator));
        ended.extend(objects.all.extract_if(.., is_its));
    }
    // Not under the lock: destroying waits for the other ranks.
    let count = ended.len();
    drop((ended, communicator));
    if count == 0 {
        return Ok(());
    }
    let words =
        format!("the communicator was destroyed with {count} requests under way: they are ended");
    Err(IncclError { answer: IncclAnswer::Canceled, words })
}

impl CCommunicator {
    /// The communicator of a mode.
    pub(crate) fn of(&self, mode: MessageMode) -> Result<&Communicator, IncclError> {
        let place = match mode {
            MessageMode::Write => &self.write,
            MessageMode::Send => &self.send,
        };
        if let Some(made) = place.get() {
            return Ok(made);
        }
        let attributes = EdgeAttributes { mode, ..self.attributes };
        let cfg = CommunicatorCfg { attributes, bound: self.bound };
        let made = self.group.group.communicator(cfg)?;
        Ok(place.get_or_init(|| made))
    }

    /// How its messages travel.
    pub(crate) fn attributes(&self) -> &EdgeAttributes {
        &self.attributes
    }

    pub(crate) fn default_mode(&self) -> MessageMode {
        self.attributes.mode
    }

    pub(crate) fn group(&self) -> &IncGroup {
        &self.group.group
    }

    /// Whether its messages go by the port of a node.
    pub(crate) fn is_at_node(&self) -> bool {
        self.group.node.is_some()
    }

    pub(crate) fn note(&self, words: &str) {
        words.clone_into(&mut self.last_error.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn last_error(&self) -> String {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What an operation does, and where its result goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// The result of one collective.
    One(Collective),
    /// All blocks, by a broadcast of each rank.
    Allgather(ElementType),
    /// A block, by a reduce for each rank.
    ReduceScatter(Reduction),
}

impl CRequest {
    /// Begins the operations of a call.
    pub(crate) fn begin(
        communicator: Arc<CCommunicator>,
        mode: MessageMode,
        wanted: Wanted,
        source: CallerVector,
        to: Destination,
    ) -> Result<Self, IncclError> {
        let of = communicator.of(mode)?;
        let (rank, ranks) = (of.rank(), of.world_size());
        let input = source.bytes();
        let mut parts = Vec::new();
        match wanted {
            Wanted::One(collective) => {
                let gets = match collective {
                    Collective::Allreduce(_) => true,
                    Collective::Reduce(_, root) => root == rank,
                    Collective::Broadcast(_, root) => root != rank,
                    Collective::Barrier => false,
                };
                parts.push((of.begin(collective, input)?, gets.then_some(to)));
            }
            Wanted::Allgather(element) => {
                let len = input.len();
                for owner in 0..ranks {
                    let request = of.begin(Collective::Broadcast(element, Rank(owner)), input)?;
                    let place = to.part(usize::from(owner) * len, len);
                    parts.push((request, (Rank(owner) != rank).then_some(place)));
                }
                // The last use of the source, which may lie in there.
                to.part(usize::from(rank.0) * len, len).copy(source);
            }
            Wanted::ReduceScatter(reduction) => {
                let len = input.len() / usize::from(ranks);
                for owner in 0..ranks {
                    let at = usize::from(owner) * len;
                    let collective = Collective::Reduce(reduction, Rank(owner));
                    let request = of.begin(collective, &input[at..at + len])?;
                    parts.push((request, (Rank(owner) == rank).then_some(to)));
                }
            }
        }
        // The first one is looked at first.
        parts.reverse();
        Ok(Self { communicator, parts })
    }

    /// Waits so long at most, and writes the results of what is over; `false`: something is under way.
    pub(crate) fn wait(&mut self, most: Duration) -> Result<bool, IncclError> {
        while let Some((request, _)) = self.parts.last_mut() {
            if !request.wait_for(most) {
                return Ok(false);
            }
            let Some((request, to)) = self.parts.pop() else { break };
            let result = request.wait()?;
            if let Some(to) = to {
                to.write(&result);
            }
        }
        Ok(true)
    }
}

/// The element type of a number of C.
pub(crate) fn element(number: i32) -> Result<ElementType, IncclError> {
    let found = u8::try_from(number).ok().and_then(ElementType::from_code);
    found.ok_or_else(|| IncclError::invalid(format!("type {number} is no element type")))
}

/// The reduction of two numbers of C.
pub(crate) fn reduction(op: i32, of: ElementType) -> Result<Reduction, IncclError> {
    let found = u8::try_from(op).ok().and_then(Operator::from_code);
    let operator = found.ok_or_else(|| IncclError::invalid(format!("op {op} is no operator")))?;
    let none = || IncclError::invalid(format!("there is no {operator:?} of {of:?}"));
    Reduction::new(operator, of).ok_or_else(none)
}

/// The rank of a number of C.
pub(crate) fn rank(number: i32) -> Result<Rank, IncclError> {
    let rank = u16::try_from(number).map(Rank);
    rank.map_err(|_| IncclError::invalid(format!("root {number} is no rank")))
}

/// The attributes of an `inccl_attr`, where zero means the default.
pub(crate) fn attributes(attr: &crate::CAttr) -> Result<(EdgeAttributes, Duration), IncclError> {
    let short = |value: u32, default: u16, what: &str| match value {
        0 => Ok(default),
        value => u16::try_from(value)
            .map_err(|_| IncclError::invalid(format!("{what} is {value}, far too large"))),
    };
    let mode = match attr.mode {
        0 => MessageMode::Write,
        1 => MessageMode::Send,
        other => return Err(IncclError::invalid(format!("mode {other} is none"))),
    };
    let reliability = match attr.edge {
        0 => Reliability::Reliable,
        1 => Reliability::Unreliable,
        other => return Err(IncclError::invalid(format!("edge {other} is none"))),
    };
    let fallback = match attr.fallback {
        0 => true,
        1 => false,
        other => return Err(IncclError::invalid(format!("fallback {other} is none"))),
    };
    let framing = match (attr.framing, attr.plain_type, attr.plain_op) {
        (0, 0, 0) => Framing::Inc,
        (0, ..) => {
            let words = "plain_type and plain_op belong to INCCL_FRAMING_PLAIN".to_owned();
            return Err(IncclError::invalid(words));
        }
        (1, of, op) => {
            let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
            Framing::Plain(reduction(number(op), element(number(of))?)?)
        }
        (other, ..) => return Err(IncclError::invalid(format!("framing {other} is none"))),
    };
    let is_ordered = match attr.ordered {
        0 => true,
        1 => false,
        other => return Err(IncclError::invalid(format!("ordered {other} is none"))),
    };
    let attributes = EdgeAttributes {
        mode,
        reliability,
        framing,
        is_ordered,
        path_mtu: short(attr.path_mtu, PATH_MTU, "path_mtu")?,
        packets: u8::try_from(short(attr.packets, 1, "packets")?).unwrap_or(u8::MAX),
        window: short(attr.window, 64, "window")?.into(),
        fallback,
        ..EdgeAttributes::DEFAULT
    };
    attributes.check().map_err(|error| IncclError::invalid(error.to_string()))?;
    let bound = if attr.bound_ms == 0 { 30_000 } else { attr.bound_ms };
    Ok((attributes, Duration::from_millis(bound.into())))
}

/// Payload of a packet that fits every Ethernet.
const PATH_MTU: u16 = 1024;

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
