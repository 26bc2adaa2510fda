//! A rank's session with its controller, for threads that block.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;

use inc::control::{CommunicatorId, HostCommand, HostReport, TreeLife};
use inc::controller::{CONTROL_VERSION, GroupSecret};
use inc::edge::{EdgeAttributes, EdgeEnd};
use inc::wire::{AbortReason, TreeEpoch};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::TlsIdentity;
use super::{Backoff, Controllers, HEARTBEAT, RuntimeError, connect_hosts, runtime};
use crate::proto::controller_client::ControllerClient;
use crate::proto::{self, host_message::Message};

/// Commands that come before their communicator's creation is answered, at most.
const EARLY_MAX: usize = 1024;
/// How much longer a caller waits than the controller is asked to.
const MARGIN: Duration = Duration::from_secs(5);
/// A rank that destroys waits so long for the others, at most.
const DESTROY: Duration = Duration::from_secs(15);
/// A leave that takes longer is not waited for: the end of the session says the same.
const LEAVE: Duration = Duration::from_secs(1);

/// Which rank of which group this is, and where its controller is.
#[derive(Debug, Clone)]
pub struct HostSessionCfg {
    /// Where the controller waits for hosts.
    pub controller: SocketAddr,
    /// Further ones, if one of several is in charge.
    pub others: Vec<SocketAddr>,
    /// Name of the group.
    pub group: String,
    /// Ranks of the group.
    pub world_size: u32,
    /// The number of this one.
    pub rank: u32,
    /// Where this host is found in the topology.
    pub address: IpAddr,
    /// Whose quota the group's communicators count to.
    pub tenant: u32,
    /// What proves that this rank may join, if the controller wants a proof.
    pub secret: Option<GroupSecret>,
    /// The controller and all ranks are waited for so long, to join and to create a communicator.
    pub wait: Duration,
    /// By which both sides prove who they are; `None`: without TLS.
    pub tls: Option<TlsIdentity>,
}

/// Why a rank did not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The session has no thread.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The controller cannot be reached.
    #[error("no controller at {controller}: {why}")]
    Unreachable {
        /// Where it was looked for.
        controller: SocketAddr,
        /// What the last attempt ended with.
        why: String,
    },
    /// The controller says no, or that ranks are missing.
    #[error("{0}")]
    Refused(String),
}

/// Why a call of a member failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The controller says no, or that ranks are missing.
    #[error("{0}")]
    Refused(String),
    /// The group is over.
    #[error("the group is over: {0}")]
    Over(String),
    /// No answer came in time.
    #[error("the controller did not answer")]
    NoAnswer,
}

/// Takes the commands for one communicator, one after the other, in a thread of the session's.
pub type OnHostCommand = Box<dyn FnMut(HostCommand) + Send>;

type MemberReply<T> = blocking::Sender<Result<T, SessionError>>;

/// A member of a group. Dropped, it leaves the group.
#[derive(Debug)]
pub struct HostSession {
    asks: mpsc::UnboundedSender<MemberAsk>,
    wait: Duration,
    thread: Option<JoinHandle<()>>,
}

enum MemberAsk {
    Report(HostReport),
    Create(EdgeAttributes, EdgeEnd, OnHostCommand, MemberReply<CommunicatorId>),
    /// The answer to a creation.
    Created(CommunicatorId, OnHostCommand, MemberReply<CommunicatorId>),
    Destroy(CommunicatorId, MemberReply<()>),
    /// The answer to a destroy.
    Destroyed(CommunicatorId, MemberReply<()>),
    Leave,
}

struct HostClient {
    cfg: HostSessionCfg,
    controllers: Controllers,
    ticket: proto::Ticket,
    asks: mpsc::UnboundedReceiver<MemberAsk>,
    /// For the answers of calls that run beside the session.
    answers: mpsc::UnboundedSender<MemberAsk>,
    communicators: BTreeMap<CommunicatorId, (TreeEpoch, OnHostCommand)>,
    early: VecDeque<(CommunicatorId, HostCommand)>,
    /// Asks that came while there was no session.
    waiting: VecDeque<MemberAsk>,
    /// Reports about the lives that the communicators are in. Each session begins with them: whether they arrived by the
    /// one before, which ended, is not known, and a controller that knows them already changes nothing.
    reported: VecDeque<HostReport>,
}

/// Reports that are kept at most. Older ones go.
const REPORTED_MAX: usize = 1 << 16;

