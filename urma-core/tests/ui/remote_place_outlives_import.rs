//! A place in a peer's segment, kept beyond the import.
use urma_core::{ImportedSegment, RemoteAddr};

fn keep(segment: ImportedSegment) -> RemoteAddr<'static> {
    segment.at(0)
}

fn main() {}
