//! A controller with sockets, a clock and a store, or the ports of one that is not in charge.
//!
//! All calls and reports go through [`Controller`] one after the other. What it wants known after a restart is
//! stored before any of its answers and commands leaves. While another controller is in charge, every call is
//! refused, and is answered who is.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get};
use inc::{
    controller::{
        CallAnswer, CallError, CallId, Controller, ControllerAction, ControllerCall, ControllerCfg,
        ControllerRemains, HostHello, SessionId, TopologyRequest,
    },
    slots::IncTime,
    topology::PhysicalMap,
    tree_document::TreeDocument,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Code, Request, Response, Status, Streaming,
    service::Routes,
    transport::{Certificate, Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

use super::{TlsIdentity, view};
use crate::{
    convert::{ConversionError, join_of, switch_hello_of},
    proto::{
        self,
        controller_server::{self, ControllerServer as HostsService},
        switch_control_server::{self, SwitchControlServer as SwitchesService},
    },
    store::{ControllerStore, ImageError, read_image, write_image},
};

/// The controller's clock ticks so often.
const TICK: Duration = Duration::from_millis(20);
/// A session says hello in this time.
const HELLO: Duration = Duration::from_secs(5);
/// A wrong proof is answered after this time, so that guessing is slow.
const PROOF_PAUSE: Duration = Duration::from_millis(200);
/// A watcher gets changes of this time in one message.
const WATCH_PAUSE: Duration = Duration::from_millis(50);

/// What a controller is started with.
pub struct ControllerServerCfg {
    /// Times, secrets and quotas.
    pub controller: ControllerCfg,
    /// The topology to begin with.
    pub map: PhysicalMap,
    /// Where it waits for hosts and tools.
    pub hosts: SocketAddr,
    /// Where it waits for switches.
    pub switches: SocketAddr,
    /// Where it keeps what it has to know after a restart.
    pub store: Box<dyn ControllerStore>,
    /// By which it proves who it is, and callers must; `None`: without TLS.
    pub tls: Option<TlsIdentity>,
}

/// What a controller shows beside its calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerExposure {
    /// Where it shows metrics and health over HTTP; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// It listens on any address without TLS: the network is trusted.
    pub is_insecure: bool,
}

/// A controller that runs in a thread of its own. Dropped, it ends.
#[derive(Debug)]
pub struct ControllerServer {
    hosts: SocketAddr,
    switches: SocketAddr,
    http: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

/// Why a controller does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A port cannot be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// Addresses beside loopback without TLS.
    #[error("{0} is no loopback address: give certificates, or listen on 127.0.0.1")]
    TlsNeeded(SocketAddr),
    /// A thread or its runtime could not be made.
    #[error("cannot start the controller's thread: {0}")]
    Thread(#[source] io::Error),
    /// What another controller left cannot be gone on with.
    #[error("{0}: move the store away to begin anew")]
    Store(String),
    /// A certificate, or the protocol's description.
    #[error("cannot set up gRPC: {0}")]
    Setup(String),
    /// The server ended by an error.
    #[error("the controller ended: {0}")]
    Ended(String),
}

impl std::fmt::Debug for ControllerServerCfg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerServerCfg").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

type SessionSender<T> = mpsc::UnboundedSender<Result<T, Status>>;

struct ControlState {
    controller: Controller,
    store: Box<dyn ControllerStore>,
    /// The last state could not be stored yet: nothing leaves until it is.
    is_unsaved: bool,
    /// The topology is another one than the one it began with.
    is_map_put: bool,
    calls: BTreeMap<CallId, oneshot::Sender<Result<CallAnswer, CallError>>>,
    switches: BTreeMap<SessionId, SessionSender<proto::SwitchCommand>>,
    hosts: BTreeMap<SessionId, SessionSender<proto::HostCommand>>,
    number_next: u64,
}

/// A controller that calls of all connections share.
struct SharedController {
    state: Mutex<ControlState>,
    start: Instant,
    version: watch::Sender<u64>,
}

/// A call that waits; dropped before its answer, its caller is gone.
struct WaitingCall<'a>(&'a SharedController, CallId);

impl ControllerServer {
    /// Listens, and starts a thread.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(cfg: ControllerServerCfg) -> Result<Self, ServerError> {
        Self::start_exposed(cfg, ServerExposure::default())
    }

    /// Listens, and starts a thread; with metrics, or without TLS.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start_exposed(
        mut cfg: ControllerServerCfg,
        exposure: ServerExposure,
    ) -> Result<Self, ServerError> {
        may_listen(&cfg, exposure)?;
        let loaded = cfg.store.load().map_err(|error| ServerError::Store(error.to_string()))?;
        let remains = loaded.map(|bytes| read_image(&bytes)).transpose();
        let remains = remains.map_err(|error: ImageError| ServerError::Store(error.to_string()))?;
        let [hosts, switches] = [listen(cfg.hosts)?, listen(cfg.switches)?];
        let http = exposure.http.map(listen).transpose()?;
        let address = |listener: &TcpListener, asked| {
            listener.local_addr().map_err(|error| ServerError::Listen { address: asked, error })
        };
        let addresses = [address(&hosts, cfg.hosts)?, address(&switches, cfg.switches)?];
        let http_at = match (&http, exposure.http) {
            (Some(listener), Some(asked)) => Some(address(listener, asked)?),
            (None, _) | (_, None) => None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || runtime.block_on(serve(cfg, remains, ([hosts, switches], http), stopped));
        let thread = std::thread::Builder::new()
            .name("inc-controller".to_owned())
            .spawn(run)
            .map_err(ServerError::Thread)?;
        let [hosts, switches] = addresses;
        Ok(Self { hosts, switches, http: http_at, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it waits for hosts and tools.
    #[must_use]
    pub fn hosts(&self) -> SocketAddr {
        self.hosts
    }

    /// Where it waits for switches.
    #[must_use]
    pub fn switches(&self) -> SocketAddr {
        self.switches
    }

    /// Where it shows metrics.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Waits until it ends, which it does by an error only.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn wait(mut self) -> Result<(), ServerError> {
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .unwrap_or(Ok(Ok(())))
            .unwrap_or_else(|_| Err(ServerError::Ended("its thread panicked".to_owned())))
    }
}

impl Drop for ControllerServer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Without certificates, only on loopback addresses, unless the network is trusted.
pub(crate) fn may_listen(
    cfg: &ControllerServerCfg,
    exposure: ServerExposure,
) -> Result<(), ServerError> {
    let may = |at: SocketAddr| cfg.tls.is_some() || exposure.is_insecure || at.ip().is_loopback();
    match [cfg.hosts, cfg.switches].into_iter().find(|at| !may(*at)) {
        Some(open) => Err(ServerError::TlsNeeded(open)),
        None => Ok(()),
    }
}

pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let listener = TcpListener::bind(address);
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| ServerError::Listen { address, error })
}

