//! Names the library as programs look for it, and keeps it loaded: its threads outlive `dlclose`.
//!
//! *Owns*: the linker's arguments. *Must not*: generate code.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liburma.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
