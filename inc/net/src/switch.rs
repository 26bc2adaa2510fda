//! A switch with a thread of its own, which drives it and takes commands from others, above all from a controller.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use inc::control::{PartCounts, SwitchCommand, SwitchReport};
use inc::controller::SwitchCapacity;
use inc::port::{PortCounts, StrayCounts};
use inc::switch::{PartView, Switch, SwitchLimits};
use inc_control::{SwitchSession, SwitchSessionCfg, TlsIdentity};

use crate::drive::{LinkAccess, LinkLoss, StationDriver, Waker, system_random};
use crate::udp::UdpCounts;

/// A question is answered at once, or the thread is gone.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Takes what a switch has to say to the controller. It is called by the switch's thread, and must not wait.
pub type OnSwitchReport = Box<dyn FnMut(SwitchReport) + Send>;

/// What a switch has and did, at one time.
#[derive(Debug, Clone, Default)]
pub struct SwitchView {
    /// Its communicators, each once.
    pub parts: Vec<PartView>,
    /// Its edges and datagrams of no edge.
    pub port: PortCounts,
    /// Datagrams that it refused before they were known to be an edge's.
    pub strays: StrayCounts,
    /// Its socket's datagrams and calls.
    pub udp: UdpCounts,
    /// Bytes that are reserved for slots.
    pub memory: u64,
    /// Edges that are reserved.
    pub edges: usize,
}

/// What a switch of a controller is made with.
#[derive(Debug, Clone)]
pub struct ControlledSwitchCfg {
    /// Where hosts and other switches send to.
    pub address: SocketAddr,
    /// What it may hold.
    pub limits: SwitchLimits,
    /// Where the controller waits for switches.
    pub controller: SocketAddr,
    /// Further ones, if one of several is in charge.
    pub others: Vec<SocketAddr>,
    /// Its name in the topology; `None`: it is found by its address.
    pub name: Option<String>,
    /// By which both sides prove who they are; `None`: without TLS.
    pub tls: Option<TlsIdentity>,
    /// How its datagrams go to the link.
    pub access: LinkAccess,
}

/// A switch that does what a controller says. When the controller is gone, its communicators go on.
#[derive(Debug)]
pub struct ControlledSwitch {
    /// Closed first: its commands go to the switch.
    session: Arc<OnceLock<SwitchSession>>,
    switch: Arc<LocalSwitch>,
}

impl ControlledSwitch {
    /// Starts a switch, and looks for its controller from then on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(cfg: ControlledSwitchCfg) -> io::Result<Self> {
        let SwitchLimits { memory, communicators } = cfg.limits;
        let communicators = u32::try_from(communicators).unwrap_or(u32::MAX);
        let incarnation = getrandom::u64().map_err(io::Error::other)?;
        let session = Arc::<OnceLock<SwitchSession>>::default();
        let of_reports = Arc::downgrade(&session);
        let on_report = move |report: SwitchReport| {
            // Nothing is reported before the controller said something.
            if let Some(session) = of_reports.upgrade()
                && let Some(session) = session.get()
            {
                session.report(report);
            }
        };
        let switch =
            Arc::new(LocalSwitch::bind(cfg.address, cfg.access, cfg.limits, Box::new(on_report))?);
        let of_commands = Arc::clone(&switch);
        let opened = SwitchSession::open(
            SwitchSessionCfg {
                controller: cfg.controller,
                others: cfg.others,
                name: cfg.name,
                address: Some(switch.address().ip()),
                incarnation,
                capacity: SwitchCapacity { memory, communicators },
                tls: cfg.tls,
            },
            Box::new(move |command| of_commands.on_command(command)),
        );
        let opened = opened.map_err(io::Error::other)?;
        session.get_or_init(|| opened);
        Ok(Self { session, switch })
    }

    /// The switch behind the address.
    #[must_use]
    pub fn switch(&self) -> &LocalSwitch {
        &self.switch
    }

    /// Reports to the controller what each communicator did so far, for its metrics.
    pub fn report_counts(&self) {
        let Some(session) = self.session.get() else { return };
        let view = self.switch.view();
        session.report(SwitchReport::Strays(view.strays));
        for part in view.parts {
            let counts = PartCounts {
                slots: part.counts,
                edges: part.edges,
                slots_in_use: part.slots_in_use as u64,
            };
            session.report(SwitchReport::Counts(part.life.communicator, Box::new(counts)));
        }
    }
}

enum ToThread {
    Command(SwitchCommand),
    View(Sender<SwitchView>),
    Loss(LinkLoss),
}

/// A switch behind one address.
#[derive(Debug)]
pub struct LocalSwitch {
    address: SocketAddr,
    /// `None`: the thread is to end.
    jobs: Option<Sender<ToThread>>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl LocalSwitch {
    /// A switch on an address of this machine; port 0 means any.
    ///
    /// # Errors
    /// Those of the system.
    pub fn bind(
        address: SocketAddr,
        access: LinkAccess,
        limits: SwitchLimits,
        on_report: OnSwitchReport,
    ) -> io::Result<Self> {
        let driver = StationDriver::new(Switch::new(limits, system_random()?), address, access)?;
        let (address, waker) = (driver.address(), driver.waker());
        let (jobs, of_thread) = channel();
        let thread = thread::Builder::new()
            .name("inc-switch".into())
            .spawn(move || look_after(driver, &of_thread, on_report))?;
        Ok(Self { address, jobs: Some(jobs), waker, thread: Some(thread) })
    }

    /// Address and port of the switch.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Does what the controller says; what comes of it is reported.
    pub fn on_command(&self, command: SwitchCommand) {
        self.give(ToThread::Command(command));
    }

    /// Loses received datagrams from now on.
    pub fn set_loss(&self, loss: LinkLoss) {
        self.give(ToThread::Loss(loss));
    }

    /// What the switch has and did so far.
    #[must_use]
    pub fn view(&self) -> SwitchView {
        let (give, take) = channel();
        self.give(ToThread::View(give));
        take.recv_timeout(ANSWER_MAX).unwrap_or_default()
    }

    fn give(&self, job: ToThread) {
        if let Some(jobs) = &self.jobs {
            // The thread takes jobs for as long as there is a sender.
            let _ = jobs.send(job);
            self.waker.wake();
        }
    }
}

impl Drop for LocalSwitch {
    fn drop(&mut self) {
        self.jobs = None;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look_after(
    mut driver: StationDriver<Switch>,
    jobs: &Receiver<ToThread>,
    mut on_report: OnSwitchReport,
) {
    let mut sleeper = driver.sleeper();
    loop {
        loop {
            match jobs.try_recv() {
                Ok(ToThread::Command(command)) => {
                    let now = driver.now();
                    driver.station.on_command(now, command);
                }
                Ok(ToThread::Loss(loss)) => driver.set_loss(loss),
                Ok(ToThread::View(asker)) => {
                    // Who does not wait any more needs no answer.
                    let _ = asker.send(view(&driver));
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        let is_busy = driver.turn();
        while let Some(report) = driver.station.poll_report() {
            on_report(report);
        }
        if is_busy {
            sleeper.on_busy();
        } else {
            sleeper.on_idle(driver.time_left());
        }
    }
}

fn view(driver: &StationDriver<Switch>) -> SwitchView {
    let (memory, edges) = driver.station.in_use();
    SwitchView {
        parts: driver.station.parts().collect(),
        port: driver.station.port_counts(),
        strays: driver.station.strays(),
        udp: driver.counts(),
        memory,
        edges,
    }
}
