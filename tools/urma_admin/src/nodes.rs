//! The nodes of this host.
//!
//! *Owns*: finding and asking them, which of them a word means. *Gives*: documents, as the nodes
//! wrote them. *Must not*: trust their shape.

use std::io;

use serde_json::Value;
use ubcore_sim::host::{eid_ip, inspect};
use udma_abi::RawEid;

/// A node that answered, or did not.
#[derive(Clone, Debug)]
pub(crate) struct AskedNode {
    /// EID of the node.
    pub(crate) eid: RawEid,
    /// Its document; `None` with the reason in `silent`.
    pub(crate) document: Option<Value>,
    /// Reason for which it sent no document.
    pub(crate) silent: Option<String>,
}

/// Why no node is meant.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SelectError {
    /// The list cannot be had.
    #[error("the nodes of this host cannot be listed: {0}")]
    List(#[from] io::Error),
    /// No node fits the choice of the command line.
    #[error("no node of this host is {0:?}")]
    Unknown(String),
    /// More than one node fits the choice of the command line.
    #[error("{0} nodes fit: name one by its EID or process id")]
    Several(usize),
    /// No node on this host answers.
    #[error("there is no node on this host that answers")]
    None,
    /// It does not answer.
    #[error("node {0}: {1}")]
    Silent(String, String),
}

impl AskedNode {
    fn ask(eid: RawEid) -> Self {
        let silent = |error: io::Error| {
            let why = match error.kind() {
                io::ErrorKind::TimedOut => "it does not answer; is it stopped?".to_owned(),
                io::ErrorKind::NotFound => "it is gone".to_owned(),
                _ => error.to_string(),
            };
            Self { eid, document: None, silent: Some(why) }
        };
        let (pid, text) = match inspect::ask(eid) {
            Ok(answer) => answer,
            Err(error) => return silent(error),
        };
        match serde_json::from_str::<Value>(&text) {
            Ok(mut document) => {
                document["command"] = Value::from(command(pid));
                Self { eid, document: Some(document), silent: None }
            }
            Err(error) => silent(error.into()),
        }
    }

    /// Its EID as people write it.
    pub(crate) fn name(&self) -> String {
        eid_ip(self.eid).to_string()
    }

    /// Whether `word` means it: device name, EID or process id.
    fn is_meant(&self, word: &str) -> bool {
        let is = |key: &str| {
            self.document.as_ref().is_some_and(|document| match &document[key] {
                Value::String(text) => text == word,
                Value::Number(number) => word.parse() == Ok(number.as_u64().unwrap_or(u64::MAX)),
                _ => false,
            })
        };
        self.name() == word || is("device") || is("pid")
    }
}

/// All nodes, or those that `word` means.
///
/// # Errors
/// The list cannot be had; no node fits.
pub(crate) fn all(word: Option<&str>) -> Result<Vec<AskedNode>, SelectError> {
    let nodes: Vec<AskedNode> = inspect::nodes()?.into_iter().map(AskedNode::ask).collect();
    let Some(word) = word else { return Ok(nodes) };
    let meant: Vec<AskedNode> = nodes.into_iter().filter(|node| node.is_meant(word)).collect();
    if meant.is_empty() { Err(SelectError::Unknown(word.to_owned())) } else { Ok(meant) }
}

/// The one node that `word` means, or the only one that answers.
///
/// # Errors
/// None or several; it does not answer.
pub(crate) fn one(word: Option<&str>) -> Result<(AskedNode, Value), SelectError> {
    let mut nodes = all(word)?;
    if word.is_none() {
        nodes.retain(|node| node.document.is_some());
    }
    if nodes.len() > 1 {
        return Err(SelectError::Several(nodes.len()));
    }
    let node = nodes.pop().ok_or(SelectError::None)?;
    match node.document.clone() {
        Some(document) => Ok((node, document)),
        None => {
            let why = node.silent.clone().unwrap_or_default();
            Err(SelectError::Silent(node.name(), why))
        }
    }
}

/// The name of a process.
pub(crate) fn command(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}
