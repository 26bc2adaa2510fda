//! `urma-lab sweep`: a sweep that a file describes, run here or by Slurm.
//!
//! - owns: the file's format, the batch scripts. takes: a file of TOML. gives: the arguments of an experiment, or submitted jobs.
//! - must not: know what options an experiment has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use lab::units::GridError;
use toml::{Table, Value};

/// Options of a sweep that its file must not have.
const NOT_IN_FILES: [&str; 4] = ["out", "resume", "shard", "json"];
/// Most tasks of an array: Slurm's usual limit.
const SHARDS_MAX: u32 = 1000;

/// Arguments of `urma-lab sweep`.
#[derive(Args, Debug)]
pub(crate) struct SweepFileArgs {
    /// File of TOML: `experiment = "wan"`, and options of that experiment such as `loss = ["iid:0.01", "ge:0.01"]`.
    file: PathBuf,
    /// Folder for the results.
    #[arg(long)]
    out: PathBuf,
    /// Who runs the sweep.
    #[arg(long, value_enum, default_value_t = Executor::Local)]
    executor: Executor,
    /// Tasks of the array that Slurm runs, each a shard; a job behind them joins their results.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    shards: u32,
    /// Write the batch scripts, and submit nothing.
    #[arg(long)]
    no_submit: bool,
    /// One JSON object per cell instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Executor {
    /// This program, which goes on where an earlier run of the sweep ended.
    Local,
    /// An array of jobs, submitted by sbatch.
    Slurm,
}

impl SweepFileArgs {
    /// Whether others run it.
    pub(crate) fn is_submitted(&self) -> bool {
        self.executor == Executor::Slurm
    }

    /// Where results of a run here go; an earlier run of the same sweep goes on.
    pub(crate) fn place(&self) -> Vec<String> {
        let out = self.out.display().to_string();
        let mut place = vec!["--out".to_owned(), out, "--resume".to_owned()];
        place.extend(self.json.then(|| "--json".to_owned()));
        place
    }

    /// Arguments of the experiment that the file describes.
    pub(crate) fn arguments(&self) -> Result<Vec<String>, GridError> {
        let name = self.file.display();
        let wrong = |what: String, want: &str| GridError {
            field: "sweep",
            value: format!("{name}: {what}"),
            want: want.to_owned(),
        };
        let text = fs::read_to_string(&self.file)
            .map_err(|error| wrong(error.to_string(), "a file that can be read"))?;
        let mut table: Table = text.parse().map_err(|error| wrong(format!("{error}"), "TOML"))?;
        let want = "experiment = \"wan\", \"cache\", \"splice\" or \"node\"";
        let experiment = match table.remove("experiment") {
            Some(Value::String(name))
                if ["wan", "cache", "splice", "node"].contains(&name.as_str()) =>
            {
                name
            }
            Some(other) => return Err(wrong(format!("experiment = {other:?}"), want)),
            None => return Err(wrong("no experiment".to_owned(), want)),
        };
        let mut arguments = vec![experiment];
        for (option, value) in table {
            if NOT_IN_FILES.contains(&option.as_str()) {
                return Err(wrong(
                    option,
                    "options of the experiment; this one is the command line's",
                ));
            }
            let value = match value {
                Value::Boolean(false) => continue,
                Value::Boolean(true) => None,
                Value::Array(values) => {
                    let texts: Option<Vec<String>> = values.iter().map(plain).collect();
                    Some(texts.map(|texts| texts.join(",")))
                }
                value => Some(plain(&value)),
            };
            let want = "a text, a number, true or false, or a list of texts and numbers";
            let value = value.map(|value| value.ok_or_else(|| wrong(option.clone(), want)));
            arguments.push(format!("--{option}"));
            arguments.extend(value.transpose()?);
        }
        Ok(arguments)
    }

