//! What the examples share: two nodes in this process, and what a program makes on each.
//!
//! *Owns*: the set-up of an end. *Takes*: nothing. *Gives*: two `NodeJetty`s.
//! *Must not*: hide what the single examples are about.
#![forbid(unsafe_code)]

use std::{error::Error, time::Duration};

use urma::{
    Completion, Completions, Context, Jetty, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, NodeCfg,
    Region, Segment, SegmentAccess, SegmentCfg, Token, TransportMode,
};

/// What an example ends with.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of memory that each end registers.
pub const MEMORY_LEN: usize = 4096;

/// A jetty with its memory, on a node of its own.
#[derive(Debug)]
pub struct NodeJetty {
    /// Jetty of the example, in the mode RM.
    pub jetty: Jetty,
    /// Completions of both halves of the jetty.
    pub completions: Completions,
    /// The memory, registered: peers with the token may read, write and do atomics.
    pub segment: Segment,
    /// Memory of the segment, of this process.
    pub memory: Region,
    /// Open device of this end's own node.
    pub context: Context,
}

impl NodeJetty {
    /// A node of its own, a device on it, a jetty and a page of memory.
    ///
    /// # Errors
    /// What could not be opened, saying why.
    pub fn open(name: &str) -> Outcome<Self> {
        let cfg = NodeCfg { name: name.to_owned(), ..NodeCfg::from_env()? };
        let context = urma::open_node(cfg)?.context;
        let completions = context.create_completions(&JfcCfg::new(64))?;

        let (jfc, mode) = (completions.jfc(), TransportMode::Rm);
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
        let send = JfsCfg { max_sge: 2, ..JfsCfg::new(mode, 16) };
        let jetty = context.create_jetty(&JettyCfg::new(send, jfc, recv))?;

        let memory = Region::private(MEMORY_LEN)?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0x5eed));
        let segment = context.register(&memory, &cfg, None)?;
        Ok(Self { jetty, completions, segment, memory, context })
    }

    /// The next completion, of a request that did what it was asked to.
    ///
    /// # Errors
    /// The request failed; none came within ten seconds.
    pub fn done(&mut self) -> Outcome<Completion> {
        let come = self.completions.wait(Some(Duration::from_secs(10)))?;
        Ok(come.ok_or("no completion came")?.success()?)
    }
}
