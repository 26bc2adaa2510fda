//! A rank of a group, as programs use it: join, make communicators, reduce.
//!
//! ```no_run
//! use inc::element::Operator;
//! use inc_net::group::{CommunicatorCfg, IncGroup, IncGroupCfg};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group = IncGroup::join(IncGroupCfg::new("10.0.0.9".parse()?, 4, 0))?;
//! let communicator = group.communicator(CommunicatorCfg::default())?;
//! let sum: Vec<f32> = communicator.allreduce(&[1.0, 2.0], Operator::Sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! Operations are futures too, for programs with many things to wait for. Any executor will do: the host's own
//! thread, or whichever thread waits for a result of the same host, wakes who awaits one.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread,
    time::Duration,
};

use inc::{
    control::{CommunicatorId, HostReport},
    controller::GroupSecret,
    edge::EdgeAttributes,
    element::{ElementType, Operator, Reduction},
    host::{HostMemberCfg, HostMemberError, MemberId, Reducers},
    member::{OperationError, OperationId, SubmitError},
    wire::{Collective, Rank},
};
use inc_control::{HOSTS_PORT, HostSession, HostSessionCfg, JoinError, SessionError};
use urma_packet::ROCE_PORT;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{
    bootstrap::{BootstrapError, FoundGroup, GroupInvitation, InvitingRank, find},
    clock,
    drive::LinkAccess,
    host::LocalHost,
    udp::source_of,
};

/// A wait is looked at again after this time; the operation's bound ends it.
const WAIT_STEP: Duration = Duration::from_secs(60);

/// The controller explains an abort within this time, or is gone.
const WORDS_WAIT: Duration = Duration::from_secs(1);
const WORDS_STEP: Duration = Duration::from_millis(5);

/// Name of a group that has been given none.
pub const GROUP_DEFAULT: &str = "inccl";

/// Which rank of which group this is.
#[derive(Debug, Clone)]
pub struct IncGroupCfg {
    /// Where the controller waits for hosts.
    pub controller: SocketAddr,
    /// Further ones, if one of several is in charge.
    pub others: Vec<SocketAddr>,
    /// Name of the group: ranks with one name meet.
    pub name: String,
    /// Ranks of the group.
    pub world_size: u16,
    /// The number of this one, from 0 on.
    pub rank: u16,
    /// The address that switches send to; `None`: the one from which the controller is reached. A shared port has its own.
    pub address: Option<IpAddr>,
    /// How this rank's datagrams go to the link.
    pub access: LinkAccess,
    /// Whose quota the group counts to.
    pub tenant: u32,
    /// What proves that this rank may join, if the controller wants a proof.
    pub secret: Option<GroupSecret>,
    /// The controller and all ranks are waited for so long.
    pub wait: Duration,
    /// TCP port at which rank 0 says to the others where the controller is and what the group is called, most often
    /// [`BOOTSTRAP_PORT`]; `controller` of those may be rank 0's address, then. `None`: all know the controller, and meet by
    /// the name.
    ///
    /// [`BOOTSTRAP_PORT`]: crate::bootstrap::BOOTSTRAP_PORT
    pub bootstrap: Option<u16>,
}

/// How a communicator works: the same for all its ranks.
#[derive(Debug, Clone, Copy)]
pub struct CommunicatorCfg {
    /// How messages travel on its edges.
    pub attributes: EdgeAttributes,
    /// An operation that takes longer ends with an error.
    pub bound: Duration,
}

/// Why a rank has no group or no communicator.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The numbers contradict each other.
    #[error("rank {rank} of {world_size}: ranks are 0 to {world_size} - 1")]
    Rank {
        /// Rank that was asked for.
        rank: u16,
        /// Ranks of the group.
        world_size: u16,
    },
    /// The machine has no route to the controller, or refuses a socket.
    #[error("the operating system refused UDP {address}: {error}")]
    Socket {
        /// Local address that was to be bound, or the controller's.
        address: SocketAddr,
        /// Error of the system call.
        error: io::Error,
    },
    /// The ranks did not find each other.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The group did not come to be.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The communicator did not come to be.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The attributes cannot be.
    #[error(transparent)]
    Member(#[from] HostMemberError),
}

