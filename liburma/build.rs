//! Names the library as programs look for it, keeps it loaded (its threads outlive `dlclose`), and
//! hands the list of symbols to the compiler.
//!
//! *Owns*: the linker's arguments. *Takes*: `src/symbols.txt`. *Gives*: `exports.rs`, the list as an
//! argument of the macro that makes the symbols. *Must not*: know what a symbol does.

use std::{env, fmt::Write, fs, path::Path};

const LIST: &str = "src/symbols.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LIST}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liburma.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    let list = fs::read_to_string(LIST).expect("the list of symbols");
    let older = env::var_os("CARGO_FEATURE_ABI_25_12_0_B081").is_some();
    let other = if older { "26.06" } else { "25.12.0.B081" };
    let mut text = String::from("exports! {\n");
    let lines = list.lines().filter_map(|line| line.strip_prefix("liburma ")).map(words);
    // Functions of the newer release do no harm in the library of the older one; its marker would.
    let names = lines.filter(|(name, release)| *release != other || !name.contains("_abi_"));
    for (at, (name, _)) in names.enumerate() {
        writeln!(text, "    {at} {name},").expect("memory");
    }
    text.push_str("}\n");
    let out = env::var_os("OUT_DIR").expect("cargo says where");
    fs::write(Path::new(&out).join("exports.rs"), text).expect("a file");
}

fn words(line: &str) -> (&str, &str) {
    line.split_once(' ').expect("a symbol and its release")
}
