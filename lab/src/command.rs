//! What all experiments have on the command line: where results go, which part of a sweep runs, how it ends.
//!
//! - owns: these options, progress, output, files. takes: what an experiment prints. gives: a sweep, an exit code.
//! - must not: change a result.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lab::sweep::{RunStore, Shard, Sweep};
use lab::units::GridError;
use serde_json::{Value, json};

/// File of a folder with the arguments of its sweep.
const ARGUMENTS: &str = "sweep.json";

/// Options of every experiment.
#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    /// Threads; all cores without it.
    #[arg(long)]
    workers: Option<usize>,
    /// Folder for cells.jsonl, cells.csv, plots, and runs.jsonl, to which each run is added when it ends.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Go on where the folder's runs end.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Run only a part: 0/8 to 7/8 are eight parts, each in a folder of its own; `urma-lab merge` joins them.
    #[arg(long, value_name = "N/OF", requires = "out")]
    shard: Option<String>,
    /// One JSON object per cell instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Folders whose runs are joined.
    #[arg(skip)]
    merged: Vec<PathBuf>,
}

/// Arguments of `urma-lab merge`.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Folders that the shards of one sweep wrote.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Folder for the results of all of them.
    #[arg(long)]
    out: PathBuf,
    /// One JSON object per cell instead of a table.
    #[arg(long)]
    json: bool,
}

impl MergeArgs {
    /// The arguments of the sweep whose shards are joined.
    pub(crate) fn arguments(&self) -> Result<Vec<String>, GridError> {
        let path = self.folders.first().map(|folder| folder.join(ARGUMENTS)).unwrap_or_default();
        let text = fs::read_to_string(&path).map_err(|error| error.to_string());
        let read = |text: String| serde_json::from_str(&text).map_err(|error| error.to_string());
        text.and_then(read).map_err(|error| GridError {
            field: "merge",
            value: format!("{}: {error}", path.display()),
            want: "a folder that --out wrote".to_owned(),
        })
    }

    /// The folder has results of another kind.
    pub(crate) fn no_sweep() -> GridError {
        let value = "the first folder: results of `merge`".to_owned();
        GridError { field: "merge", value, want: "folders that shards of a sweep wrote".to_owned() }
    }

    /// Says what is wrong with the folders.
    pub(crate) fn refuse(&self, error: &GridError) -> ExitCode {
        refuse(self.json, error)
    }

    /// Makes `args`, which were read from there, those of the joined sweep.
    pub(crate) fn join(self, args: &mut SweepArgs) {
        (args.resume, args.shard, args.json) = (false, None, self.json);
        (args.out, args.merged) = (Some(self.out), self.folders);
    }
}

/// What a sweep leaves: names and texts of files, and what is printed last.
#[derive(Debug)]
pub(crate) struct SweepEnd {
    pub(crate) files: Vec<(String, String)>,
    /// Line of JSON behind all cells.
    pub(crate) json: Option<Value>,
    /// Line of text behind the table.
    pub(crate) text: String,
}

/// A sweep at work: it prints cells as they come.
#[derive(Debug)]
pub(crate) struct RunningSweep<'a> {
    args: &'a SweepArgs,
    pub(crate) sweep: Sweep,
    pub(crate) bar: ProgressBar,
    /// Lines of `cells.jsonl` so far.
    lines: String,
    /// Whether all of them could be printed.
    printed: bool,
}

impl SweepArgs {
    /// Opens the sweep: folders and options are checked before anything runs. `runs` of a unit are its progress.
    pub(crate) fn open(&self, runs: u64, unit: &str) -> Result<RunningSweep<'_>, GridError> {
        if self.workers == Some(0) {
            let (value, want) = ("0".to_owned(), "at least 1".to_owned());
            return Err(GridError { field: "workers", value, want });
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let mut sweep = Sweep::plain(self.workers.unwrap_or(cores));
        if let Some(shard) = &self.shard {
            sweep.shard = Shard::parse(shard)?;
        }
        if let Some(folder) = &self.out {
            sweep.store = RunStore::open(folder, self.resume)?;
            save_arguments(folder)?;
        }
        for folder in &self.merged {
            sweep.store.add(folder)?;
        }
        sweep.is_merged = !self.merged.is_empty();
        let bar = ProgressBar::new(runs / sweep.shard.of as u64);
        let template = format!("{{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Ok(RunningSweep { args: self, sweep, bar, lines: String::new(), printed: true })
    }

    /// Whether results are kept.
    pub(crate) const fn has_folder(&self) -> bool {
        self.out.is_some()
    }

    /// Whether only a part of the sweep runs.
    pub(crate) const fn is_divided(&self) -> bool {
        self.shard.is_some()
    }

    /// Says what is wrong with an option.
    pub(crate) fn refuse(&self, error: &GridError) -> ExitCode {
        refuse(self.json, error)
    }
}

/// Says what is wrong with an option, and with JSON as a line of it too.
pub(crate) fn refuse(is_json: bool, error: &GridError) -> ExitCode {
    if is_json {
        let GridError { field, value, want } = error;
        let line = json!({ "kind": "error", "field": field, "value": value, "want": want });
        say(&line.to_string());
    }
    complain(&error.to_string());
    ExitCode::from(2)
}

impl RunningSweep<'_> {
    /// What prints a cell: its JSON with what it is the result of, or its row of the table.
    pub(crate) fn printer(&mut self) -> (&mut Sweep, CellPrinter<'_>) {
        let Self { args, sweep, bar, lines, printed } = self;
        let printer = CellPrinter {
            is_json: args.json,
            is_quiet: sweep.shard != Shard::WHOLE,
            bar,
            lines,
            printed,
        };
        (sweep, printer)
    }