/// A server that wants certificates of its callers, if it has one itself.
pub(crate) fn server(tls: Option<&TlsIdentity>) -> Result<Server, ServerError> {
    let Some(tls) = tls else { return Ok(Server::builder()) };
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&tls.certificate, &tls.key))
        .client_ca_root(Certificate::from_pem(&tls.authorities));
    Server::builder().tls_config(tls).map_err(|error| ServerError::Setup(error.to_string()))
}

async fn serve(
    cfg: ControllerServerCfg,
    remains: Option<(ControllerRemains, Option<PhysicalMap>)>,
    (listeners, http): ([TcpListener; 2], Option<TcpListener>),
    stopped: oneshot::Receiver<()>,
) -> Result<(), ServerError> {
    let setup = |error: &dyn std::fmt::Display| ServerError::Setup(error.to_string());
    let is_map_put = matches!(&remains, Some((_, Some(_))));
    let (remains, put) = remains.map_or((None, None), |(remains, put)| (Some(remains), put));
    let mut controller = Controller::new(cfg.controller, put.unwrap_or(cfg.map));
    if let Some(remains) = remains {
        controller.restore(1, remains);
    }
    let shared = Arc::new(SharedController {
        state: Mutex::new(ControlState {
            controller,
            store: cfg.store,
            is_unsaved: false,
            is_map_put,
            calls: BTreeMap::new(),
            switches: BTreeMap::new(),
            hosts: BTreeMap::new(),
            number_next: 1,
        }),
        start: Instant::now(),
        version: watch::channel(0).0,
    });
    let [mut host_server, mut switch_server] =
        [server(cfg.tls.as_ref())?, server(cfg.tls.as_ref())?];
    let incoming = listeners.map(|listener| {
        tokio::net::TcpListener::from_std(listener)
            .map(|listener| TcpIncoming::from(listener).with_nodelay(Some(true)))
    });
    let [hosts, switches] = incoming;
    let (hosts, switches) =
        (hosts.map_err(ServerError::Thread)?, switches.map_err(ServerError::Thread)?);
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<HostsService<HostCalls>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTION)
        .build_v1()
        .map_err(|error| setup(&error))?;
    let hosts = host_server
        .add_service(HostsService::new(HostCalls(Arc::clone(&shared))))
        .add_service(health_service.clone())
        .add_service(reflection)
        .serve_with_incoming(hosts);
    let switches = switch_server
        .add_service(SwitchesService::new(SwitchCalls(Arc::clone(&shared))))
        .add_service(health_service)
        .serve_with_incoming(switches);
    let ended = |result: Result<(), tonic::transport::Error>| {
        Err(ServerError::Ended(result.err().map_or_else(String::new, |error| error.to_string())))
    };
    tokio::select! {
        result = hosts => ended(result),
        result = switches => ended(result),
        why = tick(&shared) => Err(ServerError::Ended(why)),
        result = serve_http(http, Arc::clone(&shared)) => {
            Err(ServerError::Ended(result.err().map_or_else(String::new, |e| e.to_string())))
        }
        _ = stopped => Ok(()),
    }
}

