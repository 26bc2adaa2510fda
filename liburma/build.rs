//! Names the library as programs look for it, keeps it loaded (its threads outlive `dlclose`), and
//! hands the list of symbols to the compiler.
//!
//! *Owns*: the linker's arguments, what the library needs beside it. *Takes*: `src/symbols.txt`. *Gives*: `exports.rs`, the list as an
//! argument of the macro that makes the symbols. *Must not*: know what a symbol does.

use std::{env, fmt::Write, fs, path::Path, process::Command};

const LIST: &str = "src/symbols.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LIST}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liburma.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    let out = env::var_os("OUT_DIR").expect("cargo says where");
    need_common(Path::new(&out));
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
    fs::write(Path::new(&out).join("exports.rs"), text).expect("a file");
}

/// Makes the library ask the loader for `liburma_common.so.0`, beside itself or, for that of the second release of an
/// installation, two folders above: programs that link liburma alone take functions from there. The linker gets an
/// empty library of that name, because the real one may not be built yet.
fn need_common(out: &Path) {
    const NAME: &str = "liburma_common.so.0";
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let library = out.join(NAME);
    let mut link = Command::new(linker);
    link.args(["-shared", "-nostdlib", "-x", "assembler", "/dev/null", "-o"]).arg(&library);
    let status = link.arg(format!("-Wl,-soname,{NAME}")).status().expect("the linker starts");
    assert!(status.success(), "an empty {NAME}: {status}");
    let library = library.display();
    println!("cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,{library},--pop-state");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--enable-new-dtags,-rpath,$ORIGIN:$ORIGIN/../..");
}

fn words(line: &str) -> (&str, &str) {
    line.split_once(' ').expect("a symbol and its release")
}
