//! A context: the factory of everything on a device, under one EID.
//!
//! *Owns*: nothing but the EID; the device's state is shared by its contexts. *Takes*: calls of urma-core. *Gives*:
//! each call to the module of its noun.

use std::{any::Any, borrow::Cow, os::fd::BorrowedFd, sync::Arc, time::Duration};

use udma_abi::{
    Eqe, EqeKind,
    cmd::Command,
    counters::{Counter, MODEL_COUNTER_LEN, MODEL_COUNTER_WORDS, ModelCounter},
};
use urma_core::{
    AsyncEvent, AsyncKind, Eid, JfcCfg, Path, QueueCfg, SegmentCfg, Status, Token, TokenId,
    TransportMode,
    ops::{
        ContextOps, EventOps, HintPolicy, JfcParts, JfceControl, PathOps, QueueFactory, QueueParts,
        RemoteSegmentId, SegmentOps,
    },
};
use urma_mem::Region;

use crate::{
    channel::Channel,
    device::Driver,
    jetty,
    jfc::{JfcCore, JfcTable, ProviderJfce},
    path, segment,
};

/// Open context: creates queues and segments for one EID of the device.
#[derive(Debug)]
pub(crate) struct UdmaContext {
    driver: Arc<Driver>,
    jfcs: Arc<JfcTable>,
    eid: Eid,
}

impl UdmaContext {
    pub(crate) fn new(driver: Arc<Driver>, jfcs: Arc<JfcTable>, eid: Eid) -> Self {
        Self { driver, jfcs, eid }
    }
}

impl ContextOps for UdmaContext {
    fn eid(&self) -> Eid {
        self.eid
    }

    /// An EID is one process: its address space needs no number, and completions carry none, so that the sender in a
    /// completion equals the id that it gave away.
    fn uasid(&self) -> u32 {
        0
    }
}

impl QueueFactory for UdmaContext {
    fn create_jfce(&self) -> Result<Arc<dyn JfceControl>, Status> {
        Ok(Arc::new(ProviderJfce::new(Channel::create(&self.driver)?, &self.jfcs)))
    }

    fn create_jfc(
        &self,
        cfg: &JfcCfg,
        jfce: Option<&Arc<dyn JfceControl>>,
    ) -> Result<JfcParts, Status> {
        let channel = match jfce {
            // A channel of another provider cannot carry events of this device.
            Some(jfce) => {
                let any: &dyn Any = &**jfce;
                Some(Arc::clone(
                    &any.downcast_ref::<ProviderJfce>().ok_or_else(foreign_jfce)?.channel,
                ))
            }
            None => None,
        };
        JfcCore::create(&self.driver, &self.jfcs, cfg, channel)
    }

    fn create_queue(&self, cfg: &QueueCfg) -> Result<QueueParts, Status> {
        jetty::create(&self.driver, &self.jfcs, cfg)
    }

    fn create_group(
        &self,
        id: u32,
        policy: HintPolicy,
        token: Option<Token>,
    ) -> Result<u32, Status> {
        jetty::create_group(&self.driver, id, policy, token)
    }

    fn delete_group(&self, id: u32) -> Result<(), Status> {
        jetty::delete(&self.driver, id)
    }
}

impl SegmentOps for UdmaContext {
    fn alloc_token_id(&self) -> Result<TokenId, Status> {
        segment::alloc_token_id(&self.driver)
    }

    fn free_token_id(&self, token_id: TokenId) -> Result<(), Status> {
        segment::free_token_id(&self.driver, token_id)
    }

    fn register(
        &self,
        region: &Region,
        token_id: TokenId,
        va: u64,
        cfg: &SegmentCfg,
    ) -> Result<(), Status> {
        segment::register(&self.driver, region, token_id, va, cfg)
    }

    fn unregister(&self, token_id: TokenId) -> Result<(), Status> {
        segment::unregister(&self.driver, token_id)
    }

    fn prepare(&self, path: &Path, segment: &RemoteSegmentId) {
        segment::prepare(&self.driver, path, segment);
    }

    fn map(&self, path: &Path, segment: &RemoteSegmentId) -> Result<Region, Status> {
        segment::map(&self.driver, path, segment)
    }
}