/// Metrics and health, for ever.
async fn serve_http(
    listener: Option<TcpListener>,
    shared: Arc<SharedController>,
) -> io::Result<()> {
    use axum::http::StatusCode;
    use axum::routing::get;
    let Some(listener) = listener else { return std::future::pending().await };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let health = Arc::clone(&shared);
    let metrics = move || async move { view::metrics(&shared.lock().controller) };
    let health = move || async move {
        if health.lock().is_unsaved {
            (StatusCode::SERVICE_UNAVAILABLE, "the state cannot be stored\n")
        } else {
            (StatusCode::OK, "ok\n")
        }
    };
    let routes = Router::new().route("/metrics", get(metrics)).route("/healthz", get(health));
    axum::serve(listener, routes).await
}

/// Goes on until another controller is in charge; gives the reason.
async fn tick(shared: &SharedController) -> String {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(why) = shared.lock().store.lost() {
            return why;
        }
        shared.with(|controller, now| controller.on_time(now));
    }
}

impl SharedController {
    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> IncTime {
        // 0 means never.
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// One input; then all outputs go their way.
    fn with<T>(&self, input: impl FnOnce(&mut Controller, IncTime) -> T) -> T {
        let mut state = self.lock();
        let result = input(&mut state.controller, self.now());
        self.carry_out(&mut state);
        result
    }

    fn carry_out(&self, state: &mut ControlState) {
        state.is_unsaved |= state.controller.take_changed();
        state.is_map_put |= state.controller.take_map_put();
        if state.is_unsaved {
            let map = state.is_map_put.then(|| state.controller.map());
            let image = write_image(&state.controller.remains(), map);
            if let Err(error) = state.store.save(&image) {
                tracing::error!("the state cannot be stored, and all calls wait: {error}");
                return;
            }
            state.is_unsaved = false;
            self.version.send_modify(|version| *version = version.wrapping_add(1));
        }
        while let Some(action) = state.controller.poll_action() {
            match action {
                ControllerAction::Answer(call, answer) => {
                    if let Some(waiting) = state.calls.remove(&call) {
                        // A caller that is gone says so by its guard.
                        let _ = waiting.send(answer);
                    }
                }
                ControllerAction::ToSwitch(session, command) => {
                    if let Some(sender) = state.switches.get(&session) {
                        let _ = sender.send(Ok(command.into()));
                    }
                }
                ControllerAction::ToHost(session, command) => {
                    if let Some(sender) = state.hosts.get(&session) {
                        let _ = sender.send(Ok(command.into()));
                    }
                }
                ControllerAction::EndSession(session, why) => {
                    tracing::info!(session = session.0, "session ended: {why}");
                    if let Some(sender) = state.switches.remove(&session) {
                        let _ = sender.send(Err(Status::unavailable(why.clone())));
                    }
                    if let Some(sender) = state.hosts.remove(&session) {
                        let _ = sender.send(Err(Status::unavailable(why)));
                    }
                }
            }
        }
    }

    /// Makes a call, and waits for its answer.
    async fn call(&self, call: ControllerCall) -> Result<CallAnswer, Status> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            let id = CallId(state.number());
            state.calls.insert(id, sender);
            let now = self.now();
            state.controller.on_call(now, id, call);
            self.carry_out(&mut state);
            id
        };
        let _waiting = WaitingCall(self, id);
        let answer = answer.await.map_err(|_| Status::unavailable("the controller ends"))?;
        if let Err(CallError::Proof { .. } | CallError::TopologyProof) = &answer {
            tokio::time::sleep(PROOF_PAUSE).await;
        }
        answer.map_err(|error| status(&error))
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.calls.remove(&self.1).is_some() {
            let now = self.0.now();
            state.controller.on_call_end(now, self.1);
            self.0.carry_out(&mut state);
        }
    }
}

