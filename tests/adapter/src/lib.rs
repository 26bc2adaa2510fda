//! A provider for urma-core whose operations are the C functions of liburma: what is written
//! against the Rust API runs through the C face.
//!
//! *Owns*: the translation of urma-core's values into C structs, and of C answers back. *Takes*:
//! operations that urma-core checked, of any number of devices that are plugged into the library.
//! *Gives*: a [`CDevice`]. *Must not*: reach around the exported functions, or check what they
//! check.
//!
//! What C has no words for is answered with `Unsupported`: counters, flushing a JFR. A jetty of C
//! always receives through a JFR, so that one with a receive queue of its own gets a JFR that no
//! one else sees; what happens to the jetty by itself does not happen to that JFR. Events are
//! acknowledged as soon as they are taken, because urma-core counts them itself. Imports of queues
//! and segments are made when a request first names them.
//!
//! Rooms, each of which knows those after it only: `device`, `context` (the factory and its parts),
//! `queue`, `post`, `jfc`, `events`, `segment`, `paths`, `shared` (what the objects of a context
//! hold on to), `value` (plain values).

mod context;
mod device;
mod events;
mod jfc;
mod paths;
mod post;
mod queue;
mod segment;
mod shared;
mod value;

pub use device::CDevice;
