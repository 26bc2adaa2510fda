//! The API against a provider that only records: every rule, kept and broken.

mod objects;
mod posts;
mod queues;
mod recorder;
mod segments;
mod text;
