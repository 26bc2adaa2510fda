//! Scenarios between two nodes.