/// Why a session ended.
enum Ended {
    /// The member left its group.
    Left,
    /// The group is over.
    Over(String),
    /// It can be opened again.
    Lost(Status),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::NotFound | Code::Aborted | Code::FailedPrecondition => {
                Self::Over(status.message().to_owned())
            }
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::InvalidArgument
            | Code::DeadlineExceeded
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated => Self::Lost(status),
        }
    }
}

impl HostSession {
    /// Joins a group, and waits until all its ranks did.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(cfg: HostSessionCfg) -> Result<Self, JoinError> {
        let runtime = runtime()?;
        let (asks, receiver) = mpsc::unbounded_channel();
        let answers = asks.clone();
        let wait = cfg.wait;
        let (joined, joins) = blocking::channel();
        let run = move || {
            runtime.block_on(async move {
                let mut controllers = Controllers::new(cfg.controller, &cfg.others);
                let ticket = match join(&cfg, &mut controllers).await {
                    Ok(ticket) => ticket,
                    Err(error) => {
                        let _ = joined.send(Err(error));
                        return;
                    }
                };
                let mut client = HostClient {
                    cfg,
                    controllers,
                    ticket,
                    asks: receiver,
                    answers,
                    communicators: BTreeMap::new(),
                    early: VecDeque::new(),
                    waiting: VecDeque::new(),
                    reported: VecDeque::new(),
                };
                let mut joined = Some(joined);
                client.run(&mut joined).await;
            });
        };
        let thread = std::thread::Builder::new()
            .name("inc-session".to_owned())
            .spawn(run)
            .map_err(RuntimeError::from)?;
        let session = Self { asks, wait, thread: Some(thread) };
        match joins.recv() {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(JoinError::Refused("the session's thread ended".to_owned())),
        }
    }

    /// Makes a communicator with all ranks of the group. Its commands begin with a start, with or without a tree; they may
    /// come before this returns.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn create_communicator(
        &self,
        attributes: EdgeAttributes,
        end: EdgeEnd,
        on_command: OnHostCommand,
    ) -> Result<CommunicatorId, SessionError> {
        let (reply, answer) = blocking::channel();
        self.ask(MemberAsk::Create(attributes, end, on_command, reply), &answer, self.wait + MARGIN)
    }

    /// Destroys a communicator, and waits until all ranks did: until then the others may need what this one has.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn destroy(&self, communicator: CommunicatorId) -> Result<(), SessionError> {
        let (reply, answer) = blocking::channel();
        self.ask(MemberAsk::Destroy(communicator, reply), &answer, DESTROY)
    }

    /// Reports to the controller; without a session, when there is one again.
    pub fn report(&self, report: HostReport) {
        let _ = self.asks.send(MemberAsk::Report(report));
    }

    fn ask<T>(
        &self,
        ask: MemberAsk,
        answer: &blocking::Receiver<Result<T, SessionError>>,
        wait: Duration,
    ) -> Result<T, SessionError> {
        self.asks.send(ask).map_err(|_| SessionError::NoAnswer)?;
        answer.recv_timeout(wait).map_err(|_| SessionError::NoAnswer)?
    }
}

