//! The control plane: numbers in use, the command ring of each function, commands in progress.
//!
//! *Owns*: what commands create. *Must not*: be read on the data path.

use std::collections::BTreeMap;
use std::sync::Arc;

use udma_abi::{CmdStatus, Nanos};

use super::answer::{AnswerWords, PendingCommand};
use super::ring::CommandRing;
use crate::context::function::{DeviceFunction, FunctionId};
use crate::context::objects::Objects;
use crate::engine::core::DeviceCore;
use crate::exchange::Exchange;

/// Everything that commands change besides the tables and the exchange.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) objects: Objects,
    /// All functions, that of the owner first.
    pub(super) sources: Vec<CommandSource>,
    /// JFCs whose events wait for at most a period, and when that is over.
    pub(super) moderated: BTreeMap<u32, Option<Nanos>>,
    /// When the guess budgets of functions are renewed.
    pub(super) refill_at: Nanos,
}

/// A function with its commands.
#[derive(Debug)]
pub(super) struct CommandSource {
    pub(super) function: Arc<DeviceFunction>,
    pub(super) ring: Option<CommandRing>,
    /// Unanswered commands, by sequence number.
    pub(super) waiting: Vec<(u32, PendingCommand)>,
    /// How often it uses each path.
    pub(super) paths: BTreeMap<u32, u32>,
}

impl CommandSource {
    fn new(function: Arc<DeviceFunction>) -> Self {
        Self { function, ring: None, waiting: Vec::new(), paths: BTreeMap::new() }
    }

    pub(super) fn respond(&mut self, sequence: u32, status: CmdStatus, results: AnswerWords) {
        if let Some(ring) = &mut self.ring {
            ring.respond(sequence, status, results);
        }
    }
}

impl Commands {
    /// Creates the state with the owner's function alone.
    pub(crate) fn new(first: Arc<DeviceFunction>) -> Self {
        Self {
            objects: Objects::default(),
            sources: vec![CommandSource::new(first)],
            moderated: BTreeMap::new(),
            refill_at: 0,
        }
    }

    /// Adds a function, whose commands are executed from now on.
    pub(crate) fn add_function(&mut self, function: Arc<DeviceFunction>) {
        self.sources.push(CommandSource::new(function));
    }

    /// Removes a function and its waiting commands.
    pub(crate) fn remove_function(&mut self, id: FunctionId) {
        self.sources.retain(|source| source.function.id != id);
    }

    pub(super) fn source_of(&mut self, id: FunctionId) -> Option<&mut CommandSource> {
        self.sources.iter_mut().find(|source| source.function.id == id)
    }
}

/// Arguments of a command besides [`Commands`].
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) core: &'a DeviceCore,
    pub(super) exchange: &'a mut Exchange,
    pub(super) now: Nanos,
    /// Function that issued the command.
    pub(super) function: Arc<DeviceFunction>,
}