impl PathOps for UdmaContext {
    fn connect(&self, eid: Eid, mode: TransportMode) -> Result<Path, Status> {
        path::connect(&self.driver, eid, mode)
    }

    fn disconnect(&self, path: &Path) {
        path::disconnect(&self.driver, path);
    }
}

impl EventOps for UdmaContext {
    fn async_fd(&self) -> BorrowedFd<'_> {
        self.driver.async_events.fd()
    }

    fn next_async(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Status> {
        let driver = &self.driver;
        driver.async_events.wait_for(timeout, || {
            loop {
                match driver.async_events.next() {
                    Some(Eqe::Async { code, object }) => {
                        if code == EqeKind::DevFatal as u8 && !driver.take_fatal_event() {
                            continue;
                        }
                        return Ok(Some(AsyncEvent {
                            kind: AsyncKind::from_code(code),
                            id: object,
                        }));
                    }
                    Some(event) => {
                        tracing::warn!(?event, "a completion event came as asynchronous")
                    }
                    // A device that is gone at most raises a vector: it writes no event.
                    None if driver.check().is_ok() && driver.look_for_failure() => {}
                    None => return driver.check_events().map(|()| None),
                }
            }
        })
    }

    fn counters(&self) -> Result<Vec<(Cow<'static, str>, u64)>, Status> {
        let driver = &self.driver;
        let room = Counter::ALL.len();
        let buf = Arc::new(driver.dma.alloc(room * 8)?);
        let command = Command::QueryCounters {
            base: buf.iova(),
            room: u32::try_from(room).map_err(|_| Status::Fail)?,
        };
        let results = driver.execute(&command);
        let results = results.inspect_err(|error| driver.keep_if_failed(&buf, *error))?;
        let written = usize::try_from(results[0]).unwrap_or(room).min(room);
        let value = |(index, counter): (usize, &Counter)| {
            let value = buf.region().load_u64_acquire(index * 8).map_err(|_| Status::Fail)?;
            Ok((counter.name().into(), value))
        };
        let all: Result<Vec<_>, Status> =
            Counter::ALL.iter().take(written).enumerate().map(value).collect();
        let modelled = self.model_counters()?.into_iter();
        let modelled = modelled.map(|counter| (counter.name.into(), counter.value));
        all.map(|all| all.into_iter().chain(modelled).collect())
    }
}

impl UdmaContext {
    /// The counters of a model that the device has; none, if it knows of no models.
    fn model_counters(&self) -> Result<Vec<ModelCounter>, Status> {
        let driver = &self.driver;
        let asked = driver.execute(&Command::QueryModelCounters { base: 0, room: 0 });
        let there = match asked {
            Ok(results) => results[0].min(MODEL_COUNTERS_MAX),
            Err(error) if error == Status::NoDevice => return Err(error),
            Err(_) => 0,
        };
        let (Ok(room), Ok(there)) = (u32::try_from(there), usize::try_from(there)) else {
            return Err(Status::Fail);
        };
        if there == 0 {
            return Ok(Vec::new());
        }
        let buf = Arc::new(driver.dma.alloc(there * MODEL_COUNTER_LEN)?);
        let results = driver.execute(&Command::QueryModelCounters { base: buf.iova(), room });
        results.inspect_err(|error| driver.keep_if_failed(&buf, *error))?;
        let entry = |index: usize| {
            // Copied once, then looked at.
            let mut words = [0; MODEL_COUNTER_WORDS];
            for (word, at) in words.iter_mut().zip((index * MODEL_COUNTER_LEN..).step_by(8)) {
                *word = buf.region().load_u64_acquire(at).ok()?;
            }
            ModelCounter::decode(&words)
        };
        // What the device did not name is left out.
        Ok((0..there).filter_map(entry).collect())
    }
}

/// Most counters that are asked for, whatever the device says that it has.
const MODEL_COUNTERS_MAX: u64 = 1024;

#[cold]
fn foreign_jfce() -> Status {
    Status::Invalid.why(format_args!("the JFCE was made by another provider than the JFC is to be"))
}