/// Why an operation has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// It did not begin.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// There is no such reduction.
    #[error("{operator:?} of {element:?} is no reduction")]
    Reduction {
        /// Operator that was asked for.
        operator: Operator,
        /// Type of the elements.
        element: ElementType,
    },
    /// The root is no member.
    #[error("root {} is no rank of a group of {world_size}", root.0)]
    Root {
        /// Rank that was named.
        root: Rank,
        /// Ranks of the group.
        world_size: u16,
    },
    /// It ended without a result; the text is what the controller says of it.
    #[error("{error}{}{}", if why.is_empty() { "" } else { ": " }, why)]
    Operation {
        /// What ended the operation.
        error: OperationError,
        /// The reason in words, or nothing.
        why: String,
    },
}

/// A rank of a group. Dropped, it leaves.
#[derive(Debug)]
pub struct IncGroup {
    cfg: IncGroupCfg,
    session: Arc<HostSession>,
    host: Arc<LocalHost>,
}

/// A rank of a communicator. Dropped with all its requests, it is destroyed when all ranks did the same.
#[derive(Debug)]
pub struct Communicator(Arc<CommunicatorRank>);

#[derive(Debug)]
struct CommunicatorRank {
    id: CommunicatorId,
    member: MemberId,
    rank: Rank,
    world_size: u16,
    session: Arc<HostSession>,
    host: Arc<LocalHost>,
}

/// An operation under way: a future, and what a thread waits for. Dropped, its result goes when it comes; the other ranks get
/// theirs.
///
/// An operation begins with the call, not when its future is first polled, since all ranks begin the same ones in the
/// same order. A future that is dropped takes nothing back: this rank still has its part in the operation, whose
/// result goes.
#[derive(Debug)]
pub struct CollectiveRequest {
    of: Arc<CommunicatorRank>,
    operation: OperationId,
    result: Option<Result<Arc<Vec<u8>>, CollectiveError>>,
    /// The host gave its result, which it does once.
    is_taken: bool,
}

/// A type of Rust that is an element type of vectors.
pub trait VectorElement: FromBytes + IntoBytes + Immutable + Copy {
    /// Its element type in vectors.
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($rust:ty => $element:ident),*) => {
        $(impl VectorElement for $rust { const TYPE: ElementType = ElementType::$element; })*
    };
}
elements!(
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f32 => F32, f64 => F64
);

// Elements travel little-endian, and so they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"));

impl IncGroupCfg {
    /// Rank `rank` of the group of the default name, by the controller at an address.
    #[must_use]
    pub fn new(controller: IpAddr, world_size: u16, rank: u16) -> Self {
        Self {
            controller: SocketAddr::new(controller, HOSTS_PORT),
            others: Vec::new(),
            name: GROUP_DEFAULT.into(),
            world_size,
            rank,
            address: None,
            access: LinkAccess::Udp,
            tenant: 0,
            secret: None,
            wait: Duration::from_secs(30),
            bootstrap: None,
        }
    }
}

impl Default for CommunicatorCfg {
    fn default() -> Self {
        Self { attributes: EdgeAttributes::DEFAULT, bound: Duration::from_secs(30) }
    }
}

