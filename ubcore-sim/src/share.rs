//! What two nodes on one host share, byte by byte.
//!
//! *Owns*: the layout of the node region and of a pair's halves. *Takes*: lengths. *Gives*: offsets.
//! *Must not*: map memory; trust a byte that the other side wrote.

pub mod layout;