    /// Writes the folder's files; the lines of all cells are among them.
    pub(crate) fn end(self, made: impl FnOnce() -> Result<SweepEnd, Box<dyn Error>>) -> ExitCode {
        self.bar.finish_and_clear();
        let folder = self.args.out.as_deref();
        let shard = self.sweep.shard;
        if let (Some(folder), true) = (folder, shard != Shard::WHOLE) {
            let Shard { number, of } = shard;
            let text = format!(
                "shard {number}/{of} is in {}: urma-lab merge joins all of them",
                folder.display()
            );
            return complain(&text);
        }
        let failed = |error: Box<dyn Error>| {
            let folder =
                folder.map_or_else(String::new, |folder| format!("{}: ", folder.display()));
            complain(&format!("{folder}{error}"));
            ExitCode::from(1)
        };
        let SweepEnd { mut files, json, text } = match made() {
            Ok(end) => end,
            Err(error) => return failed(error),
        };
        let last = json.map_or_else(String::new, |mut json| {
            json["commit"] = json!(env!("URMA_LAB_COMMIT"));
            format!("{json}\n")
        });
        files.push(("cells.jsonl".to_owned(), self.lines + &last));
        for (name, text) in files.iter().take_while(|_| folder.is_some()) {
            let path = folder.unwrap_or_else(|| Path::new("")).join(name);
            if let Err(error) = fs::write(path, text) {
                return failed(error.into());
            }
        }
        let said = match (self.args.json, last.is_empty(), text.is_empty()) {
            (true, false, _) => say(last.trim_end()),
            (false, _, false) => say(&text),
            _ => ExitCode::SUCCESS,
        };
        if self.printed { said } else { ExitCode::from(1) }
    }
}

/// Prints cells of a sweep as they come.
#[derive(Debug)]
pub(crate) struct CellPrinter<'a> {
    is_json: bool,
    is_quiet: bool,
    bar: &'a ProgressBar,
    lines: &'a mut String,
    printed: &'a mut bool,
}

impl CellPrinter<'_> {
    /// The head of the table.
    pub(crate) fn head(&mut self, text: &str) {
        if !self.is_json && !self.is_quiet {
            self.print(text);
        }
    }

    fn print(&mut self, text: &str) {
        *self.printed &= self.bar.suspend(|| say(text)) == ExitCode::SUCCESS;
    }

    /// A cell: the line of JSON, to which the hash of its results and the commit of the program are added, and the row.
    pub(crate) fn cell(&mut self, mut line: Value, hash: &str, row: &str) {
        if self.is_quiet {
            return;
        }
        line["hash"] = json!(hash);
        line["commit"] = json!(env!("URMA_LAB_COMMIT"));
        let line = line.to_string();
        self.lines.push_str(&line);
        self.lines.push('\n');
        let shown = if self.is_json { &line } else { row };
        if !shown.is_empty() {
            self.print(shown);
        }
    }

    /// Counts a run that ended.
    pub(crate) fn run(&self) {
        self.bar.inc(1);
    }
}

/// Keeps the arguments of this program in its folder, for `merge`.
fn save_arguments(folder: &Path) -> Result<(), GridError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = folder.join(ARGUMENTS);
    fs::write(&path, json!(args).to_string()).map_err(|error| GridError {
        field: "out",
        value: format!("{}: {error}", path.display()),
        want: "a folder that can be written".to_owned(),
    })
}

/// Prints a text at once.
pub(crate) fn say(text: &str) -> ExitCode {
    let mut out = io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that left, such as `head`, is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(1),
    }
}

/// Says something beside the results.
pub(crate) fn complain(text: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "urma-lab: {text}");
    ExitCode::SUCCESS
}