impl IncGroup {
    /// Joins a group, and waits until all its ranks did.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn join(mut cfg: IncGroupCfg) -> Result<Self, GroupError> {
        let (rank, world_size) = (cfg.rank, cfg.world_size);
        if rank >= world_size {
            return Err(GroupError::Rank { rank, world_size });
        }
        let start = clock();
        if let Some(port) = cfg.bootstrap.filter(|_| rank != 0) {
            ask_rank_zero(&mut cfg, port)?;
        }
        let host = Arc::new(bind(&cfg)?);
        // Until all have joined.
        let _inviting = match cfg.bootstrap.filter(|_| rank == 0) {
            Some(port) => {
                let at = SocketAddr::new(host.address().ip(), port);
                Some(InvitingRank::start(at, &invitation(&cfg))?)
            }
            None => None,
        };
        let session = HostSession::join(HostSessionCfg {
            controller: cfg.controller,
            others: cfg.others.clone(),
            group: cfg.name.clone(),
            world_size: world_size.into(),
            rank: rank.into(),
            address: host.address().ip(),
            tenant: cfg.tenant,
            secret: cfg.secret.clone(),
            wait: cfg.wait.saturating_sub(start.elapsed()),
            tls: None,
        })?;
        Ok(Self { cfg, session: Arc::new(session), host })
    }

    /// Makes a communicator with all ranks of the group.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn communicator(&self, cfg: CommunicatorCfg) -> Result<Communicator, GroupError> {
        let rank = Rank(self.cfg.rank);
        let of_reports = Arc::clone(&self.session);
        let on_report = Box::new(move |report: HostReport| of_reports.report(report));
        let member = HostMemberCfg {
            rank,
            attributes: cfg.attributes,
            address: self.host.address(),
            bound_ns: u64::try_from(cfg.bound.as_nanos()).unwrap_or(u64::MAX),
        };
        let (member, end) = self.host.join(member, on_report)?;
        let of_commands = Arc::clone(&self.host);
        let on_command = Box::new(move |command| of_commands.on_command(member, command));
        match self.session.create_communicator(cfg.attributes, end, on_command) {
            Ok(id) => Ok(Communicator(Arc::new(CommunicatorRank {
                id,
                member,
                rank,
                world_size: self.cfg.world_size,
                session: Arc::clone(&self.session),
                host: Arc::clone(&self.host),
            }))),
            Err(error) => {
                self.host.leave(member);
                Err(error.into())
            }
        }
    }

    /// The host behind the group: its address and counters.
    #[must_use]
    pub fn host(&self) -> &LocalHost {
        &self.host
    }
}

