//! Settings of a node by file and environment, each with where it was set.
//!
//! *Owns*: the names of settings, the files that are read. *Takes*: TOML, variables. *Gives*: values as
//! text. *Must not*: judge a value; [`super::NodeCfg`] does.

use std::{
    borrow::Cow,
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};
use urma_mem::environment;

/// Setting of a node: its value, and where it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Variable of the environment.
    pub variable: &'static str,
    /// Key in a file.
    pub key: &'static str,
    /// Value in the form that the variable takes.
    pub value: String,
    /// Where the value was set.
    pub origin: SettingOrigin,
}

impl Setting {
    fn of(&(variable, key, value): &(&'static str, &'static str, &str)) -> Self {
        Self { variable, key, value: value.to_owned(), origin: SettingOrigin::Default }
    }

    /// The error that this value is not what it must be: the setting's, or a part of it.
    pub fn refuse(&self, value: String, wanted: impl Into<Cow<'static, str>>) -> ConfigError {
        let (name, at) = match &self.origin {
            SettingOrigin::File(..) => (self.key, Some(self.origin.to_string())),
            SettingOrigin::Default | SettingOrigin::Environment => (self.variable, None),
        };
        ConfigError { name, value, wanted: wanted.into(), at }
    }
}

/// Where a setting was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingOrigin {
    /// It was not set.
    Default,
    /// In this line of a file, from 1 on.
    File(PathBuf, usize),
    /// In a variable of the environment.
    Environment,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment => f.write_str("environment"),
        }
    }
}

/// Reads all settings: of `/etc/urma/urma.toml`, then `$XDG_CONFIG_HOME/urma/urma.toml` (or
/// `~/.config/urma/urma.toml`), or only of the file that `URMA_CONFIG` names, then of the environment. What comes
/// later goes before what came earlier. A process with more rights than its caller ([`environment::more_rights`]) reads the
/// first file only.
///
/// # Errors
/// [`ConfigError`] naming file, line and key.
pub fn settings() -> Result<Vec<Setting>, ConfigError> {
    let variable = |name: &str| environment::variable(name).filter(|value| !value.is_empty());
    let mut all = defaults();
    for (path, whose) in files(variable) {
        if let Some(text) = whose.text(&path)? {
            read(&mut all, &path, &text)?;
        }
    }
    for setting in &mut all {
        if let Some(value) = environment::variable(setting.variable) {
            setting.value = value.to_string_lossy().into_owned();
            setting.origin = SettingOrigin::Environment;
        }
    }
    Ok(all)
}

/// Who wants a file to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileOwner {
    /// Who started the program: the file is there.
    Caller,
    /// The host's administrator: it may not be there; one that cannot be read is an error.
    Host,
    /// The user, whose home may be that of another one (`setpriv`), or none (`/dev/null`).
    User,
}

impl FileOwner {
    /// The text of the file; `None`: there is none to read.
    fn text(self, path: &Path) -> Result<Option<String>, ConfigError> {
        let error = match fs::read_to_string(path) {
            Ok(text) => return Ok(Some(text)),
            Err(error) => error,
        };
        let is_absent = error.kind() == io::ErrorKind::NotFound;
        let is_beyond =
            matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory);
        match self {
            Self::Host | Self::User if is_absent => return Ok(None),
            Self::User if is_beyond => {
                tracing::debug!(path = %path.display(), %error, "no settings are read there");
                return Ok(None);
            }
            Self::Caller | Self::Host | Self::User => {}
        }
        let (value, wanted) = (format!("{}: {error}", path.display()), "a file that can be read");
        Err(ConfigError { name: FILE, value, wanted: wanted.into(), at: None })
    }
}

/// Files in the order in which they are read. Those of the user are found by variables alone.
fn files(variable: impl Fn(&str) -> Option<OsString>) -> Vec<(PathBuf, FileOwner)> {
    if let Some(path) = variable(FILE) {
        return vec![(path.into(), FileOwner::Caller)];
    }
    let home = || Some(PathBuf::from(variable("HOME")?).join(".config"));
    let user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = user.map(|folder| folder.join("urma/urma.toml"));
    let host = (PathBuf::from(SYSTEM_FILE), FileOwner::Host);
    [host].into_iter().chain(user.map(|path| (path, FileOwner::User))).collect()
}

