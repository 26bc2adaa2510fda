//! What the types forbid: each program under `ui` fails to compile, with the message beside it.
//!
//! After a change of the toolchain: `TRYBUILD=overwrite cargo test -p urma-core --test ui`, and
//! read the differences.

#[test]
fn the_types_forbid_it() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
