//! Two releases of the C API: both install, both run, and the loader tells one from the other.

use std::sync::LazyLock;

use urma_c_tests::{GCC, Prefix, built, finish, start};

use crate::{INSTALLED, command, example};

/// Installation of the ABI profile of release 25.12.0.B081.
pub(crate) static B081: LazyLock<Prefix> = LazyLock::new(|| install_b081("b081"));

/// Variable with the folder in which `cargo xtask test` built the libraries for 25.12.0.B081.
const BUILT_B081: &str = "URMA_BUILT_25_12_0_B081";

/// Installs release 25.12.0.B081 under a scratch prefix.
pub(crate) fn install_b081(name: &str) -> Prefix {
    install_with_b081(name, &["--abi", "25.12.0.B081"], "--built")
}

/// Installs libraries of releases with these options, 25.12.0.B081 among them: out of the folder that
/// the environment names, given as `option`, or else built by `install` itself, in a folder of its
/// own: the build that brought this test has the library of the other release.
pub(crate) fn install_with_b081(name: &str, options: &[&str], option: &str) -> Prefix {
    let built_before = std::env::var(BUILT_B081).ok();
    let of_before = built_before.iter().flat_map(|folder| [option, folder.as_str()]);
    let how = ["--parts", "libraries", "--profile", "dev"].into_iter().chain(of_before);
    let options: Vec<&str> = options.iter().copied().chain(how).collect();
    let target = built().join("c-tests-build");
    Prefix::install_with(name, &options, &[("CARGO_TARGET_DIR", &target)])
}

#[test]
fn each_release_runs_its_programs_and_names_those_of_the_other() {
    let trees = [(&*INSTALLED, "urma_init_abi_26_06"), (&*B081, "urma_init_abi_25_12_0_b081")];
    for (mine, other) in [(0, 1), (1, 0)] {
        let (prefix, marker) = trees[mine];
        let program = GCC.build(prefix, &example("send_recv"), &[]);
        let said = finish(&command(&program, &[], &[]));
        assert!(said.out.contains("immediate 42"), "{}", said.out);
        // The path of the environment comes after a RUNPATH, before an RPATH: bind to the other.
        let library = trees[other].0.lib().join("liburma.so.0");
        let path = library.to_string_lossy().into_owned();
        let stopped = start(&command(&program, &[], &[("LD_PRELOAD", &path)])).end();
        assert!(!stopped.status.success() && stopped.err.contains(marker), "{}", stopped.err);
    }
}