fn defaults() -> Vec<Setting> {
    SETTINGS.iter().map(Setting::of).collect()
}

/// Settings of models of a NIC's insides, which the device does not read.
pub(super) fn model_defaults() -> impl Iterator<Item = Setting> {
    defaults().into_iter().filter(|setting| MODELS.contains(&setting.variable))
}

/// Takes the settings of one file.
fn read(all: &mut [Setting], path: &Path, text: &str) -> Result<(), ConfigError> {
    let line_of =
        |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
    let refuse = |at: usize, name, value: String, wanted: &'static str| ConfigError {
        name,
        value,
        wanted: wanted.into(),
        at: Some(format!("{}:{}", path.display(), line_of(at))),
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        refuse(at, "text", error.message().to_owned(), "TOML")
    })?;
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        let Some(setting) = all.iter_mut().find(|setting| setting.key == key.get_ref().as_ref())
        else {
            return Err(refuse(at, "key", key.get_ref().to_string(), KEYS));
        };
        setting.value = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Boolean(true) => "on".to_owned(),
            DeValue::Boolean(false) => "off".to_owned(),
            DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                let wanted = "a text, an integer, true or false";
                return Err(refuse(at, setting.key, text[value.span()].to_owned(), wanted));
            }
        };
        setting.origin = SettingOrigin::File(path.to_owned(), line_of(at));
    }
    Ok(())
}

/// Variables of those of models.
const MODELS: [&str; 3] = ["URMA_CONTEXT_CACHE", "URMA_PACKET_ENGINE", "URMA_PACKET_ENGINE_CFG"];
/// Variable, key and default of each setting.
const SETTINGS: [(&str, &str, &str); 27] = [
    ("URMA_EID", "eid", "the host's address if it is free, else random"),
    ("URMA_PORTS", "ports", "none"),
    ("URMA_PORT_MODE", "port_mode", "active-backup"),
    ("URMA_PATH", "path", "auto"),
    ("URMA_PAGE_MOVING", "page_moving", "on"),
    ("URMA_HOLD_WRITERS", "hold_writers", "on"),
    ("URMA_HUGE_PAGES", "huge_pages", "off"),
    ("URMA_KERNEL_READS", "kernel_reads", "on"),
    ("URMA_SHARE_FILES", "share_files", "on"),
    ("URMA_FORK_COPIES", "fork_copies", "on"),
    ("URMA_SHARE_WITH", "share_with", "tracers"),
    ("URMA_LANE", "lane", "on"),
    ("URMA_DOORBELLS", "doorbells", "found"),
    ("URMA_CONTEXT_CACHE", "context_cache", "off"),
    ("URMA_PACKET_ENGINE", "packet_engine", "off"),
    ("URMA_PACKET_ENGINE_CFG", "packet_engine_cfg", "default"),
    ("URMA_PREPARE", "prepare", "4194304"),
    ("URMA_MTU", "mtu", "8192"),
    ("URMA_RC", "rc", "urma"),
    ("URMA_RC_MTU", "rc_mtu", "route"),
    ("URMA_TP_RECOVERY", "tp_recovery", "knitting"),
    ("URMA_TP_WINDOW", "tp_window", "auto"),
    ("URMA_TP_CONGESTION", "tp_congestion", "delay"),
    ("URMA_UDP_OFFLOAD", "udp_offload", "on"),
    ("URMA_LINK_FAULTS", "link_faults", "none"),
    ("URMA_VFIO", "vfio", "none"),
    ("URMA_UBCORED", "ubcored", "none"),
];
const KEYS: &str = "eid, ports, port_mode, path, page_moving, hold_writers, huge_pages, kernel_reads, share_files, fork_copies, share_with, lane, doorbells, \
                    context_cache, packet_engine, packet_engine_cfg, prepare, mtu, rc, rc_mtu, tp_recovery, tp_window, tp_congestion, \
                    udp_offload, link_faults, vfio or ubcored";
/// Variable with the path of the only file to read.
const FILE: &str = "URMA_CONFIG";
const SYSTEM_FILE: &str = "/etc/urma/urma.toml";

/// A value that no node can be opened with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{name} is {value:?}; it must be {wanted}", at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// Field or environment variable.
    pub name: &'static str,
    /// Value that was found in the environment.
    pub value: String,
    /// What it may say.
    pub wanted: Cow<'static, str>,
    /// File and line in which it was set.
    pub at: Option<String>,
}

