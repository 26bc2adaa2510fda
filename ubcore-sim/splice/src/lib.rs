//! Splice and split: scattered pieces of a message joined and cut to packets.
//!
//! - owns: the packetiser, three cycle models behind one interface, their counters.
//! - takes: beats or pieces. gives: packets with their sideband. must not: know headers, do I/O, read a clock.
#![forbid(unsafe_code)]
