//! The API against a provider that only records: every rule, kept and broken.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

mod objects;
mod posts;
mod queues;
mod recorder;
mod text;
