//! The target of an RC jetty, shared by its poster and its control part.
//!
//! *Must not*: know what binds.

use std::sync::Mutex;

use urma_core::TargetId;
use urma_mem::sync::AtomicU32;

/// The target of an RC jetty; the poster reads it when the version changes.
#[derive(Debug, Default)]
pub(crate) struct BoundTarget {
    pub(crate) version: AtomicU32,
    pub(crate) target: Mutex<Option<TargetId>>,
}
