//! JFCE: the channel on which completion events arrive.
//!
//! *Takes*: events of JFCs. *Gives*: JFC numbers, a descriptor for poll and epoll.

use std::{os::fd::BorrowedFd, sync::Arc, time::Duration};

use urma_core::{Status, ops::JfceControl};

use crate::{channel::Channel, jfc::JfcTable};

/// The control part of a channel that the caller holds.
#[derive(Debug)]
pub(crate) struct ProviderJfce {
    /// Event queue on which the events of the channel's JFCs arrive.
    pub(crate) channel: Arc<Channel>,
    jfcs: Arc<JfcTable>,
}

impl ProviderJfce {
    pub(crate) fn new(channel: Channel, jfcs: &Arc<JfcTable>) -> Self {
        Self { channel: Arc::new(channel), jfcs: Arc::clone(jfcs) }
    }
}

impl JfceControl for ProviderJfce {
    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    fn wait(&self, out: &mut [u32], timeout: Option<Duration>) -> Result<usize, Status> {
        self.channel.wait(out, timeout, |jfcn| self.jfcs.contains(jfcn))
    }

    fn delete(&self) -> Result<(), Status> {
        self.channel.delete()
    }
}