impl Communicator {
    /// Number of this member.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.0.rank
    }

    /// Members of the communicator.
    #[must_use]
    pub fn world_size(&self) -> u16 {
        self.0.world_size
    }

    /// Its number at the controller.
    #[must_use]
    pub fn id(&self) -> CommunicatorId {
        self.0.id
    }

    /// Chunks that this rank sent again so far.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.0.host.repeated(self.0.member)
    }

    /// What reduces now: switches, the members' own programs, or nothing yet.
    #[must_use]
    pub fn reducers(&self) -> Reducers {
        self.0.host.reducers(self.0.member)
    }

    /// Why no switch of the topology reduces, or why the communicator is over; `None`: switches reduce.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.0.host.why(self.0.member)
    }

    /// Every rank gets the reduction of what all ranks give.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allreduce<T: VectorElement>(
        &self,
        data: &[T],
        operator: Operator,
    ) -> Result<Vec<T>, CollectiveError> {
        let collective = Collective::Allreduce(reduction(operator, T::TYPE)?);
        Ok(values(&self.begin(collective, data.as_bytes())?.wait()?))
    }

    /// Every rank's data becomes the reduction of what all ranks give: [`Communicator::allreduce`] without a new vector. After
    /// an error the data is as it was.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allreduce_in_place<T: VectorElement>(
        &self,
        data: &mut [T],
        operator: Operator,
    ) -> Result<(), CollectiveError> {
        let collective = Collective::Allreduce(reduction(operator, T::TYPE)?);
        let result = self.begin(collective, data.as_bytes())?.wait()?;
        data.as_mut_bytes().copy_from_slice(&result);
        Ok(())
    }

    /// The root gets the reduction of what all ranks give, the others nothing.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn reduce<T: VectorElement>(
        &self,
        data: &[T],
        operator: Operator,
        root: Rank,
    ) -> Result<Vec<T>, CollectiveError> {
        let collective = Collective::Reduce(reduction(operator, T::TYPE)?, root);
        Ok(values(&self.begin(collective, data.as_bytes())?.wait()?))
    }

    /// Every rank gets what the root gives; the others give as many elements of any value.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn broadcast<T: VectorElement>(
        &self,
        data: &[T],
        root: Rank,
    ) -> Result<Vec<T>, CollectiveError> {
        let request = self.begin(Collective::Broadcast(T::TYPE, root), data.as_bytes())?;
        let result = request.wait()?;
        Ok(if root == self.rank() { data.to_vec() } else { values(&result) })
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.begin(Collective::Barrier, &[])?.wait().map(drop)
    }

    /// Every rank gets what each rank gives, one after the other; all give as many elements.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn allgather<T: VectorElement>(&self, data: &[T]) -> Result<Vec<T>, CollectiveError> {
        let owners = (0..self.world_size()).map(Rank);
        let of = |owner| self.begin(Collective::Broadcast(T::TYPE, owner), data.as_bytes());
        let requests: Result<Vec<_>, _> = owners.map(of).collect();
        let mut all = Vec::with_capacity(data.len() * usize::from(self.world_size()));
        for (owner, request) in (0..).zip(requests?) {
            let part = request.wait()?;
            let own = if Rank(owner) == self.rank() { data } else { &values(&part) };
            all.extend_from_slice(own);
        }
        Ok(all)
    }

    /// Each rank gets its block of the reduction: of n ranks, which all give n equal blocks, rank r gets block r.
    ///
    /// # Errors
    /// [`CollectiveError`]; [`SubmitError::Elements`] if the elements are no equal blocks.
    pub fn reduce_scatter<T: VectorElement>(
        &self,
        data: &[T],
        operator: Operator,
    ) -> Result<Vec<T>, CollectiveError> {
        let blocks = self.blocks(data)?;
        let reduction = reduction(operator, T::TYPE)?;
        let of = |(owner, block): (Rank, &[T])| {
            Ok((owner, self.begin(Collective::Reduce(reduction, owner), block.as_bytes())?))
        };
        let requests: Result<Vec<_>, CollectiveError> = blocks.map(of).collect();
        let mut mine = Vec::new();
        for (owner, request) in requests? {
            let result = request.wait()?;
            if owner == self.rank() {
                mine = values(&result);
            }
        }
        Ok(mine)
    }

    /// The blocks of a reduce-scatter, with the ranks that get them.
    fn blocks<'a, T>(
        &self,
        data: &'a [T],
    ) -> Result<impl Iterator<Item = (Rank, &'a [T])> + use<'a, T>, CollectiveError> {
        let (ranks, len) = (usize::from(self.world_size()), data.len());
        if !len.is_multiple_of(ranks) {
            return Err(SubmitError::Elements { len, size: ranks }.into());
        }
        Ok((0..self.world_size()).map(Rank).zip(data.chunks((len / ranks).max(1))))
    }

    /// Begins an operation on the bytes of elements, little-endian. All ranks begin the same ones in the same order, each
    /// with as many elements.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn begin(
        &self,
        collective: Collective,
        data: &[u8],
    ) -> Result<CollectiveRequest, CollectiveError> {
        self.check_root(collective)?;
        let operation = self.0.host.submit(self.0.member, collective, data);
        let operation = operation.map_err(|error| match error {
            SubmitError::Over(error) => self.0.ended(error),
            error => error.into(),
        })?;
        Ok(self.request(operation))
    }

    fn check_root(&self, collective: Collective) -> Result<(), CollectiveError> {
        let world_size = self.world_size();
        match collective.root().filter(|root| root.0 >= world_size) {
            Some(root) => Err(CollectiveError::Root { root, world_size }),
            None => Ok(()),
        }
    }

    fn request(&self, operation: OperationId) -> CollectiveRequest {
        let of = Arc::clone(&self.0);
        CollectiveRequest { of, operation, result: None, is_taken: false }
    }
}

impl CommunicatorRank {
    fn ended(&self, error: OperationError) -> CollectiveError {
        let mut why = self.host.why(self.member);
        if let OperationError::Aborted(_) = error {
            // A switch's packet is here before the controller's words, which name ranks.
            let steps = WORDS_WAIT.as_millis() / WORDS_STEP.as_millis();
            for _ in 0..steps {
                if why.is_some() {
                    break;
                }
                thread::park_timeout(WORDS_STEP);
                why = self.host.why(self.member);
            }
        }
        let why = why.unwrap_or_default();
        CollectiveError::Operation { error, why }
    }
}

