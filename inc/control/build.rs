//! Makes the messages and services of proto/inc/v1, with their description for reflection, and those of etcd.

use std::error::Error;
use std::path::Path;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["inc/v1/inc.proto", "inc/v1/store.proto"], ["proto"])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("inc.bin"), files.encode_to_vec())?;
    let has_services = std::env::var_os("CARGO_FEATURE_SERVICES").is_some();
    let made = tonic_prost_build::configure().build_client(has_services).build_server(has_services);
    // In order: a state is written as the same bytes each time.
    made.btree_map(".").compile_fds(files)?;
    if has_services {
        let etcd = protox::compile(["etcd/rpc.proto"], ["proto"])?;
        tonic_prost_build::configure().build_server(false).compile_fds(etcd)?;
    }
    Ok(())
}
