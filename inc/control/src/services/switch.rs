//! A switch's session with its controller.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use inc::control::{CommunicatorId, SwitchCommand, SwitchReport, TreeLife};
use inc::controller::{CONTROL_VERSION, SwitchCapacity};
use inc::wire::TreeEpoch;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::TlsIdentity;
use super::{Backoff, Controllers, HEARTBEAT, RuntimeError, connect_text, endpoint, runtime};
use crate::proto::switch_control_client::SwitchControlClient;
use crate::proto::{self, switch_message::Message};

/// What a switch says about itself, and where its controller is.
#[derive(Debug, Clone)]
pub struct SwitchSessionCfg {
    /// Where the controller waits for switches.
    pub controller: SocketAddr,
    /// Further ones, if one of several is in charge.
    pub others: Vec<SocketAddr>,
    /// Its name in the topology; `None`: it is found by its address.
    pub name: Option<String>,
    /// Its address in the topology; `None`: the one that the session comes from.
    pub address: Option<IpAddr>,
    /// Differs each time that the program starts.
    pub incarnation: u64,
    /// What it may hold.
    pub capacity: SwitchCapacity,
    /// By which both sides prove who they are; `None`: without TLS.
    pub tls: Option<TlsIdentity>,
}

/// A switch's session with its controller. It is opened again for ever, until this is dropped.
#[derive(Debug)]
pub struct SwitchSession {
    reports: Option<mpsc::UnboundedSender<SwitchReport>>,
    thread: Option<JoinHandle<()>>,
}

/// Takes the commands of a controller, one after the other, in a thread of the session's.
pub type OnSwitchCommand = Box<dyn FnMut(SwitchCommand) + Send>;

struct SwitchClient {
    cfg: SwitchSessionCfg,
    controllers: Controllers,
    reports: mpsc::UnboundedReceiver<SwitchReport>,
    on_command: OnSwitchCommand,
    /// The parts of trees that the switch has, and the epoch in which each was started.
    lives: BTreeMap<CommunicatorId, TreeEpoch>,
    /// Reports about those, but for counts. Each session begins with them: whether they arrived by the one before, which
    /// ended, is not known, and a controller that knows them already changes nothing.
    reported: VecDeque<SwitchReport>,
}

/// Reports that are kept at most. Older ones go.
const REPORTED_MAX: usize = 1 << 16;

impl SwitchSession {
    /// Opens a session in a thread of its own, and returns at once.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub fn open(cfg: SwitchSessionCfg, on_command: OnSwitchCommand) -> Result<Self, RuntimeError> {
        let (sender, reports) = mpsc::unbounded_channel();
        let runtime = runtime()?;
        let controllers = Controllers::new(cfg.controller, &cfg.others);
        let (lives, reported) = (BTreeMap::new(), VecDeque::new());
        let mut client = SwitchClient { cfg, controllers, reports, on_command, lives, reported };
        let run = move || runtime.block_on(client.run());
        let thread = std::thread::Builder::new().name("inc-session".to_owned()).spawn(run)?;
        Ok(Self { reports: Some(sender), thread: Some(thread) })
    }

    /// Reports to the controller; without a session, when there is one again.
    pub fn report(&self, report: SwitchReport) {
        if let Some(reports) = &self.reports {
            // The thread ends with this value only.
            let _ = reports.send(report);
        }
    }
}

impl Drop for SwitchSession {
    fn drop(&mut self) {
        self.reports = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SwitchClient {
    async fn run(&mut self) {
        let mut backoff = Backoff::new();
        loop {
            match self.session(&mut backoff).await {
                Ok(()) => return,
                Err(status) => {
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
                    report = self.reports.recv() => match report {
                        Some(report) => self.note(&report),
                        None => return,
                    },
                }
            }
        }
    }

    /// One session; `Ok`: the switch ended it.
    async fn session(&mut self, backoff: &mut Backoff) -> Result<(), Status> {
        let channel = endpoint(self.controllers.current(), self.cfg.tls.as_ref())?;
        let mut client = SwitchControlClient::connect(channel)
            .await
            .map_err(|error| Status::unavailable(connect_text(&error)))?;
        let (sender, messages) = mpsc::unbounded_channel();
        let send = |message| {
            let message = proto::SwitchMessage { message: Some(message) };
            sender.send(message).map_err(|_| Status::unavailable("the session ended"))
        };
        send(Message::Hello(self.hello()))?;
        let stream = client.session(UnboundedReceiverStream::new(messages)).await?;
        let mut commands = stream.into_inner();
        backoff.reset();
        for report in &self.reported {
            send(Message::Report(report.clone().into()))?;
        }
        tracing::info!(controller = %self.controllers.current(), "session");
        let mut beats = tokio::time::interval(Duration::from_millis(HEARTBEAT));
        loop {
            tokio::select! {
                command = commands.message() => {
                    let Some(command) = command? else {
                        return Err(Status::unavailable("the controller ended the session"));
                    };
                    let command = SwitchCommand::try_from(command)
                        .map_err(|error| Status::invalid_argument(error.to_string()))?;
                    let id = command.communicator();
                    match &command {
                        SwitchCommand::Remove(_) => {
                            self.lives.remove(&id);
                            self.forget(id);
                        }
                        // Another life.
                        SwitchCommand::Install(..) => self.forget(id),
                        SwitchCommand::Start(life, ..) => {
                            self.lives.insert(id, life.epoch);
                        }
                        SwitchCommand::Abort(..) => {}
                    }
                    (self.on_command)(command);
                }
                report = self.reports.recv() => match report {
                    None => return Ok(()),
                    Some(report) => {
                        self.note(&report);
                        send(Message::Report(report.into()))?;
                    }
                },
                _ = beats.tick() => send(Message::Heartbeat(proto::Heartbeat {}))?,
            }
        }
    }

    fn hello(&self) -> proto::SwitchHello {
        let lives = self
            .lives
            .iter()
            .map(|(&communicator, &epoch)| TreeLife { communicator, epoch }.into());
        proto::SwitchHello {
            version: CONTROL_VERSION,
            name: self.cfg.name.clone().unwrap_or_default(),
            address: self.cfg.address.map_or_else(String::new, |address| address.to_string()),
            incarnation: self.cfg.incarnation,
            memory: self.cfg.capacity.memory,
            communicators: self.cfg.capacity.communicators,
            lives: lives.collect(),
        }
    }

    fn forget(&mut self, id: CommunicatorId) {
        self.reported.retain(|report| report.communicator() != Some(id));
    }

    fn note(&mut self, report: &SwitchReport) {
        // Counts are reported again and again.
        if !matches!(report, SwitchReport::Counts(..) | SwitchReport::Strays(_)) {
            if self.reported.len() == REPORTED_MAX {
                self.reported.pop_front();
            }
            self.reported.push_back(report.clone());
        }
        match report {
            // A part that no controller has started says an epoch in which no tree is.
            SwitchReport::Installed(life, _) => {
                self.lives.insert(life.communicator, TreeEpoch(0));
            }
            // The older life was dropped for it.
            SwitchReport::Refused(life, _) => {
                self.lives.remove(&life.communicator);
            }
            SwitchReport::EdgeDead(..)
            | SwitchReport::Aborted(..)
            | SwitchReport::Contradiction(..)
            | SwitchReport::Counts(..)
            | SwitchReport::Strays(_) => {}
        }
    }
}
