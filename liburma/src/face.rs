//! The exported functions, by subject as the headers list them.
//!
//! *Owns*: the checks that the C core makes before it calls a provider, the dispatch through
//! `ctx->ops` and `dev->ops` (read afresh at each call, so that a program that wraps an operation
//! sees it called), and the book-keeping in public memory: references, defaults written back.
//! *Takes*: anything that a C program passes. *Gives*: the documented status and `errno`.
//! *Must not*: know what lies behind an object of the built-in provider.
//!
//! What every function requires of its caller, beyond what the headers say of single arguments: a pointer that is not NULL
//! and lies outside this library's memory points to what the header says, at any alignment; objects of providers are
//! aligned. Pointers to objects of this library are always checked.
#![expect(unsafe_code, reason = "exported functions, and public memory")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

mod describe;
mod dispatch;
pub(crate) mod library;
mod rules;

pub mod cdev;
pub mod cmd;
pub mod context;
pub mod data;
pub mod device;
pub mod family;
pub mod jetty;
pub mod jfc;
pub mod lifecycle;
pub mod log;
pub mod notifier;
pub mod path;
pub mod perf;
pub mod queue;
pub mod segment;
pub mod target;
