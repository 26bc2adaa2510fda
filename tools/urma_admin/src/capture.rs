//! `capture -w FILE`: the packets of a node, as any analyser opens them; `capture --contexts FILE`: what it looks up.
//!
//! *Owns*: the pcapng blocks (draft-ietf-opsawg-pcapng: section header, interface, enhanced packet),
//! the frames around packets, files of handles. *Takes*: records of a node's tap. *Gives*: a file.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    net::SocketAddr,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use ubcore_sim::host::{
    eid_ip, inspect,
    tap::{self, LookupRecord, TapRecord},
};
use udma_abi::RawEid;
use urma_packet::frame;

use crate::{cli::Capture, monitor::InterruptFlag};

/// UDP port of RoCEv2.
const PORT: u16 = 4791;
/// Longest packet of a node, with its record around it.
const RECORD_MAX: usize = 1 << 16;
/// Longest wait for one packet before other things are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Addresses of frames that never were on a wire: locally administered.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]];

/// What a capture gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CaptureSummary {
    /// Packets or lookups in the file.
    pub(crate) count: u64,
    /// Those that passed too fast.
    pub(crate) dropped: u64,
}

impl CaptureSummary {
    /// A line of text; `what` are packets or lookups.
    pub(crate) fn text(self, what: &str) -> String {
        format!("{} {what} captured, {} dropped\n", self.count, self.dropped)
    }

    /// The same as a JSON object.
    pub(crate) fn json(self, node: &str, what: &str, file: Option<&Path>) -> Value {
        let file = file.map(|file| file.display().to_string());
        json!({ "eid": node, what: self.count, "dropped": self.dropped, "file": file })
    }
}

/// What a file holds of the records of a node.
trait CaptureFile {
    /// Writes a record. How many packets or lookups it is, and how many were dropped since the capture began; `None`: it is
    /// none of either.
    fn take(&mut self, record: &[u8]) -> io::Result<Option<(u64, u64)>>;

    fn flush(&mut self) -> io::Result<()>;
}

/// Captures until the user, a count, a duration or the end of the node ends it.
///
/// # Errors
/// The node does not answer, or accounts no contexts; the file cannot be written.
pub(crate) fn capture(
    eid: RawEid,
    cfg: &Capture,
    interrupt: &InterruptFlag,
) -> io::Result<CaptureSummary> {
    if let Some(file) = &cfg.contexts {
        let socket = inspect::capture_contexts(eid)?;
        let mut lookups = Lookups { output: BufWriter::new(File::create(file)?), began: false };
        let captured = copy(&socket, cfg, interrupt, &mut lookups)?;
        return match lookups.began || interrupt.came() {
            true => Ok(captured),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, NO_MODEL)),
        };
    }
    let file = cfg.write.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
    let socket = inspect::capture(eid)?;
    let mut packets = Pcapng::new(BufWriter::new(File::create(file)?))?;
    copy(&socket, cfg, interrupt, &mut packets)
}

/// Why a node sends no lookups.
const NO_MODEL: &str = "it looked up no context: only a node that is opened with URMA_CONTEXT_CACHE=count accounts them";