impl Drop for CommunicatorRank {
    fn drop(&mut self) {
        // Until all ranks are here, the others may need what this one has.
        if let Err(error) = self.session.destroy(self.id) {
            tracing::debug!(communicator = self.id.0, %error, "destroyed without the others");
        }
        self.host.leave(self.member);
    }
}

impl CollectiveRequest {
    /// Waits for the result: bytes of elements, or nothing where this rank gets none.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn wait(mut self) -> Result<Arc<Vec<u8>>, CollectiveError> {
        // The operation's own bound ends it.
        while !self.wait_for(WAIT_STEP) {}
        let none = || self.of.ended(OperationError::Unknown);
        self.result.take().unwrap_or_else(|| Err(none()))
    }

    /// Waits for the result, so long at most; whether the operation is over, and [`CollectiveRequest::wait`] returns at once.
    pub fn wait_for(&mut self, most: Duration) -> bool {
        let of = &self.of;
        if self.result.is_none() && !self.is_taken {
            let result = of.host.wait(of.member, self.operation, most);
            self.is_taken = result.is_some();
            self.result = result.map(|result| result.map_err(|error| of.ended(error)));
        }
        self.is_taken
    }

    /// Whether the operation is over; [`CollectiveRequest::wait`] then returns at once.
    pub fn is_over(&mut self) -> bool {
        self.wait_for(Duration::ZERO)
    }
}

impl Drop for CollectiveRequest {
    fn drop(&mut self) {
        if !self.is_taken {
            self.of.host.forget(self.of.member, self.operation);
        }
    }
}

fn reduction(operator: Operator, element: ElementType) -> Result<Reduction, CollectiveError> {
    let none = CollectiveError::Reduction { operator, element };
    Reduction::new(operator, element).ok_or(none)
}

fn values<T: VectorElement>(bytes: &[u8]) -> Vec<T> {
    let bytes = &bytes[..bytes.len() - bytes.len() % size_of::<T>()];
    let mut values = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
    values.as_mut_bytes().copy_from_slice(bytes);
    values
}

/// What rank 0 says to the others.
fn invitation(cfg: &IncGroupCfg) -> GroupInvitation {
    let controllers = std::iter::once(cfg.controller).chain(cfg.others.iter().copied());
    GroupInvitation {
        name: cfg.name.clone(),
        world_size: cfg.world_size,
        controllers: controllers.collect(),
    }
}

/// Learns from rank 0 where the controller is and what the group is called, unless the controller is at the address where
/// rank 0 was looked for.
fn ask_rank_zero(cfg: &mut IncGroupCfg, port: u16) -> Result<(), GroupError> {
    let FoundGroup::Invited(invited) = find(cfg.controller, port, cfg.wait)? else { return Ok(()) };
    let GroupInvitation { name, world_size, controllers } = invited;
    if world_size != cfg.world_size {
        let (rank, theirs) = (cfg.rank, cfg.world_size);
        let error = BootstrapError::WorldSize { rank, theirs, group: name, ours: world_size };
        return Err(error.into());
    }
    if let [first, ref others @ ..] = controllers[..] {
        (cfg.controller, cfg.others) = (first, others.to_vec());
    }
    cfg.name = name;
    Ok(())
}

/// A host on the address that switches are to send to, on the port of `RoCEv2` if no other process of this address has it.
fn bind(cfg: &IncGroupCfg) -> Result<LocalHost, GroupError> {
    let failed = |address| move |error| GroupError::Socket { address, error };
    if let LinkAccess::Shared(port) = &cfg.access {
        let address = port.address();
        return LocalHost::bind(address, cfg.access.clone()).map_err(failed(address));
    }
    let ip = match cfg.address {
        Some(ip) => ip,
        None => source_of(cfg.controller).map_err(failed(cfg.controller))?,
    };
    let standard = SocketAddr::new(ip, ROCE_PORT);
    match LocalHost::bind(standard, cfg.access.clone()) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            LocalHost::bind(SocketAddr::new(ip, 0), cfg.access.clone()).map_err(failed(standard))
        }
        result => result.map_err(failed(standard)),
    }
}

