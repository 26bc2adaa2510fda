//! Waiting on completions that a stream took over.
use urma_core::{CompletionStream, Completions};

fn both(mut completions: Completions) {
    let _stream = CompletionStream::new(completions);
    let _ = completions.wait(None);
}

fn main() {}
