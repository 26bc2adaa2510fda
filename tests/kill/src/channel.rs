//! The channel between a worker and the process that started it: lines of JSON over a socket pair.
//!
//! *Owns*: the words and their form. *Must not*: wait without a bound.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{pause::Bound, plan::Mix};

/// Messages between a worker and its starter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Word {
    /// Worker: my node is open.
    Ready {
        /// Its EID, as an address.
        eid: String,
    },
    /// Make the objects of a round.
    Prepare {
        /// Its number, from 1.
        round: u32,
        /// Operations that the worker itself posts.
        own: Mix,
        /// Operations that its peer posts.
        peer: Mix,
        /// Number of receives that the worker keeps posted.
        receives: u32,
        /// Error timeout of the send queue: 4096 ns << this.
        err_timeout: u8,
    },
    /// Worker: this is how to reach me.
    Endpoint(Endpoint),
    /// Imports this peer and runs a round with it.
    Run {
        /// Names of the peer's objects.
        peer: Endpoint,
        /// Requests to post; `None`: until the word to stop.
        count: Option<u64>,
    },
    /// Worker: the peer is imported (and bound), or cannot be.
    Met,
    /// Both workers have imported each other: start to post.
    Go,
    /// Worker: all posted, all completed, all messages came.
    Done,
    /// Post no more requests; send `done` when all are completed.
    Enough,
    /// Ends the round after the requests that are open.
    Stop,
    /// Worker: the round is over.
    Closed,
    /// Your peers are gone: record what is left of them, and send `closed`.
    Rest,
    /// Close the node and end.
    Quit,
}

/// How to reach a worker's objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// EID, as an address.
    pub eid: String,
    /// User address space id.
    pub uasid: u32,
    /// Number of its jetty.
    pub jetty: u32,
    /// First address of its segment.
    pub va: u64,
    /// Length of the segment in bytes.
    pub len: u64,
    /// Token id of the segment.
    pub token_id: u32,
    /// Token of both segments: it guards a test's own memory.
    pub token: u32,
    /// First address of the segment that comes and goes.
    pub churn_va: u64,
    /// Length of the segment that comes and goes, in bytes.
    pub churn_len: u64,
    /// Token id of the segment that comes and goes.
    pub churn_id: u32,
}

/// One end of the channel.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    pending: Vec<u8>,
}

/// Longest line in bytes.
const LINE_MAX: usize = 1 << 16;

impl Channel {
    /// Over one end of a socket pair.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Sends one message to the other end.
    ///
    /// # Errors
    /// The other end is gone, or does not listen for five seconds.
    pub fn say(&mut self, word: &Word) -> io::Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        self.stream.write_all(&line)
    }

    /// The next word if there is one; never waits.
    ///
    /// # Errors
    /// The other end is gone (`UnexpectedEof`) or sent an unknown message.
    pub fn look(&mut self) -> io::Result<Option<Word>> {
        if let Some(word) = self.take()? {
            return Ok(Some(word));
        }
        self.stream.set_nonblocking(true)?;
        self.fill()?;
        self.take()
    }

    /// The next word; `TimedOut` when none comes in time.
    ///
    /// # Errors
    /// As [`Channel::look`].
    pub fn wait(&mut self, limit: Duration) -> io::Result<Word> {
        let bound = Bound::after(limit);
        loop {
            if let Some(word) = self.take()? {
                return Ok(word);
            }
            if bound.is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_nonblocking(false)?;
            // Zero would mean forever.
            let left = bound.left().max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.pending.extend_from_slice(&bytes[..len]);
                if self.pending.len() > LINE_MAX {
                    return Err(io::Error::other("a line without an end"));
                }
                Ok(())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn take(&mut self) -> io::Result<Option<Word>> {
        let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        Ok(Some(serde_json::from_slice(&line)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_pass_and_a_hang_up_is_noticed() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (Channel::new(near), Channel::new(far));
        assert_eq!(far.look().unwrap(), None);
        let error = far.wait(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        near.say(&Word::Done).unwrap();
        near.say(&Word::Stop).unwrap();
        assert_eq!(far.wait(Duration::from_secs(60)).unwrap(), Word::Done);
        assert_eq!(far.look().unwrap(), Some(Word::Stop));
        drop(near);
        assert_eq!(far.look().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
