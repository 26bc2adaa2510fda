//! Manual pages and completions of a tool, made of its own command line.
//!
//! *Owns*: names and kinds of the files. *Takes*: `--generate DIR`. *Gives*: files in `DIR`.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use clap::Command;
use clap_complete::{Shell, generate_to};

/// With the arguments `--generate DIR`: writes the manual page `NAME.1` of each of `commands`
/// (main command first) and the completions `NAME.bash`, `_NAME`, `NAME.fish` of the main one into
/// `DIR`. Returns whether that was asked for.
///
/// # Errors
/// The system's, when a file cannot be written.
pub fn generate_if_asked(commands: Vec<Command>) -> io::Result<bool> {
    let mut args = std::env::args_os().skip(1);
    let (Some(option), Some(dir), None) = (args.next(), args.next(), args.next()) else {
        return Ok(false);
    };
    if option != "--generate" {
        return Ok(false);
    }
    generate(commands, &PathBuf::from(dir))?;
    Ok(true)
}

fn generate(commands: Vec<Command>, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (index, mut command) in commands.into_iter().enumerate() {
        let name = command.get_name().to_owned();
        let mut page = File::create(dir.join(format!("{name}.1")))?;
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        if index == 0 {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                generate_to(shell, &mut command, &name, dir)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_gets_a_page_and_three_completions() {
        let dir = std::env::temp_dir().join(format!("urma-pages-{}", std::process::id()));
        let command = Command::new("tool").arg(clap::Arg::new("size").long("size").help("Bytes"));
        generate(vec![command, Command::new("tool-other")], &dir).unwrap();
        for name in ["tool.1", "tool.bash", "_tool", "tool.fish", "tool-other.1"] {
            let text = fs::read_to_string(dir.join(name)).unwrap();
            assert!(name.ends_with("other.1") || text.contains("size"), "{name}: {text}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
