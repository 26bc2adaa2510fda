//! Programs whose device is a function of the daemon's, and the ends of both.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests of processes in real time"))]

#[cfg(test)]
mod asleep;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod ops;
#[cfg(test)]
mod world;
