//! Memory that others may change: a device, a peer process, the user's own threads.
//!
//! Owns: every unsafe operation on shared bytes of the workspace: regions, copies, atomics,
//! barriers, moving pages into a shareable file, rings between processes, hazard slots, reads of
//! another process. Takes: lengths, offsets, file descriptors, and (unsafe) addresses the caller
//! owns. Gives: checked accessors that never hand out a Rust reference to shared bytes. Must not:
//! depend on queues, jetties or packets; read a clock; start a thread; print.
//!
//! The two-sided protocols (hand-over, lease, ring, sleep flag, hazard slots, idle snapshots, ends, relays, doorbell slots, event
//! rings) have loom models, each with
//! planted faults it must catch: `RUSTFLAGS="--cfg loom" cargo test -p urma-mem --release loom_`.

pub mod adopt;
pub mod arena;
pub mod asymmetric;
pub mod barrier;
pub mod bpf;
pub mod copy;
#[cfg(feature = "count-allocations")]
pub mod count;
pub mod doorbells;
pub mod ends;
pub mod environment;
pub mod event;
pub mod files;
pub mod fork;
pub mod gf256;
pub mod hazard;
pub mod held;
pub mod idle;
pub mod lines;
pub mod maps;
pub mod packets;
pub mod procvm;
pub mod region;
pub mod room;
pub mod serial;
mod sigbus;
pub mod sleep;
pub mod spsc;
pub mod sync;
pub mod vectors;
pub mod word_pair_ring;
pub mod words;
pub mod writers;

pub use adopt::{AdoptRefusal, Adoption, Extent};
pub use arena::{Arena, ArenaCfg, HugePages};
pub use files::{FilePlace, FileRefusal, FileWindow, SharedFile, SharedFiles};
pub use held::{CopyOrder, HeldMemory, MemoryGone, MemoryHolder};
pub use maps::Unmovable;
pub use region::{
    Blocks, MapAccess, OutOfBounds, Pages, Region, RegionWord, RegionWord32, RingBlock, WordAtomic,
};
pub use serial::{
    OwnerEntry, RunResult, Serial, SerialOwner, SerialVisit, TakenEntry, ThisThread, ThreadVisit,
    VisitEnd, Visited,
};
pub use writers::{WriterHold, Writers, writer_hold};