impl Drop for HostSession {
    fn drop(&mut self) {
        let _ = self.asks.send(MemberAsk::Leave);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Joins the group; a controller that is not there yet is waited for.
async fn join(
    cfg: &HostSessionCfg,
    controllers: &mut Controllers,
) -> Result<proto::Ticket, JoinError> {
    let deadline = Instant::now() + cfg.wait;
    let mut backoff = Backoff::new();
    loop {
        let status = match try_join(cfg, controllers.current(), deadline).await {
            Ok(ticket) => return Ok(ticket),
            Err(status) => status,
        };
        let pause = backoff.pause();
        if status.code() != Code::Unavailable {
            return Err(JoinError::Refused(status.message().to_owned()));
        }
        if Instant::now() + pause >= deadline {
            let why = status.message().to_owned();
            return Err(JoinError::Unreachable { controller: controllers.current(), why });
        }
        controllers.go_on();
        tokio::time::sleep(pause).await;
    }
}

async fn try_join(
    cfg: &HostSessionCfg,
    at: SocketAddr,
    deadline: Instant,
) -> Result<proto::Ticket, Status> {
    let mut client = connect_hosts(at, cfg.tls.as_ref()).await?;
    let nonce = client.challenge(proto::ChallengeRequest {}).await?.into_inner().nonce;
    let challenge = <[u8; 16]>::try_from(&nonce[..]).unwrap_or_default();
    let proof = cfg
        .secret
        .as_ref()
        .map(|secret| secret.proof(challenge, &cfg.group, cfg.rank, cfg.address));
    let wait = deadline.saturating_duration_since(Instant::now()).as_millis();
    let request = proto::CreateGroupRequest {
        version: CONTROL_VERSION,
        name: cfg.group.clone(),
        world_size: cfg.world_size,
        rank: cfg.rank,
        address: cfg.address.to_string(),
        tenant: cfg.tenant,
        nonce,
        proof: proof.unwrap_or_default(),
        wait_ms: u64::try_from(wait).unwrap_or(u64::MAX),
    };
    let call = client.create_group(request);
    // The controller names who is missing; that it hangs is found here.
    match tokio::time::timeout_at(deadline + MARGIN, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(Status::unavailable("it did not answer in time")),
    }
}

fn refused(status: &Status) -> SessionError {
    SessionError::Refused(status.message().to_owned())
}

impl HostClient {
    async fn run(&mut self, joined: &mut Option<blocking::Sender<Result<(), JoinError>>>) {
        let mut backoff = Backoff::new();
        loop {
            match self.session(&mut backoff, joined).await {
                Ended::Left => return,
                Ended::Over(why) => {
                    if let Some(joined) = joined.take() {
                        let _ = joined.send(Err(JoinError::Refused(why)));
                        return;
                    }
                    return self.over(&why).await;
                }
                Ended::Lost(status) => {
                    tracing::info!(
                        controller = %self.controllers.current(),
                        code = ?status.code(),
                        "no session: {}",
                        status.message()
                    );
                    self.controllers.go_on();
                }
            }
            let pause = tokio::time::sleep(backoff.pause());
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    ask = self.asks.recv() => match ask {
                        None | Some(MemberAsk::Leave) => return,
                        Some(ask) => self.waiting.push_back(ask),
                    },
                }
            }
        }
    }

    /// The group is over: all that is asked for ends with an error, until the member leaves.
    async fn over(&mut self, why: &str) {
        for (&id, (_, on_command)) in &mut self.communicators {
            on_command(HostCommand::Abort(id, AbortReason::ShutDown, why.to_owned()));
        }
        loop {
            let ask = match self.waiting.pop_front() {
                Some(ask) => Some(ask),
                None => self.asks.recv().await,
            };
            let error = SessionError::Over(why.to_owned());
            match ask {
                None | Some(MemberAsk::Leave) => return,
                Some(MemberAsk::Create(.., reply) | MemberAsk::Created(.., reply)) => {
                    let _ = reply.send(Err(error));
                }
                Some(MemberAsk::Destroy(id, reply) | MemberAsk::Destroyed(id, reply)) => {
                    self.communicators.remove(&id);
                    let _ = reply.send(Ok(()));
                }
                Some(MemberAsk::Report(_)) => {}
            }
        }
    }

    async fn session(
        &mut self,
        backoff: &mut Backoff,
        joined: &mut Option<blocking::Sender<Result<(), JoinError>>>,
    ) -> Ended {
        let at = self.controllers.current();
        let mut client = match connect_hosts(at, self.cfg.tls.as_ref()).await {
            Ok(client) => client,
            Err(status) => return Ended::Lost(status),
        };
        let (sender, messages) = mpsc::unbounded_channel();
        let lives = self
            .communicators
            .iter()
            .map(|(&communicator, (epoch, _))| TreeLife { communicator, epoch: *epoch }.into());
        let hello = proto::HostHello {
            version: CONTROL_VERSION,
            ticket: Some(self.ticket),
            lives: lives.collect(),
        };
        // The receiver lives as long as the stream of the call.
        let _ = sender.send(proto::HostMessage { message: Some(Message::Hello(hello)) });
        let stream = client.host_session(UnboundedReceiverStream::new(messages)).await;
        let mut commands = match stream {
            Ok(stream) => stream.into_inner(),
            Err(status) => return status.into(),
        };
        backoff.reset();
        if let Some(joined) = joined.take() {
            let _ = joined.send(Ok(()));
        }
        for report in &self.reported {
            let message = Some(Message::Report(report.clone().into()));
            let _ = sender.send(proto::HostMessage { message });
        }
        for ask in std::mem::take(&mut self.waiting) {
            if !self.on_ask(ask, &client, &sender).await {
                return Ended::Left;
            }
        }
        let mut beats = tokio::time::interval(Duration::from_millis(HEARTBEAT));
        loop {
            tokio::select! {
                command = commands.message() => match command {
                    Ok(Some(command)) => match HostCommand::try_from(command) {
                        Ok(command) => self.on_command(command),
                        Err(error) => {
                            return Ended::Lost(Status::invalid_argument(error.to_string()));
                        }
                    },
                    Ok(None) => {
                        return Ended::Lost(Status::unavailable("the controller ended the session"));
                    }
                    // Why it ended is said again by the next attempt, if it is final.
                    Err(status) => return Ended::Lost(status),
                },
                ask = self.asks.recv() => {
                    let Some(ask) = ask else { return Ended::Left };
                    if !self.on_ask(ask, &client, &sender).await {
                        return Ended::Left;
                    }
                }
                _ = beats.tick() => {
                    let message = Some(Message::Heartbeat(proto::Heartbeat {}));
                    let _ = sender.send(proto::HostMessage { message });
                }
            }
        }
    }

