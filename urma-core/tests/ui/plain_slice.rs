//! Registered memory as a slice: peers change the bytes at any moment, so they are only copied.
use urma_core::Segment;

fn view(segment: &Segment) -> &[u8] {
    &segment.region()[..]
}

fn main() {}
