//! In-network computing: switches add up the vectors of many hosts on their way, and send the sum back.
//!
//! - owns: the INC header ([`wire`]), element types and operators ([`element`]), reductions with their exactness
//!   rule ([`reduce`]), edges ([`edge`]) and all of a station ([`port`]), the slots of a switch ([`slots`]) and the switch
//!   ([`switch`]), a rank ([`member`]) and the host ([`host`]), what a controller says to both ([`control`]), and the
//!   [`controller`] with its [`topology`] and YAML ([`document`], [`tree_document`]).
//! - takes: datagrams, calls, the time. gives: datagrams, commands, reports, results.
//! - must not: own a socket, a thread or a clock, or know any URMA object.
//!
//! A host splits a vector into *chunks*, each one message. A switch has a *slot* for each chunk of a window; when the
//! contributions of all *children* are there, the slot's value goes to the *parent* switch, or, at the root of the tree,
//! back to the children as the result.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod buffers;
pub mod control;
pub mod controller;
pub mod document;
pub mod edge;
pub mod element;
pub mod host;
pub mod member;
pub mod port;
pub mod reduce;
pub mod slots;
pub mod switch;
pub mod topology;
pub mod tree_document;
pub mod wire;
