//! Tests of the standard packets.
