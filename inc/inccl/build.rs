//! Gives the shared object its soname, and keeps it loaded: its threads outlive `dlclose`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libinccl.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
