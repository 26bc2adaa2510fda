//! What becomes of registered memory when its program does with it what programs do.

use urma_c_tests::{GCC, finish, root};

use crate::{INSTALLED, command};

/// What a program of `tests/c/programs` said.
fn said(program: &str, args: &[&str], environment: &[(&str, &str)]) -> String {
    let source = root().join("tests/c/programs").join(program).with_extension("c");
    let built = GCC.build(&INSTALLED, &source, &[]);
    finish(&command(&built, args, environment)).out
}

/// Lines that begin with `what`, of which there are some.
fn lines<'a>(said: &'a str, what: &str) -> Vec<&'a str> {
    let found: Vec<_> = said.lines().filter(|line| line.contains(what)).collect();
    assert!(!found.is_empty(), "nothing about {what}: {said}");
    found
}

/// How a line ends for `URMA_CR_REM_ACCESS_ABORT_ERR`.
const DENIED: &str = " 8";

/// A peer's packets for memory that its program unmapped end with an access error; the program lives, and what it mapped
/// there later is its own.
#[test]
fn packets_for_memory_that_was_unmapped_end_no_program_and_change_nothing() {
    let on = [("URMA_PATH", "packets")];
    let off = [("URMA_PATH", "packets"), ("URMA_PAGE_MOVING", "off")];
    for (kind, environment) in [("whole", &on[..]), ("part", &on), ("file", &on), ("file", &off)] {
        let said = said("unmaps", &[kind], environment);
        assert!(lines(&said, "before").iter().all(|line| line.ends_with(" 0")), "{kind}: {said}");
        for when in ["unmapped", "later"] {
            let refused = lines(&said, when).iter().all(|line| line.ends_with(DENIED));
            assert!(refused, "{kind}: {said}");
        }
        assert!(said.contains("lived, 0 bytes changed"), "{kind}: {said}");
    }
}

/// Memory that did not move and has no file: nothing tells what came later from it, but the program lives.
#[test]
fn packets_for_memory_that_did_not_move_end_no_program() {
    let off = [("URMA_PATH", "packets"), ("URMA_PAGE_MOVING", "off")];
    let said = said("unmaps", &["whole"], &off);
    let refused = lines(&said, "unmapped").iter().all(|line| line.ends_with(DENIED));
    assert!(refused && said.contains("lived"), "{said}");
}

/// On the same host what a peer writes late lands where no program reads.
#[test]
fn late_writes_on_the_same_host_change_nothing() {
    for kind in ["whole", "part", "file"] {
        let said = said("unmaps", &[kind], &[]);
        assert!(said.contains("lived, 0 bytes changed"), "{kind}: {said}");
    }
}

/// Huge pages that two programs need, with some to spare.
const HUGE_PAGES: u32 = 16;

/// What a run of `shared` said, for memory of two kinds; `None`: it has no huge pages, which is said.
fn shared(what: &str, [here, there]: [&str; 2], environment: &[(&str, &str)]) -> Option<String> {
    let source = root().join("tests/c/programs/shared.c");
    let built = GCC.build(&INSTALLED, &source, &[]);
    let output = command(&built, &[what, here, there], environment).output();
    let output = output.expect("the program starts");
    if output.status.code() == Some(77) {
        urma_skip::skip(format!("{what} of {here} and {there}: no huge pages"));
        return None;
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} {here} {there} {environment:?}: {said}{errors}");
    Some(said)
}

/// Memory that is a file mapped shared, at either end or at both: every operation, each byte, and every refusal; also where
/// the kernel may not be asked for the bytes of a process, and in packets.
#[test]
fn memory_that_is_mapped_shared_is_written_and_read_like_any_other() {
    let files_off = [("URMA_SHARE_FILES", "off")];
    let off = [("URMA_SHARE_FILES", "off"), ("URMA_KERNEL_READS", "off")];
    let packets = [("URMA_PATH", "packets")];
    for (kinds, environment) in [
        (["memfd", "shm"], &[][..]),
        (["private", "memfd"], &[]),
        (["memfd", "private"], &[]),
        (["memfd", "memfd"], &files_off),
        (["memfd", "memfd"], &off),
        (["memfd", "memfd"], &packets),
    ] {
        let Some(said) = shared("check", kinds, environment) else { continue };
        assert!(said.contains("atomics: all"), "{kinds:?}: {said}");
        for refused in ["wrong token: write", "wrong token: read"] {
            let refused = lines(&said, refused);
            assert!(refused.iter().all(|line| line.ends_with(DENIED)), "{kinds:?}: {said}");
        }
    }
}

/// The same of files of huge pages, which the test asks the system for.
#[test]
fn memory_of_huge_pages_is_written_and_read_like_any_other() {
    let setting = "/proc/sys/vm/nr_hugepages";
    let before = std::fs::read_to_string(setting).unwrap_or_default();
    let count: u32 = before.trim().parse().unwrap_or(0);
    // Where that is refused, the program says that there are none.
    let is_raised = std::fs::write(setting, (count + HUGE_PAGES).to_string()).is_ok();
    let said = shared("check", ["huge", "huge"], &[]);
    if is_raised {
        let _ = std::fs::write(setting, before);
    }
    if let Some(said) = said {
        assert!(said.contains("atomics: all"), "{said}");
    }
}

/// Nothing is written after `urma_unregister_seg` returned, whatever was under way.
#[test]
fn shared_memory_that_is_unregistered_changes_no_more() {
    let off = [("URMA_SHARE_FILES", "off")];
    for (kinds, environment) in
        [(["memfd", "memfd"], &[][..]), (["memfd", "memfd"], &off), (["private", "shm"], &[])]
    {
        let said = shared("unregister", kinds, environment).unwrap();
        assert!(said.contains("unchanged after unregistering"), "{kinds:?}: {said}");
        assert!(said.contains("no more mapped"), "{kinds:?}: {said}");
        assert!(lines(&said, "refused").iter().all(|line| line.ends_with(DENIED)), "{said}");
    }
}

/// A file that its owner makes shorter while peers use it: what is gone is refused, and neither program ends.
#[test]
fn shared_memory_that_becomes_shorter_is_refused_and_ends_no_program() {
    let off = [("URMA_SHARE_FILES", "off")];
    for environment in [&[][..], &off] {
        let said = shared("shrinks", ["memfd", "memfd"], environment).unwrap();
        assert!(lines(&said, "refused").iter().all(|line| line.ends_with(DENIED)), "{said}");
        assert!(said.contains("what stays: write 0") && said.contains("owner lives"), "{said}");
    }
}

/// A peer that is killed while its memory is written to ends the request, and nothing else.
#[test]
fn a_peer_that_dies_while_its_shared_memory_is_written_ends_the_request() {
    let said = shared("dies", ["memfd", "memfd"], &[]).unwrap();
    assert!(lines(&said, "refused").iter().all(|line| !line.ends_with(" 0")), "{said}");
}
