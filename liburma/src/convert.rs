//! Between C values and urma-core's values.
//!
//! *Owns*: the translation, in both directions, of configurations, attributes, ids and completions.
//! *Takes*: whatever numbers a C program wrote. *Gives*: values in range, or a [`Code`].
//! *Must not*: look anything up, or keep anything.

pub(crate) mod attr;
pub(crate) mod completion;
pub(crate) mod name;
pub(crate) mod option;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod zero;

pub use zero::{Zero, zeroed};
