//! A node, a jetty and its memory; the peer's, imported.
//!
//! *Owns*: the composition of node, driver and API; the line that one process sends the other.
//! *Must not*: post.

use std::{
    error::Error,
    net::IpAddr,
    str::{FromStr, SplitWhitespace},
};

use urma_core::{
    Context, Eid, ImportedSegment, Jetty, JettyCfg, JettyId, JettyRecv, Jfc, JfcCfg, JfrCfg,
    JfsCfg, Mapping, RemoteJetty, RemoteSegment, Segment, SegmentAccess, SegmentCfg, Status,
    TargetJetty, Token, TokenId, TokenPolicy, TransportMode, Ubva,
};
use urma_mem::Region;

/// What a worker fails with.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Guards the segments: any number will do.
const TOKEN: Token = Token::new(0x6275_6467);
/// Bytes of registered memory: a page.
const MEMORY_LEN: usize = 4096;
/// Requests that a queue holds.
const DEPTH: u32 = 64;

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) jetty: Jetty,
    pub(crate) jfc: Jfc,
    pub(crate) segment: Segment,
    pub(crate) memory: Region,
    context: Context,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) target: TargetJetty,
    pub(crate) segment: ImportedSegment,
}

impl End {
    /// A node of its own with a jetty and a page of memory, reached without packets.
    pub(crate) fn open() -> Outcome<Self> {
        let context = urma::open()?;
        let jfc = context.create_jfc(&JfcCfg::new(4 * DEPTH), None)?;
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, DEPTH), jfc: &jfc };
        let send = JfsCfg::new(mode, DEPTH);
        let jetty = context.create_jetty(&JettyCfg::new(send, &jfc, recv))?;
        let memory = Region::private(MEMORY_LEN)?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(TOKEN);
        let segment = context.register(&memory, &cfg, None)?;
        Ok(Self { jetty, jfc, segment, memory, context })
    }

    /// What the peer needs: EID, UASID, jetty, address, token id.
    pub(crate) fn line(&self) -> Outcome<String> {
        let JettyId { eid, uasid, id } = self.jetty.remote().id;
        let (va, token_id) = (self.segment.va(), self.segment.token_id().value());
        Ok(format!("{} {uasid} {id} {va} {token_id}", eid.to_ip()))
    }

    /// The peer's objects, from its line.
    pub(crate) fn import(&self, line: &str) -> Outcome<Peer> {
        let mut words = line.split_whitespace();
        let eid = Eid::from(next::<IpAddr>(&mut words)?);
        let (uasid, id) = (next(&mut words)?, next(&mut words)?);
        let (va, token_id) = (next(&mut words)?, TokenId::new(next(&mut words)?));
        let here = self.jetty.remote();
        let jetty = RemoteJetty { id: JettyId { eid, uasid, id }, ..here };
        let memory = RemoteSegment {
            ubva: Ubva { eid, uasid, va },
            len: u64::try_from(MEMORY_LEN)?,
            token_id,
            policy: TokenPolicy::PlainText(TOKEN),
            access: SegmentAccess::REMOTE_ALL,
        };
        let target = reached(|| self.context.import_jetty(&jetty))?;
        let access = SegmentAccess::REMOTE_ALL;
        let import = || self.context.import_segment(&memory, access, Mapping::None);
        Ok(Peer { target, segment: reached(import)? })
    }
}

/// Returns the result of `import`, repeated while it times out: one attempt is too short for a peer
/// whose thread gets no core for a while.
fn reached<T>(import: impl Fn() -> Result<T, Status>) -> Outcome<T> {
    const ATTEMPTS: u32 = 30;
    for _ in 1..ATTEMPTS {
        match import() {
            Err(status) if status == Status::TimedOut => {}
            answer => return Ok(answer?),
        }
    }
    Ok(import()?)
}

/// The next word of the peer's line.
fn next<T>(words: &mut SplitWhitespace<'_>) -> Outcome<T>
where
    T: FromStr<Err: Error + 'static>,
{
    let word = words.next().ok_or("the peer's line is too short")?;
    Ok(word.parse()?)
}
