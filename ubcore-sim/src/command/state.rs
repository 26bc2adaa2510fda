//! The control plane: numbers given out, the command ring, commands in progress.
//!
//! *Owns*: what commands make. *Must not*: be looked at on the data path.

use std::collections::BTreeMap;

use udma_abi::Nanos;

use super::answer::PendingCommand;
use super::ring::CommandRing;
use crate::context::objects::Objects;
use crate::engine::base::Base;
use crate::exchange::Exchange;

/// Everything that commands change besides the tables and the exchange.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) objects: Objects,
    pub(super) ring: Option<CommandRing>,
    /// Commands not answered yet, by sequence number.
    pub(super) waiting: Vec<(u32, PendingCommand)>,
    /// JFCs whose events wait for at most a period; when that is over.
    pub(super) moderated: BTreeMap<u32, Option<Nanos>>,
}

/// What a command works on besides [`Commands`].
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) base: &'a Base,
    pub(super) exchange: &'a mut Exchange,
    pub(super) now: Nanos,
}
