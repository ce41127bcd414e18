//! Protobuf as upstream writes it: `k8s\0`, an envelope (`runtime.Unknown`) with the type meta, and the object.
//!
//! Field numbers come from the schema. Inlined structs are messages of their own here, named lists
//! (`meta/v1.Verbs`) are wrapped, quantities, times and the like are small messages. Decoding leaves the same
//! normal form behind as JSON does.

mod decode;
mod encode;
mod reverse_buffer;
#[cfg(test)]
mod tests;
mod wire;

pub use decode::{decode_message, decode_protobuf};
pub use encode::{encode_message, encode_protobuf};
pub use reverse_buffer::ReverseBuffer;
pub use wire::{write_bytes, write_number};

use crate::json::DecodeError;
use wire::Reader;

/// First bytes of a protobuf body.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// An opened envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The object's message.
    pub raw: &'a [u8],
}

/// Opens a body; the object itself is not read yet.
pub fn open_envelope(input: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let Some(body) = input.strip_prefix(MAGIC) else {
        let problem =
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(DecodeError::Syntax(problem.to_owned()));
    };
    // Without an envelope its kind is unknown.
    read_envelope(body).map_err(|error| DecodeError::Syntax(error.to_string()))
}

fn read_envelope(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let mut envelope = Envelope {
        api_version: "",
        kind: "",
        raw: &[],
    };
    let mut reader = Reader::new(body);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => {
                let mut meta = Reader::new(reader.bytes(tag)?);
                while let Some(tag) = meta.tag()? {
                    match tag.number {
                        1 => envelope.api_version = meta.str(tag)?,
                        2 => envelope.kind = meta.str(tag)?,
                        _ => meta.skip(tag)?,
                    }
                }
            }
            2 => envelope.raw = reader.bytes(tag)?,
            3 if !reader.bytes(tag)?.is_empty() => {
                return Err(DecodeError::Syntax(
                    "a content encoding is not supported".to_owned(),
                ));
            }
            3 => {}
            _ => reader.skip(tag)?,
        }
    }
    Ok(envelope)
}

/// Puts a message into an envelope.
pub fn close_envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = Vec::with_capacity(64);
    write_bytes(&mut meta, 1, api_version.as_bytes());
    write_bytes(&mut meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(raw.len() + meta.len() + 32);
    out.extend_from_slice(MAGIC);
    write_bytes(&mut out, 1, &meta);
    write_bytes(&mut out, 2, raw);
    // Upstream writes both, empty.
    write_bytes(&mut out, 3, b"");
    write_bytes(&mut out, 4, b"");
    out
}