    /// Writes both scripts and gives them to Slurm. Gives a text that says so.
    pub(crate) fn submit(&self, arguments: &[String]) -> Result<String, GridError> {
        let cannot = |error: io::Error| GridError {
            field: "out",
            value: format!("{}: {error}", self.out.display()),
            want: "a folder that can be written".to_owned(),
        };
        fs::create_dir_all(&self.out).map_err(cannot)?;
        // Jobs start in a folder of Slurm's choice.
        let folder = self.out.canonicalize().map_err(cannot)?;
        let program = std::env::current_exe().map_err(cannot)?;
        let scripts = BatchScripts::new(&program, &folder, arguments, self.shards);
        let (array, merge) = (folder.join("sweep.sbatch"), folder.join("merge.sbatch"));
        fs::write(&array, scripts.array).map_err(cannot)?;
        fs::write(&merge, scripts.merge).map_err(cannot)?;
        if self.no_submit {
            return Ok(format!("written: {} and {}", array.display(), merge.display()));
        }
        let array = sbatch(&["--parsable"], &array)?;
        let after = format!("--dependency=afterok:{array}");
        let merge = sbatch(&["--parsable", "--kill-on-invalid-dep=yes", &after], &merge)?;
        let (shards, folder) = (self.shards, folder.display());
        Ok(format!(
            "submitted: job {array} runs {shards} shards, job {merge} joins them in {folder}"
        ))
    }
}

/// A value as an option's; `None`: it has no such form.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Texts of the jobs.
#[derive(Debug)]
struct BatchScripts {
    array: String,
    merge: String,
}

impl BatchScripts {
    fn new(program: &Path, folder: &Path, arguments: &[String], shards: u32) -> Self {
        let program = quoted(&program.display().to_string());
        let place = folder.display().to_string();
        let arguments: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
        let (arguments, last) = (arguments.join(" "), shards - 1);
        let head = "#!/bin/bash\n#SBATCH --job-name=urma-lab\n#SBATCH --ntasks=1\n";
        // A task that is requeued goes on with its runs.
        let array = format!(
            "{head}#SBATCH --array=0-{last}\n#SBATCH --output={place}/shard-%a.log\n\
             exec {program} {arguments} --shard \"$SLURM_ARRAY_TASK_ID/{shards}\" \\\n  \
             --out {}/\"shard-$SLURM_ARRAY_TASK_ID\" --resume\n",
            quoted(&place)
        );
        let parts: Vec<String> =
            (0..shards).map(|shard| quoted(&format!("{place}/shard-{shard}"))).collect();
        let merge = format!(
            "{head}#SBATCH --output={place}/merge.log\nexec {program} merge --out {} {}\n",
            quoted(&place),
            parts.join(" ")
        );
        Self { array, merge }
    }
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Submits a script. Gives the number of its job.
fn sbatch(options: &[&str], script: &Path) -> Result<String, GridError> {
    let wrong = |value: String| GridError {
        field: "executor",
        value,
        want: "a cluster that takes jobs by sbatch, or --executor local".to_owned(),
    };
    let output = Command::new("sbatch").args(options).arg(script).output();
    let output = output.map_err(|error| wrong(format!("sbatch: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(wrong(format!("sbatch: {said}")));
    }
    // With several clusters its name follows.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.trim().split(';').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_take_their_words_as_they_are() {
        let arguments = ["wan", "--loss", "it's; $HOME"].map(str::to_owned);
        let scripts = BatchScripts::new(Path::new("/a b/urma-lab"), Path::new("/o"), &arguments, 2);
        let wanted = "exec '/a b/urma-lab' 'wan' '--loss' 'it'\\''s; $HOME' --shard \"$SLURM_ARRAY_TASK_ID/2\"";
        assert!(scripts.array.contains(wanted), "{}", scripts.array);
        assert!(scripts.array.contains("#SBATCH --array=0-1\n"));
        let wanted = "exec '/a b/urma-lab' merge --out '/o' '/o/shard-0' '/o/shard-1'\n";
        assert!(scripts.merge.ends_with(wanted), "{}", scripts.merge);
    }
}
