//! The nodes of this host.
//!
//! *Owns*: finding and asking them, which of them a word means. *Gives*: documents, as the nodes
//! wrote them. *Must not*: trust their shape.

use std::io;

use serde_json::Value;
use ubcore_sim::host::{eid_ip, inspect};
use udma_abi::RawEid;
use urma_tools::shown;

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
        match inspect::ask(eid) {
            Ok((pid, text)) => Self::answered(eid, pid, &text),
            Err(error) => silent(error),
        }
    }

    /// A node whose process answered so. Only an object is a document: another process may write anything.
    fn answered(eid: RawEid, pid: u32, text: &str) -> Self {
        let why = match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(mut document)) => {
                document.insert("command".to_owned(), Value::from(command(pid)));
                let document = Some(plain(Value::Object(document)));
                return Self { eid, document, silent: None };
            }
            Ok(_) => "its answer is no document".to_owned(),
            Err(error) => format!("its answer is no document: {error}"),
        };
        Self { eid, document: None, silent: Some(why) }
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
    only(nodes)
}

/// The node of a list of one, if it answers.
fn only(mut nodes: Vec<AskedNode>) -> Result<(AskedNode, Value), SelectError> {
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

/// A document whose texts are one line each, and only text: its process chose them, its name among them.
pub(crate) fn plain(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(shown(&text)),
        Value::Array(all) => Value::Array(all.into_iter().map(plain).collect()),
        Value::Object(members) => Value::Object(
            members.into_iter().map(|(key, value)| (shown(&key), plain(value))).collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => document,
    }
}

/// The name of a process.
pub(crate) fn command(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EID: RawEid = RawEid([0; 16]);

    #[test]
    fn only_an_object_is_a_document() {
        let node =
            AskedNode::answered(EID, std::process::id(), r#"{ "device": "udma0", "pid": 7 }"#);
        let document = node.document.as_ref().expect("a document");
        assert_eq!((&document["device"], node.silent.as_deref()), (&"udma0".into(), None));
        assert_eq!(document["command"].as_str(), Some(command(std::process::id()).as_str()));
        assert!(["udma0", "7", "::"].iter().all(|word| node.is_meant(word)));
        assert!(!["udma", "70", "-", ""].iter().any(|word| node.is_meant(word)));
        for text in ["3", "null", "[]", "\"document\"", "true", "", "{", "{} {}", "HTTP/1.0 200 OK"]
        {
            let node = AskedNode::answered(EID, 1, text);
            assert!(node.document.is_none(), "{text}");
            assert!(
                node.silent.is_some_and(|why| why.starts_with("its answer is no document")),
                "{text}"
            );
        }
    }

    #[test]
    fn one_node_is_neither_none_nor_several_and_answers() {
        let of = |last: u8, text: &str| {
            AskedNode::answered(ubcore_sim::host::ip_eid([127, 1, 1, last].into()), 1, text)
        };
        let refused = |nodes| only(nodes).map(|_| ()).expect_err("not one").to_string();
        assert!(matches!(only(Vec::new()), Err(SelectError::None)));
        let (node, document) = only(vec![of(3, r#"{ "pid": 7 }"#)]).expect("one");
        assert_eq!((node.name().as_str(), &document["pid"]), ("127.1.1.3", &7.into()));
        for count in [2, 3] {
            let nodes = (0..count).map(|last| of(last, r#"{ "pid": 7 }"#)).collect();
            let why = refused(nodes);
            assert!(why.starts_with(&format!("{count} nodes fit")), "{why}");
        }
        let why = refused(vec![of(4, "3")]);
        assert!(why.starts_with("node 127.1.1.4: its answer is no document"), "{why}");
    }

    #[test]
    fn texts_of_a_document_are_one_line_and_only_text() {
        let text = r#"{ "device": "udma0\nudma1", "a\u001b[2J": [{ "why": "\u001b]0;x\u0007" }] }"#;
        let node = AskedNode::answered(EID, std::process::id(), text);
        let document = node.document.expect("a document");
        assert_eq!(document["device"], "udma0\\u000audma1");
        assert_eq!(document["a\\u001b[2J"][0]["why"], "\\u001b]0;x\\u0007");
    }
}
