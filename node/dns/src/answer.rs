//! Writing answers as bytes. Names of answers point at the question, the others are written out.

use crate::query::{CLASS_IN, Query, kind};
use crate::zone::Record;

/// Seconds for which clients may cache an answer, also a negative one.
pub const TTL_SECONDS: u32 = 5;

/// Response codes.
pub mod code {
    pub const NO_ERROR: u8 = 0;
    pub const FORMAT_ERROR: u8 = 1;
    pub const SERVER_FAILURE: u8 = 2;
    pub const NAME_ERROR: u8 = 3;
    pub const NOT_IMPLEMENTED: u8 = 4;
    pub const REFUSED: u8 = 5;
}

const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
/// Compression pointer to the name of the question.
const QUESTION_POINTER: [u8; 2] = [0xc0, 12];

/// An answer being written.
#[derive(Debug)]
pub struct Answer {
    bytes: Vec<u8>,
    limit: usize,
    counts: [u16; 3],
    truncated: bool,
}

/// The part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Answer,
    Authority,
    Additional,
}

/// Owner of a record.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    Question,
    Name(&'a str),
}

impl Answer {
    /// An answer of at most `limit` bytes; records that do not fit are left out and the message says so.
    pub fn new(query: &Query, code: u8, authoritative: bool, limit: usize) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(query.id.to_be_bytes());
        let flags = 0x80 | if authoritative { AUTHORITATIVE } else { 0 } | u8::from(query.recursion);
        bytes.extend([flags, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend(&query.question);
        // 11 bytes are reserved for the OPT record: the root's name, type, class, TTL and length.
        let limit = if query.edns { limit - 11 } else { limit };
        Self {
            bytes,
            limit,
            counts: [0; 3],
            truncated: false,
        }
    }

    pub fn record(&mut self, section: Section, owner: Owner<'_>, record: &Record) {
        let start = self.bytes.len();
        match owner {
            Owner::Question => self.bytes.extend(QUESTION_POINTER),
            Owner::Name(name) => write_name(&mut self.bytes, name),
        }
        self.bytes.extend(record.kind().to_be_bytes());
        self.bytes.extend(CLASS_IN.to_be_bytes());
        self.bytes.extend(TTL_SECONDS.to_be_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend([0, 0]);
        write_data(&mut self.bytes, record);
        // The length comes before data whose size is known only once it is written.
        let length = u16::try_from(self.bytes.len() - length_at - 2).unwrap_or(0);
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        if self.bytes.len() > self.limit {
            self.bytes.truncate(start);
            // RFC 2181, 9: missing additional records do not set TC; a client would repeat over TCP for nothing.
            self.truncated |= section != Section::Additional;
        } else {
            self.counts[section as usize] += 1;
        }
    }

    /// Sets the TC bit, after which the client repeats its question over TCP.
    pub fn cut(mut self) -> Self {
        self.truncated = true;
        self
    }

    pub fn finish(mut self, query: &Query) -> Vec<u8> {
        if self.truncated {
            self.bytes[2] |= TRUNCATED;
        }
        if query.edns {
            self.bytes.push(0);
            self.bytes.extend(kind::OPT.to_be_bytes());
            self.bytes.extend(query.udp_size.to_be_bytes());
            self.bytes.extend([0; 6]);
            self.counts[2] += 1;
        }
        for (at, count) in [6, 8, 10].into_iter().zip(self.counts) {
            self.bytes[at..at + 2].copy_from_slice(&count.to_be_bytes());
        }
        self.bytes
    }
}

/// An answer without a question, for messages whose question could not be read.
pub fn bare(id: u16, code: u8) -> Vec<u8> {
    let id = id.to_be_bytes();
    vec![id[0], id[1], 0x80, 0x80 | code, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn write_data(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::A(address) => out.extend(address.octets()),
        Record::Aaaa(address) => out.extend(address.octets()),
        Record::Cname(name) | Record::Ptr(name) | Record::Ns(name) => write_name(out, name),
        Record::Srv { port, target } => {
            // Priority 0; every target weighs the same.
            out.extend([0, 0, 0, 100]);
            out.extend(port.to_be_bytes());
            write_name(out, target);
        }
        Record::Txt(text) => {
            out.push(u8::try_from(text.len()).unwrap_or(0));
            out.extend(text.bytes());
        }
        Record::Soa { domain, serial } => {
            write_name(out, &format!("ns.dns.{domain}"));
            write_name(out, &format!("hostmaster.{domain}"));
            for number in [*serial, 7200, 1800, 86400, TTL_SECONDS] {
                out.extend(number.to_be_bytes());
            }
        }
        Record::Exists => {}
    }
}

/// A name in labels. Ours are made of valid parts; what is too long for a label is cut rather than sent wrong.
pub(crate) fn write_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(u8::try_from(label.len()).unwrap_or(63));
        out.extend(label);
    }
    out.push(0);
}
