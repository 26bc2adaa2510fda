//! Two releases of the C API: both install, both run, and the loader tells one from the other.

use std::sync::LazyLock;

use urma_c_tests::{GCC, Prefix, built, finish, start};

use crate::{INSTALLED, command, example};

/// Release 25.12.0.B081, built by `install` itself, in a folder of its own: the build that brought
/// this test has the library of the other release.
pub(crate) static B081: LazyLock<Prefix> = LazyLock::new(|| {
    let target = built().join("c-tests-build");
    Prefix::install_with("b081", &B081_OPTIONS, &[("CARGO_TARGET_DIR", &target)])
});

pub(crate) const B081_OPTIONS: [&str; 6] =
    ["--abi", "25.12.0.B081", "--parts", "libraries", "--profile", "dev"];

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
