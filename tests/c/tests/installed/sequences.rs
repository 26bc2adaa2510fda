//! Random sequences of calls (`programs/fuzz_calls.c`), under AddressSanitizer.
//!
//! `URMA_C_SEEDS` says how many seeds, 2 by default: `URMA_C_SEEDS=1000 cargo test -p urma-c-tests
//! sequences`. The same source is a libFuzzer target: `clang -DLIBFUZZER -fsanitize=fuzzer,address`.

use urma_c_tests::{GCC, Prefix, finish, root};

use crate::{INSTALLED, command, profiles::B081};

/// Sequences of a seed; each is some hundred calls.
const RUNS: &str = "300";

#[test]
fn random_sequences_of_calls() {
    run(&INSTALLED);
}

#[test]
fn random_sequences_of_calls_in_release_25_12_0_b081() {
    run(&B081);
}

fn run(tree: &Prefix) {
    let include = format!("-I{}", root().join("urma-core/ffi/tests/c").display());
    let flags = ["-std=gnu11", "-Wno-pedantic", "-fsanitize=address", &include];
    let source = root().join("tests/c/programs/fuzz_calls.c");
    let program = GCC.build(tree, &source, &flags);
    let seeds = std::env::var("URMA_C_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    for seed in 1..=seeds {
        let (seed, quiet) = (u32::to_string(&seed), [("ASAN_OPTIONS", "detect_leaks=0")]);
        let said = finish(&command(&program, &[&seed, RUNS], &quiet));
        // What reaches nothing finds nothing.
        let numbers = said.out.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
        let numbers: Vec<u32> = numbers.collect();
        let is_reached = numbers.len() == 3 && numbers.iter().all(|number| *number >= 100);
        assert!(is_reached, "seed {seed}: {}", said.out);
    }
}