fn copy(
    socket: &OwnedFd,
    cfg: &Capture,
    interrupt: &InterruptFlag,
    file: &mut dyn CaptureFile,
) -> io::Result<CaptureSummary> {
    let mut captured = CaptureSummary::default();
    let (start, mut buffer) = (now(), vec![0; RECORD_MAX]);
    loop {
        match tap::read(socket, &mut buffer, LOOK) {
            Ok(0) => file.flush()?,
            Ok(len) => {
                let record = buffer.get(..len).unwrap_or(&[]);
                if let Some((count, dropped)) = file.take(record)? {
                    (captured.count, captured.dropped) = (captured.count + count, dropped);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        let is_full = cfg.count != 0 && captured.count >= cfg.count;
        let is_late = cfg.duration > 0.0 && start.elapsed().as_secs_f64() >= cfg.duration;
        if is_full || is_late || interrupt.came() {
            break;
        }
    }
    file.flush()?;
    Ok(captured)
}

/// Writes handles of 32 bits, little-endian.
struct Lookups<W> {
    output: W,
    /// The node sent a record.
    began: bool,
}

impl<W: Write> CaptureFile for Lookups<W> {
    fn take(&mut self, record: &[u8]) -> io::Result<Option<(u64, u64)>> {
        let Some(LookupRecord { dropped, handles }) = LookupRecord::parse(record) else {
            return Ok(None);
        };
        self.began = true;
        for handle in &handles {
            self.output.write_all(&handle.to_le_bytes())?;
        }
        Ok(Some((handles.len() as u64, dropped)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl<W: Write> CaptureFile for Pcapng<W> {
    fn take(&mut self, record: &[u8]) -> io::Result<Option<(u64, u64)>> {
        let Some(record) = TapRecord::parse(record) else { return Ok(None) };
        Ok(Some((u64::from(self.record(&record)?), record.dropped)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[expect(clippy::disallowed_methods, reason = "a capture by duration owns a clock")]
fn now() -> Instant {
    Instant::now()
}

/// Writes a pcapng file with one Ethernet interface and nanosecond times.
struct Pcapng<W> {
    output: W,
}

impl<W: Write> Pcapng<W> {
    fn new(output: W) -> io::Result<Self> {
        let mut new = Self { output };
        // Section header: byte order, version 1.0, unknown section length.
        let mut section = Vec::new();
        section.extend(0x1a2b_3c4d_u32.to_le_bytes());
        section.extend([1, 0, 0, 0]);
        section.extend((-1_i64).to_le_bytes());
        new.block(0x0a0d_0d0a, &section)?;
        // Interface: Ethernet, any length; option 9 (if_tsresol) 10^-9 s, option 0 ends.
        let mut interface = Vec::new();
        interface.extend([1, 0, 0, 0]);
        interface.extend(0_u32.to_le_bytes());
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0]);
        interface.extend([0, 0, 0, 0]);
        new.block(1, &interface)?;
        Ok(new)
    }

    /// Writes one record; `false`: it is no packet that a frame could hold.
    fn record(&mut self, record: &TapRecord<'_>) -> io::Result<bool> {
        let ends = [record.from, record.to].map(|eid| SocketAddr::new(eid_ip(eid), PORT));
        let mut bytes = vec![0; frame::FRONT_MAX + record.packet.len()];
        let Ok(len) = frame::emit(MACS, ends[0], ends[1], record.packet, &mut bytes) else {
            return Ok(false);
        };
        bytes.truncate(len);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let mut packet = Vec::with_capacity(bytes.len() + 24);
        packet.extend(0_u32.to_le_bytes());
        packet.extend(u32::try_from(record.time_ns >> 32).unwrap_or(u32::MAX).to_le_bytes());
        packet.extend(u32::try_from(record.time_ns & 0xffff_ffff).unwrap_or(0).to_le_bytes());
        packet.extend(len.to_le_bytes());
        packet.extend(len.to_le_bytes());
        packet.extend(bytes);
        self.block(6, &packet)?;
        Ok(true)
    }

    /// A block: type, length, body padded to words, length again.
    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let padded = body.len().next_multiple_of(4);
        let total = u32::try_from(padded + 12).map_err(io::Error::other)?;
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&total.to_le_bytes())?;
        self.output.write_all(body)?;
        self.output.write_all(&[0; 4][..padded - body.len()])?;
        self.output.write_all(&total.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use urma_contexts::trace::read::TraceFormat;

    use super::*;

    #[test]
    fn lookups_are_a_trace_that_the_lab_reads() {
        let mut file = Lookups { output: Vec::new(), began: false };
        let wanted = [0x3000_0001, 0x4000_0000, 0x1000_0002, 0x3000_0001];
        for (dropped, handles) in [(0_u64, &wanted[..3]), (5, &wanted[3..])] {
            let mut record = dropped.to_le_bytes().to_vec();
            record.extend(handles.iter().flat_map(|handle: &u32| handle.to_le_bytes()));
            assert_eq!(file.take(&record).unwrap(), Some((handles.len() as u64, dropped)));
        }
        assert_eq!(file.take(&[0; 10]).unwrap(), None, "half a handle");
        let trace = TraceFormat::U32.read(&file.output).unwrap();
        assert_eq!((trace.handles(), trace.distinct()), (&wanted[..], 3));
    }

    /// A message of the tap.
    fn message(dropped: u64, packet: &[u8]) -> Vec<u8> {
        let eid = |last: u8| ubcore_sim::host::ip_eid([127, 1, 1, last].into()).0;
        let mut bytes = 5_u64.to_le_bytes().to_vec();
        bytes.extend(eid(1));
        bytes.extend(eid(2));
        bytes.extend(dropped.to_le_bytes());
        bytes.extend(packet);
        bytes
    }

    #[test]
    fn what_passed_too_fast_is_reported() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        for dropped in [0, 0, 3, 9, 11] {
            theirs.send(&message(dropped, &[0xc0; 21])).unwrap();
        }
        theirs.send(&[1; 20]).unwrap();
        let cfg = |count, duration| Capture {
            node: crate::cli::NodeArgs { node: None },
            write: None,
            contexts: None,
            count,
            duration,
        };
        let interrupt = InterruptFlag::watch().unwrap();
        let mut file = Pcapng::new(Vec::new()).unwrap();
        let socket = OwnedFd::from(ours);
        let captured = copy(&socket, &cfg(4, 0.0), &interrupt, &mut file).unwrap();
        assert_eq!(captured, CaptureSummary { count: 4, dropped: 9 }, "four, and no more");
        // What is none of both counts as nothing, and hides no drops.
        let captured = copy(&socket, &cfg(0, 0.2), &interrupt, &mut file).unwrap();
        assert_eq!(captured, CaptureSummary { count: 1, dropped: 11 });
        assert_eq!(captured.text("packets"), "1 packets captured, 11 dropped\n");
        let said = captured.json("127.1.1.1", "packets", Some(Path::new("/tmp/x")));
        let wanted = json!({ "eid": "127.1.1.1", "packets": 1, "dropped": 11, "file": "/tmp/x" });
        assert_eq!(said, wanted);
    }

    /// Counts what is asked of a file.
    #[derive(Default)]
    struct CountedFile {
        taken: Vec<Vec<u8>>,
        flushes: u32,
    }

    impl CaptureFile for CountedFile {
        fn take(&mut self, record: &[u8]) -> io::Result<Option<(u64, u64)>> {
            self.taken.push(record.to_vec());
            Ok(Some((1, 0)))
        }

        fn flush(&mut self) -> io::Result<()> {
            self.flushes += 1;
            Ok(())
        }
    }

    /// A reader of the file sees what passed while nothing passes, and all of it at the end.
    #[test]
    fn what_is_captured_is_written_while_nothing_passes_and_at_the_end() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let (socket, interrupt) = (OwnedFd::from(ours), InterruptFlag::watch().unwrap());
        let node = || crate::cli::NodeArgs { node: None };
        let cfg = |count, duration| Capture {
            node: node(),
            write: None,
            contexts: None,
            count,
            duration,
        };
        let mut file = CountedFile::default();
        theirs.send(&[1; 20]).unwrap();
        theirs.send(&[2; 30]).unwrap();
        assert_eq!(copy(&socket, &cfg(2, 0.0), &interrupt, &mut file).unwrap().count, 2);
        assert_eq!((file.taken, file.flushes), (vec![vec![1; 20], vec![2; 30]], 1));
        let mut file = CountedFile::default();
        theirs.send(&[3; 10]).unwrap();
        let began = now();
        assert_eq!(copy(&socket, &cfg(2, 0.16), &interrupt, &mut file).unwrap().count, 1);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(160) && took < Duration::from_secs(20), "{took:?}");
        assert!((2..=5).contains(&file.flushes), "each look and the end: {}", file.flushes);
    }

    #[test]
    fn blocks_frame_what_they_hold() {
        let mut file = Pcapng::new(Vec::new()).unwrap();
        let eid = |last: u8| ubcore_sim::host::ip_eid([127, 1, 1, last].into());
        let packets = [[0xc0; 21], [0xc1; 21]];
        let times = [0x0000_0001_0000_0002, 0x18ab_3c5d_7e9f_0123];
        for (packet, time_ns) in packets.iter().zip(times) {
            let record = TapRecord { time_ns, from: eid(1), to: eid(2), dropped: 0, packet };
            assert!(file.record(&record).unwrap());
        }
        // Section: little-endian, version 1.0, of any length. Interface: Ethernet, frames of any length, times in ns.
        let head = [
            [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28].as_slice(),
            &[1, 32, 1, 0, 0x0001_0009, 9, 0, 32],
        ];
        let head: Vec<u8> = head.concat().iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(file.output[..head.len()], head);
        let mut rest = &file.output[..];
        let (mut kinds, mut found) = (Vec::new(), Vec::new());
        while let Some((head, _)) = rest.split_first_chunk::<8>() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let len = word(4) as usize;
            assert_eq!(rest[len - 4..len], head[4..], "the length stands at both ends");
            assert_eq!(len % 4, 0);
            kinds.push(word(0));
            if word(0) == 6 {
                let frame = frame::UdpDatagram::parse(&rest[28..len - 4]).unwrap();
                let ends = [frame.source.to_string(), frame.dest.to_string()];
                assert_eq!(ends, ["127.1.1.1:4791", "127.1.1.2:4791"]);
                // Of the two words of a time the upper one comes first.
                found.push((u64::from(word(12)) << 32 | u64::from(word(16)), frame.payload));
            }
            rest = &rest[len..];
        }
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6]);
        let written: Vec<_> = times.into_iter().zip(packets.iter().map(|all| &all[..])).collect();
        assert_eq!(found, written);
    }
}
