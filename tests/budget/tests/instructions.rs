//! The budget of instructions of an 8-byte WRITE, READ or atomic between two places of one node, from the post to the
//! poll that takes its completion, and of a poll that finds nothing: of the release build, by either face.
//!
//! *Owns*: the limits. *Takes*: the bench `cost` of liburma, which it builds, and `valgrind`, which counts.
//! *Must not*: measure time; compare counts of another build than the one that programs use.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are printed for a reader")]

use std::{
    env,
    error::Error,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Most instructions of a WRITE and its poll through the Rust API.
const RUST_WRITE_MAX: u64 = 235;
/// Most instructions of the same through the C functions: of both calls, 34 are those of leases, which take less time than
/// the 14 with two locked ones that they replace. The goal is 300.
const C_WRITE_MAX: u64 = 395;
/// Most instructions of a poll of an empty JFC through the Rust API.
const RUST_POLL_MAX: u64 = 114;
/// Most instructions of a READ and its poll through the Rust API, and through the C functions.
const READ_MAX: [u64; 2] = [238, 397];
/// Most instructions of a FETCH_ADD, or a CAS, and its poll through the Rust API, and through the C functions.
const ATOMIC_MAX: [u64; 2] = [510, 630];
/// Calls that are counted together: what is made on first use counts for little.
const CALLS: u64 = 30_000;

/// The bench, built once; `Err`: why it could not be.
fn bench() -> Outcome<&'static PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| error.to_string()));
    built.as_ref().map_err(|why| why.as_str().into())
}

fn build() -> Outcome<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["bench", "-p", "liburma", "--bench", "cost", "--no-run"]);
    command.arg("--message-format=json").current_dir(env!("CARGO_MANIFEST_DIR"));
    let text = succeeded(command.output()?)?;
    let program = text.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        rest.split_once('"').map(|(path, _)| PathBuf::from(path))
    });
    Ok(program.ok_or("cargo names no program of the bench")?)
}

/// Both outputs of a command that succeeded.
fn succeeded(output: Output) -> Outcome<String> {
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.join("\n");
    if output.status.success() { Ok(text) } else { Err(text.into()) }
}

/// Instructions of one call of a loop of the bench; `None`: nothing can count them here.
fn instructions(of: &str, lane: &str) -> Outcome<Option<u64>> {
    let mut probe = Command::new("valgrind");
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        urma_skip::skip(format_args!("instructions of {of}: valgrind is not installed"));
        return Ok(None);
    }
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg("--toggle-collect=cost::loops::*").arg(bench()?).args([of, &CALLS.to_string()]);
    let text = succeeded(command.env("URMA_LANE", lane).output()?)?;
    let count = collected(&text).ok_or_else(|| format!("no count in {text}"))? / CALLS;
    println!("{of}, lane {lane}: {count} instructions");
    Ok(Some(count))
}

/// The number in callgrind's line `Collected : N`.
fn collected(text: &str) -> Option<u64> {
    let (_, rest) = text.lines().find_map(|line| line.split_once("Collected : "))?;
    rest.trim().parse().ok().filter(|count| *count > 0)
}

/// Checks the smallest count of up to three runs: a thread that loses its processor takes longer ways meanwhile, which
/// only adds.
fn assert_at_most(of: &str, most: u64) -> Outcome<()> {
    let mut count = u64::MAX;
    for _ in 0..3 {
        count = count.min(instructions(of, "on")?.unwrap_or(0));
        if count <= most {
            break;
        }
    }
    assert!(count <= most, "{of}: {count} instructions; the budget is {most}");
    Ok(())
}

#[test]
fn a_write_stays_within_its_instructions() -> Outcome<()> {
    assert_at_most("rust-write", RUST_WRITE_MAX)
}

#[test]
fn a_write_through_c_stays_within_its_instructions() -> Outcome<()> {
    assert_at_most("c-write", C_WRITE_MAX)
}

#[test]
fn a_read_stays_within_its_instructions() -> Outcome<()> {
    assert_at_most("rust-read", READ_MAX[0])?;
    assert_at_most("c-read", READ_MAX[1])
}

#[test]
fn an_atomic_stays_within_its_instructions() -> Outcome<()> {
    assert_at_most("rust-add", ATOMIC_MAX[0])?;
    assert_at_most("rust-swap", ATOMIC_MAX[0])?;
    assert_at_most("c-add", ATOMIC_MAX[1])?;
    assert_at_most("c-swap", ATOMIC_MAX[1])
}

#[test]
fn an_empty_poll_stays_within_its_instructions() -> Outcome<()> {
    assert_at_most("rust-poll", RUST_POLL_MAX)
}

#[test]
fn a_write_on_the_long_path_is_found_to_take_more() -> Outcome<()> {
    let count = instructions("rust-write", "off")?.unwrap_or(u64::MAX);
    assert!(count > RUST_WRITE_MAX, "{count} instructions");
    Ok(())
}

#[test]
fn a_count_is_read_from_its_line() {
    let text = "==1== Events    : Ir\n==1== Collected : 3145\n==1==";
    assert_eq!(collected(text), Some(3145));
    assert_eq!(["", "==1== Collected : 0", "Collected : x"].map(collected), [None; 3]);
}
