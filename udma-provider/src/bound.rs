//! The target of an RC jetty, as its poster and its control part share it.
//!
//! *Must not*: know what binds.

use std::sync::Mutex;

use urma_core::TargetId;
use urma_mem::sync::AtomicU32;

/// The target of an RC jetty; read by the poster when the version moves.
#[derive(Debug, Default)]
pub(crate) struct BoundTarget {
    pub(crate) version: AtomicU32,
    pub(crate) target: Mutex<Option<TargetId>>,
}
