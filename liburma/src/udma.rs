//! The built-in provider: C operations over urma-core's objects.
//!
//! *Owns*: the private parts of all objects that it makes, the table of operations (`ctx->ops`), the
//! software device. *Takes*: calls through `ctx->ops` and through the provider's own table, from the
//! face or from a client that wraps an operation. *Gives*: objects in slots, with their public parts
//! filled. *Must not*: count references of the public parts or check what the face checks; but it
//! never trusts a pointer: every object is looked up.
//!
//! One file per noun. Below them: `event_queue`, `hardware`, `notices` (parts that know no object), `kind` (the private
//! parts), `context`, `family` (what nouns share). Above: `table`.
#![expect(unsafe_code, reason = "C entry points, and memory that C programs read")]

pub(crate) mod address;
pub(crate) mod context;
pub(crate) mod ctl;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod event_queue;
pub(crate) mod family;
pub(crate) mod hardware;
pub(crate) mod jetty;
pub(crate) mod jfc;
pub(crate) mod jfr;
pub(crate) mod jfs;
pub(crate) mod kind;
pub(crate) mod notices;
pub(crate) mod notifier;
pub(crate) mod path;
pub(crate) mod post;
pub(crate) mod segment;
pub(crate) mod table;
pub(crate) mod target;
