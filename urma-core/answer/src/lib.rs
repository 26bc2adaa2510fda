//! The well-known jetty that `urma_ping` addresses: every message comes back to its sender.
//!
//! *Owns*: jetty [`WELL_KNOWN_ID`] of a node, one sleeping thread. *Takes*: messages. *Gives*: the
//! same bytes and the same immediate to the jetty that they came from. *Must not*: keep a program
//! from claiming the id: to claim it, drop the [`Answerer`] first.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod queue;

use std::{
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
};

use urma_core::{Context, Device, Status};

use crate::queue::{AnswerQueue, ServeEnd};

/// The jetty that answers pings (UMDK release 26.06).
pub const WELL_KNOWN_ID: u32 = 5;
/// Longest message that is answered, bytes.
pub const MESSAGE_MAX: usize = 4096;

/// A running answerer. Dropping it gives the id back.
#[derive(Debug)]
pub struct Answerer {
    /// Closed to end the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Answerer {
    /// Claims the well-known jetty of EID number `eid_index` of `device` and answers from now on.
    ///
    /// # Errors
    /// `Exists`: a program has the id. Else what creating a context or a queue answers.
    pub fn start(device: &Device, eid_index: u32) -> Result<Self, Status> {
        let context = device.open(eid_index)?;
        let queue = AnswerQueue::open(&context)?;
        let (stop, stopped) = UnixStream::pair().map_err(|_| Status::NoMemory)?;
        let name = "urma-answer".to_owned();
        let run = move || run(&context, queue, &stopped);
        let thread = thread::Builder::new().name(name).spawn(run).map_err(|_| Status::NoMemory)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), pid: std::process::id() })
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // In a forked child the thread does not exist: there is nothing to wait for.
        if let Some(thread) = self.thread.take().filter(|_| std::process::id() == self.pid) {
            let _ = thread.join();
        }
    }
}

/// Answers until the end. A queue that a failed answer stopped is made anew.
fn run(context: &Context, queue: AnswerQueue, stopped: &UnixStream) {
    let mut queue = queue;
    loop {
        match queue.serve(context, stopped) {
            ServeEnd::Stopped => return,
            ServeEnd::Broken => drop(queue),
        }
        queue = match AnswerQueue::open(context) {
            Ok(queue) => queue,
            Err(status) => {
                tracing::warn!(%status, "pings are not answered any more");
                return;
            }
        };
    }
}