impl Future for CollectiveRequest {
    type Output = Result<Arc<Vec<u8>>, CollectiveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(result) = this.result.take() {
            return Poll::Ready(result);
        }
        if this.is_taken {
            // It gave its result before.
            return Poll::Ready(Err(this.of.ended_as_said(OperationError::Unknown)));
        }
        this.of.host.poll_result(this.of.member, this.operation, context).map(|result| {
            this.is_taken = true;
            result.map_err(|error| this.of.ended_as_said(error))
        })
    }
}

impl Communicator {
    /// Every rank gets the reduction of what all ranks give. The operation is under way when this returns.
    pub fn allreduce_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        operator: Operator,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = reduction(operator, T::TYPE).and_then(|reduction| {
            self.begin_async(Collective::Allreduce(reduction), data.as_bytes())
        });
        async move { Ok(values(&begun?.await?)) }
    }

    /// The root gets the reduction of what all ranks give, the others nothing. The operation is under way when this returns.
    pub fn reduce_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        operator: Operator,
        root: Rank,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = reduction(operator, T::TYPE).and_then(|reduction| {
            self.begin_async(Collective::Reduce(reduction, root), data.as_bytes())
        });
        async move { Ok(values(&begun?.await?)) }
    }

    /// Every rank gets what the root gives. The operation is under way when this returns.
    pub fn broadcast_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        root: Rank,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = self.begin_async(Collective::Broadcast(T::TYPE, root), data.as_bytes());
        // The root gets no result: it has the data.
        let own = (self.rank() == root).then(|| data.as_bytes().to_vec());
        async move {
            let result = begun?.await?;
            Ok(own.map_or_else(|| values(&result), |own: Vec<u8>| values(&own)))
        }
    }

    /// Is over when all ranks have called it, which this one has when this returns.
    pub fn barrier_async(
        &self,
    ) -> impl Future<Output = Result<(), CollectiveError>> + Send + use<> {
        let begun = self.begin_async(Collective::Barrier, &[]);
        async move { begun?.await.map(drop) }
    }

    /// Every rank gets what each rank gives, one after the other. The operations are under way when this returns.
    pub fn allgather_async<T: VectorElement + Send>(
        &self,
        data: &[T],
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let owners = (0..self.world_size()).map(Rank);
        let begun: Vec<_> = owners.map(|owner| self.broadcast_async(data, owner)).collect();
        async move {
            let mut all = Vec::new();
            for block in begun {
                all.extend(block.await?);
            }
            Ok(all)
        }
    }

    /// Each rank gets its block of the reduction. The operations are under way when this returns.
    pub fn reduce_scatter_async<T: VectorElement + Send>(
        &self,
        data: &[T],
        operator: Operator,
    ) -> impl Future<Output = Result<Vec<T>, CollectiveError>> + Send + use<T> {
        let begun = self.blocks(data).and_then(|blocks| {
            let reduction = reduction(operator, T::TYPE)?;
            let of = |(owner, block): (Rank, &[T])| {
                self.begin_async(Collective::Reduce(reduction, owner), block.as_bytes())
            };
            blocks.map(of).collect::<Result<Vec<_>, _>>()
        });
        async move {
            let mut mine = Vec::new();
            for request in begun? {
                // Of all blocks this rank gets its own one alone.
                mine.extend(values::<T>(&request.await?));
            }
            Ok(mine)
        }
    }

    /// [`Communicator::begin`], but where the communicator has just been aborted it is the request that waits for the controller's words.
    fn begin_async(
        &self,
        collective: Collective,
        data: &[u8],
    ) -> Result<CollectiveRequest, CollectiveError> {
        self.check_root(collective)?;
        let operation = self.0.host.submit_for_task(self.0.member, collective, data);
        let operation = operation.map_err(|error| match error {
            SubmitError::Over(error) => self.0.ended_as_said(error),
            error => error.into(),
        })?;
        Ok(self.request(operation))
    }
}

impl CommunicatorRank {
    /// What an operation ended with, and what the controller has said of it so far.
    fn ended_as_said(&self, error: OperationError) -> CollectiveError {
        CollectiveError::Operation { error, why: self.host.why(self.member).unwrap_or_default() }
    }
}