impl ControlState {
    fn number(&mut self) -> u64 {
        self.number_next += 1;
        self.number_next
    }
}

/// The answer to a call that is refused.
fn status(error: &CallError) -> Status {
    let code = match error {
        CallError::Version { .. } | CallError::NotCreated(_) => Code::FailedPrecondition,
        CallError::Proof { .. } | CallError::TopologyProof => Code::PermissionDenied,
        CallError::WorldSize(_)
        | CallError::GroupName(_)
        | CallError::Differs { .. }
        | CallError::RankRange { .. } => Code::InvalidArgument,
        CallError::RankTaken { .. } => Code::AlreadyExists,
        CallError::Missing { .. } => Code::DeadlineExceeded,
        CallError::UnknownMember | CallError::UnknownSwitch(_) => Code::NotFound,
        CallError::Over { .. } => Code::Aborted,
        CallError::TooMany { .. } => Code::ResourceExhausted,
    };
    Status::new(code, error.to_string())
}

impl From<ConversionError> for Status {
    fn from(error: ConversionError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

fn random<const N: usize>() -> Result<[u8; N], Status> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| Status::internal(format!("no randomness: {error}")))?;
    Ok(bytes)
}

/// The first message of a session.
async fn hello<T>(stream: &mut Streaming<T>) -> Result<T, Status> {
    match tokio::time::timeout(HELLO, stream.message()).await {
        Ok(message) => message?.ok_or_else(|| Status::invalid_argument("a session needs a hello")),
        Err(_) => Err(Status::deadline_exceeded("no hello came")),
    }
}

/// What hosts and tools call.
struct HostCalls(Arc<SharedController>);

#[tonic::async_trait]
impl controller_server::Controller for HostCalls {
    type HostSessionStream = UnboundedReceiverStream<Result<proto::HostCommand, Status>>;
    type WatchStream = UnboundedReceiverStream<Result<proto::Snapshot, Status>>;

    async fn challenge(
        &self,
        _: Request<proto::ChallengeRequest>,
    ) -> Result<Response<proto::ChallengeResponse>, Status> {
        let nonce = random::<16>()?;
        self.0.call(ControllerCall::Challenge(nonce)).await?;
        Ok(Response::new(proto::ChallengeResponse { nonce: nonce.to_vec() }))
    }

    async fn create_group(
        &self,
        request: Request<proto::CreateGroupRequest>,
    ) -> Result<Response<proto::Ticket>, Status> {
        let join = join_of(request.into_inner(), u64::from_le_bytes(random()?))?;
        match self.0.call(join).await? {
            CallAnswer::Joined(ticket) => Ok(Response::new(ticket.into())),
            CallAnswer::Done | CallAnswer::Created(_) => Err(Status::internal("no ticket")),
        }
    }