impl ConfigError {
    /// A variable with a value that is not what it must be.
    pub(super) fn of(name: &'static str, value: String, wanted: &'static str) -> Self {
        Self { name, value, wanted: wanted.into(), at: None }
    }

    /// Addresses of further ports that are not possible.
    pub(super) fn ports(value: String) -> Self {
        let wanted = "at most 3 addresses of this host with commas, none of them twice or the EID";
        Self { name: "URMA_PORTS", value, wanted: wanted.into(), at: None }
    }

    /// The error with where the value was set.
    pub(super) fn located(self, settings: &[Setting]) -> Self {
        let is_named = |setting: &&Setting| [setting.variable, setting.key].contains(&self.name);
        match settings.iter().find(is_named) {
            Some(Setting { key, origin: origin @ SettingOrigin::File(..), .. }) => {
                Self { name: key, at: Some(origin.to_string()), ..self }
            }
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Setting>, ConfigError> {
        let mut all = defaults();
        read(&mut all, Path::new("/f.toml"), text).map(|()| all)
    }

    #[test]
    fn a_file_sets_what_it_names_with_its_line() {
        let all =
            read_text("# a comment\nmtu = 1024\n\neid = \"10.0.0.7\"\nlane = false\n").unwrap();
        let of = |key| all.iter().find(|setting| setting.key == key).unwrap();
        assert_eq!(
            (of("mtu").value.as_str(), of("mtu").origin.to_string()),
            ("1024", "/f.toml:2".into())
        );
        assert_eq!(
            (of("eid").value.as_str(), of("eid").origin.to_string()),
            ("10.0.0.7", "/f.toml:4".into())
        );
        assert_eq!(of("lane").value, "off");
        assert_eq!(of("path").origin, SettingOrigin::Default);
    }

    #[test]
    fn wrong_keys_and_text_are_named_with_file_and_line() {
        for (text, words) in [
            ("mtu = 1024\nmut = 5\n", &["/f.toml:2", "\"mut\"", "mtu"][..]),
            ("\n\nmtu = [1]\n", &["/f.toml:3", "mtu", "an integer"]),
            ("mtu = \n", &["/f.toml:1", "TOML"]),
            ("[node]\nmtu = 1\n", &["/f.toml:1", "\"node\""]),
        ] {
            let error = read_text(text).unwrap_err().to_string();
            for word in words {
                assert!(error.contains(word), "no {word} in: {error}");
            }
        }
    }

    #[test]
    fn without_variables_no_file_of_the_user_is_read() {
        let variable = |name: &str| {
            let known = [(FILE, "/x"), ("XDG_CONFIG_HOME", "/y"), ("HOME", "/z")];
            known.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        assert_eq!(files(variable), [("/x".into(), FileOwner::Caller)]);
        let host = (PathBuf::from(SYSTEM_FILE), FileOwner::Host);
        assert_eq!(files(|_| None), std::slice::from_ref(&host));
        let unset = |name: &str| variable(name).filter(|_| name != FILE);
        let user = (PathBuf::from("/y/urma/urma.toml"), FileOwner::User);
        assert_eq!(files(unset), [host, user]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_except_in_a_home_of_none() {
        use FileOwner::{Caller, Host, User};
        for (path, whose, is_error) in [
            ("/nowhere/urma.toml", User, false),
            ("/nowhere/urma.toml", Host, false),
            ("/nowhere/urma.toml", Caller, true),
            ("/dev/null/urma.toml", User, false),
            ("/dev/null/urma.toml", Host, true),
            ("/dev/null/urma.toml", Caller, true),
            ("/", User, true),
        ] {
            let text = whose.text(Path::new(path));
            assert_eq!(text.is_err(), is_error, "{path}: {text:?}");
            assert!(text.ok().flatten().is_none());
        }
    }

    #[test]
    fn every_default_is_what_a_node_is_opened_with() {
        for setting in defaults().iter().filter(|setting| setting.key != "eid") {
            let value = OsString::from(&setting.value);
            let cfg = super::super::NodeCfg::default();
            let same = cfg
                .clone()
                .with_overrides(|name| (name == setting.variable).then(|| value.clone()));
            assert_eq!(same.unwrap(), cfg, "{}", setting.key);
        }
    }
}