    /// Returns whether the session goes on.
    async fn on_ask(
        &mut self,
        ask: MemberAsk,
        client: &ControllerClient<Channel>,
        sender: &mpsc::UnboundedSender<proto::HostMessage>,
    ) -> bool {
        let (mut client, answers) = (client.clone(), self.answers.clone());
        let ticket = Some(self.ticket);
        match ask {
            MemberAsk::Report(report) => {
                if self.reported.len() == REPORTED_MAX {
                    self.reported.pop_front();
                }
                self.reported.push_back(report.clone());
                let message = Some(Message::Report(report.into()));
                let _ = sender.send(proto::HostMessage { message });
            }
            MemberAsk::Create(attributes, end, on_command, reply) => {
                let request = proto::CreateCommunicatorRequest {
                    ticket,
                    attributes: Some(attributes.into()),
                    end: Some(end.into()),
                    wait_ms: u64::try_from(self.cfg.wait.as_millis()).unwrap_or(u64::MAX),
                };
                tokio::spawn(async move {
                    match client.create_communicator(request).await {
                        Ok(answer) => {
                            let id = CommunicatorId(answer.into_inner().communicator);
                            let _ = answers.send(MemberAsk::Created(id, on_command, reply));
                        }
                        Err(status) => {
                            let _ = reply.send(Err(refused(&status)));
                        }
                    }
                });
            }
            MemberAsk::Created(id, on_command, reply) => {
                self.communicators.insert(id, (TreeEpoch(0), on_command));
                let (its, others): (VecDeque<_>, _) =
                    self.early.drain(..).partition(|(of, _)| *of == id);
                self.early = others;
                for (_, command) in its {
                    self.on_command(command);
                }
                let _ = reply.send(Ok(id));
            }
            MemberAsk::Destroy(id, reply) => {
                let request = proto::DestroyCommunicatorRequest { ticket, communicator: id.0 };
                tokio::spawn(async move {
                    match client.destroy_communicator(request).await {
                        Ok(_) => {
                            let _ = answers.send(MemberAsk::Destroyed(id, reply));
                        }
                        Err(status) => {
                            let _ = reply.send(Err(refused(&status)));
                        }
                    }
                });
            }
            MemberAsk::Destroyed(id, reply) => {
                self.communicators.remove(&id);
                self.reported.retain(|report| report.communicator() != Some(id));
                let _ = reply.send(Ok(()));
            }
            MemberAsk::Leave => {
                let call = client.destroy_group(self.ticket);
                // The end of the session says the same, if less kindly.
                let _ = tokio::time::timeout(LEAVE, call).await;
                return false;
            }
        }
        true
    }

    fn on_command(&mut self, command: HostCommand) {
        let id = match &command {
            HostCommand::Start(life, _) | HostCommand::Prepare(life) => life.communicator,
            HostCommand::Abort(id, ..) => *id,
            HostCommand::Switch(command) => command.communicator(),
        };
        if let HostCommand::Prepare(_) | HostCommand::Start(..) = &command {
            // Another life.
            self.reported.retain(|report| report.communicator() != Some(id));
        }
        match self.communicators.get_mut(&id) {
            Some((epoch, on_command)) => {
                if let HostCommand::Start(life, start) = &command {
                    *epoch = life.epoch;
                    let (communicator, epoch) = (id.0, life.epoch.0);
                    let why = start.without.as_deref().unwrap_or_default();
                    match (start.parent, &start.without) {
                        (Some(_), None) => tracing::info!(communicator, epoch, "switches reduce"),
                        (Some(_), Some(_)) => {
                            tracing::warn!(
                                communicator,
                                epoch,
                                why,
                                "members reduce in their own programs"
                            );
                        }
                        (None, _) => {
                            tracing::warn!(
                                communicator,
                                epoch,
                                why,
                                "operations wait for switches"
                            );
                        }
                    }
                }
                on_command(command);
            }
            None => {
                if self.early.len() == EARLY_MAX {
                    self.early.pop_front();
                }
                self.early.push_back((id, command));
            }
        }
    }
}
