//! The examples of the project's READMEs, compiled and run as documentation tests.
//!
//! *Owns*: the list of READMEs. They are tests of this crate, which knows all that they use.

/// The project's first page.
#[doc = include_str!("../../README.md")]
struct FirstPageReadme;

/// README of the crate `urma-mem`.
#[doc = include_str!("../../urma-mem/README.md")]
struct MemReadme;

/// README of the crate `urma-core`.
#[doc = include_str!("../../urma-core/README.md")]
struct CoreReadme;

/// README of the crate `urma-answer`.
#[doc = include_str!("../../urma-core/answer/README.md")]
struct AnswerReadme;

/// README of the crate `udma-provider`.
#[doc = include_str!("../../udma-provider/README.md")]
struct DriverReadme;

/// README of the crate `udma-abi`.
#[doc = include_str!("../../udma-provider/abi/README.md")]
struct AbiReadme;

/// README of the crate `ubcore-sim`.
#[doc = include_str!("../../ubcore-sim/README.md")]
struct SimReadme;
