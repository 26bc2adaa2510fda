//! Programs that call in the order in which known clients do.

use urma_c_tests::{GCC, finish, root};

use crate::{INSTALLED, command};

/// A transfer engine: one thread submits and spins, workers post and poll. More threads than many machines have
/// processors.
#[test]
fn a_transfer_engine_moves_batches_by_any_path_with_one_worker_and_with_three() {
    let source = root().join("tests/c/programs/batches.c");
    let include = format!("-I{}", root().join("examples/c").display());
    let built = GCC.build(&INSTALLED, &source, &[&include, "-pthread"]);
    for environment in [&[][..], &[("URMA_PATH", "packets")]] {
        for args in [["-w", "1"], ["-w", "3"]] {
            for direction in [&[][..], &["-r"]] {
                let said = finish(&command(
                    &built,
                    &[&args, direction, &["-n", "20"]].concat(),
                    environment,
                ));
                assert!(said.out.contains("GB/s"), "{}", said.out);
            }
        }
    }
}
