//! A segment that was withdrawn is gone.
use urma_core::Segment;

fn late(segment: Segment) -> u64 {
    let _ = segment.unregister();
    segment.va()
}

fn main() {}
