//! The contract of the C API: headers, marker and symbols, against the golden data.
//!
//! *Owns*: nothing; its modules are the tests.

mod headers;
mod names;
