//! The mirror that is checked in is what the table and the golden layouts make, and a change of either shows.

use std::fs;

use super::*;

fn read(path: &str) -> Option<String> {
    fs::read_to_string(crate::cargo::root().join(path)).ok()
}

/// What `generate` makes, or says, when a file has another text.
fn with(path: &str, from: &str, to: &str) -> Result<Vec<(String, String)>, Vec<String>> {
    generate(|file| {
        let text = read(file)?;
        if file != path {
            return Some(text);
        }
        assert!(text.contains(from), "{path} has no {from}");
        Some(text.replacen(from, to, 1))
    })
}

#[test]
fn the_checked_in_files_are_current() {
    for (path, text) in generate(read).expect("a mirror") {
        assert!(read(&path).as_deref() == Some(text.as_str()), "{path}: run cargo xtask mirror");
    }
}

#[test]
fn a_change_of_a_golden_number_changes_the_mirror() {
    let current = generate(read).expect("a mirror");
    let golden = RELEASES[0].1;
    for (from, to) in [
        ("type urma_jfs_t 256", "type urma_jfs_t 264"),
        ("at 72 next", "at 64 next"),
        ("is 16 URMA_OPC_READ\n", "is 17 URMA_OPC_READ\n"),
        ("bits 0 3 bs.token_policy", "bits 0 4 bs.token_policy"),
    ] {
        assert_ne!(with(golden, from, to).expect("a mirror"), current, "{from}");
    }
}

#[test]
fn a_golden_member_that_is_not_mirrored_is_named() {
    let wrong = with(TABLE, "  rnr_retry: u8\n", "").expect_err("a member less");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong.iter().all(|line| line.contains("urma_jfs_cfg_t.rnr_retry")), "{wrong:?}");
}

#[test]
fn a_name_that_no_release_has_is_named() {
    for (from, to) in [("  rnr_retry: u8", "  rnr_retries: u8"), ("URMA_OPC_NOP", "URMA_OPC_NOPE")]
    {
        let wrong = with(TABLE, from, to).expect_err("another name").join("\n");
        assert!(wrong.contains(to.trim().split(':').next().unwrap_or(to)), "{wrong}");
    }
}

#[test]
fn a_line_that_is_none_is_named() {
    let wrong =
        with(TABLE, "struct urma_jfs_cfg_t", "struct urma_jfs_cfg_t round").expect_err("a word");
    assert!(wrong[0].contains("round"), "{wrong:?}");
}
