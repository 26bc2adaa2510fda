//! The examples of the project's READMEs, compiled and run as documentation tests.
//!
//! *Owns*: the list of READMEs. They are tests of this crate, which knows all that they use.

/// The project's first page.
#[doc = include_str!("../../README.md")]
struct FirstPage;

/// Crate `urma-mem`.
#[doc = include_str!("../../urma-mem/README.md")]
struct Mem;

/// Crate `urma-core`.
#[doc = include_str!("../../urma-core/README.md")]
struct Core;

/// Crate `urma-answer`.
#[doc = include_str!("../../urma-core/answer/README.md")]
struct Answer;

/// Crate `udma-provider`.
#[doc = include_str!("../../udma-provider/README.md")]
struct Driver;

/// Crate `udma-abi`.
#[doc = include_str!("../../udma-provider/abi/README.md")]
struct Abi;

/// Crate `ubcore-sim`.
#[doc = include_str!("../../ubcore-sim/README.md")]
struct Sim;
