//! Polling while a drain of the same JFC runs: both would take the same completions.
use urma_core::{Jfc, Status};

fn poll(jfc: &mut Jfc) -> Result<(), Status> {
    for completion in jfc.drain() {
        let _ = (completion?, jfc.poll_one()?);
    }
    Ok(())
}

fn main() {}
