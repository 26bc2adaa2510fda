//! Tests of the URMA packets.