    async fn create_communicator(
        &self,
        request: Request<proto::CreateCommunicatorRequest>,
    ) -> Result<Response<proto::CreateCommunicatorResponse>, Status> {
        let call = ControllerCall::try_from(request.into_inner())?;
        match self.0.call(call).await? {
            CallAnswer::Created(id) => {
                let communicator = id.0;
                Ok(Response::new(proto::CreateCommunicatorResponse { communicator }))
            }
            CallAnswer::Done | CallAnswer::Joined(_) => Err(Status::internal("no communicator")),
        }
    }

    async fn destroy_communicator(
        &self,
        request: Request<proto::DestroyCommunicatorRequest>,
    ) -> Result<Response<proto::DestroyCommunicatorResponse>, Status> {
        self.0.call(request.into_inner().try_into()?).await?;
        Ok(Response::new(proto::DestroyCommunicatorResponse {}))
    }

    async fn destroy_group(
        &self,
        request: Request<proto::Ticket>,
    ) -> Result<Response<proto::DestroyGroupResponse>, Status> {
        self.0.call(request.into_inner().try_into()?).await?;
        Ok(Response::new(proto::DestroyGroupResponse {}))
    }

    async fn host_session(
        &self,
        request: Request<Streaming<proto::HostMessage>>,
    ) -> Result<Response<Self::HostSessionStream>, Status> {
        use proto::host_message::Message;
        let mut stream = request.into_inner();
        let Some(Message::Hello(of)) = hello(&mut stream).await?.message else {
            return Err(Status::invalid_argument("a session begins with a hello"));
        };
        let hello = HostHello::try_from(of)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let id = {
            let mut state = self.0.lock();
            let id = SessionId(state.number());
            state.hosts.insert(id, sender);
            let now = self.0.now();
            let result = state.controller.on_host_session(now, id, &hello);
            if let Err(error) = &result {
                state.hosts.remove(&id);
                return Err(status(error));
            }
            self.0.carry_out(&mut state);
            id
        };
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok(Some(message)) = stream.message().await {
                match message.message {
                    Some(Message::Report(report)) => match report.try_into() {
                        Ok(report) => shared.with(|of, now| of.on_host(now, id, report)),
                        Err(error) => {
                            tracing::warn!(session = id.0, "report of a host: {error}");
                            break;
                        }
                    },
                    Some(Message::Heartbeat(_)) => {
                        shared.with(|of, now| of.on_heartbeat(now, id));
                    }
                    Some(Message::Hello(_)) | None => break,
                }
            }
            shared.with(|of, now| of.on_session_end(now, id));
            shared.lock().hosts.remove(&id);
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }

    async fn list(
        &self,
        request: Request<proto::ListRequest>,
    ) -> Result<Response<proto::Snapshot>, Status> {
        let tenant = request.into_inner().tenant;
        Ok(Response::new(view::snapshot(&self.0.lock().controller, tenant)))
    }

    async fn watch(
        &self,
        request: Request<proto::ListRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let tenant = request.into_inner().tenant;
        let (sender, receiver) = mpsc::unbounded_channel();
        let (shared, mut version) = (Arc::clone(&self.0), self.0.version.subscribe());
        tokio::spawn(async move {
            loop {
                let snapshot = view::snapshot(&shared.lock().controller, tenant);
                if sender.send(Ok(snapshot)).is_err() {
                    return;
                }
                tokio::select! {
                    changed = version.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
                tokio::time::sleep(WATCH_PAUSE).await;
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }

    async fn get_topology(
        &self,
        _: Request<proto::GetTopologyRequest>,
    ) -> Result<Response<proto::GetTopologyResponse>, Status> {
        let state = self.0.lock();
        let map = inc::document::write_map(state.controller.map());
        let map = map.map_err(|error| Status::internal(error.to_string()))?;
        let trees = state.controller.communicators().filter_map(TreeDocument::of);
        let trees = trees.map(|tree| tree.write()).collect::<Result<Vec<_>, _>>();
        let trees = trees.map_err(|error| Status::internal(error.to_string()))?.join("---\n");
        Ok(Response::new(proto::GetTopologyResponse { map, trees }))
    }

    async fn put_topology(
        &self,
        request: Request<proto::PutTopologyRequest>,
    ) -> Result<Response<proto::PutTopologyResponse>, Status> {
        let of = request.into_inner();
        let map = inc::tree_document::read_topology(&of.map);
        let map = map.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let request = TopologyRequest {
            map,
            text: of.map,
            nonce: <[u8; 16]>::try_from(&of.nonce[..]).unwrap_or_default(),
            proof: of.proof,
        };
        self.0.call(ControllerCall::PutTopology(request)).await?;
        Ok(Response::new(proto::PutTopologyResponse {}))
    }
}

/// The calls of switches.
struct SwitchCalls(Arc<SharedController>);

#[tonic::async_trait]
impl switch_control_server::SwitchControl for SwitchCalls {
    type SessionStream = UnboundedReceiverStream<Result<proto::SwitchCommand, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<proto::SwitchMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        use proto::switch_message::Message;
        let peer = request.remote_addr().map(|address| address.ip().to_canonical());
        let mut stream = request.into_inner();
        let Some(Message::Hello(of)) = hello(&mut stream).await?.message else {
            return Err(Status::invalid_argument("a session begins with a hello"));
        };
        let hello = switch_hello_of(of, peer)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let id = {
            let mut state = self.0.lock();
            let id = SessionId(state.number());
            state.switches.insert(id, sender);
            let now = self.0.now();
            if let Err(error) = state.controller.on_switch_session(now, id, hello) {
                state.switches.remove(&id);
                return Err(status(&error));
            }
            self.0.carry_out(&mut state);
            id
        };
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok(Some(message)) = stream.message().await {
                match message.message {
                    Some(Message::Report(report)) => match report.try_into() {
                        Ok(report) => shared.with(|of, now| of.on_switch(now, id, report)),
                        Err(error) => {
                            tracing::warn!(session = id.0, "report of a switch: {error}");
                            break;
                        }
                    },
                    Some(Message::Heartbeat(_)) => {
                        shared.with(|of, now| of.on_heartbeat(now, id));
                    }
                    Some(Message::Hello(_)) | None => break,
                }
            }
            shared.with(|of, now| of.on_session_end(now, id));
            shared.lock().switches.remove(&id);
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }
}

/// Listens while another controller is in charge. Dropped, it leaves its ports.
#[derive(Debug)]
pub struct FollowerServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FollowerServer {
    /// Listens where a controller with these settings would; `leader` says who is in charge.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(
        cfg: &ControllerServerCfg,
        exposure: ServerExposure,
        leader: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        may_listen(cfg, exposure)?;
        let servers = [server(cfg.tls.as_ref())?, server(cfg.tls.as_ref())?];
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        let port = |at| {
            // A socket belongs to the runtime that it was made in.
            let _in_runtime = runtime.enter();
            tokio::net::TcpListener::from_std(listen(at)?).map_err(ServerError::Thread)
        };
        let ports = [port(cfg.hosts)?, port(cfg.switches)?];
        let http = exposure.http.map(port).transpose()?;
        let leader = Arc::new(move || match leader() {
            Some(leader) => format!("the controller in charge is {leader}"),
            None => "no controller is in charge yet".to_owned(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async move {
                for (listener, mut server) in ports.into_iter().zip(servers) {
                    let leader = Arc::clone(&leader);
                    let refuse = move || async move {
                        Status::unavailable(leader()).into_http::<axum::body::Body>()
                    };
                    let routes = Routes::from(Router::new().fallback(refuse));
                    let incoming = TcpIncoming::from(listener);
                    tokio::spawn(server.add_routes(routes).serve_with_incoming(incoming));
                }
                if let Some(listener) = http {
                    let health = move || async move { (StatusCode::OK, leader() + "\n") };
                    let routes = Router::new().route("/healthz", get(health));
                    tokio::spawn(async move { axum::serve(listener, routes).await });
                }
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("inc-follower".to_owned()).spawn(run);
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(ServerError::Thread)?) })
    }
}

impl Drop for FollowerServer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
