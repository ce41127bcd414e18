//! JSON text to tree and back.
//!
//! [`decode_json`] is one pass: a hand-written scanner drives typed decoding directly, strings stay where they
//! lie in the input, fields are found by name in the schema, and each struct is put into normal form when it
//! closes. Problems are in upstream's words: the first wrong type fails the decode, unknown and
//! duplicate fields are collected by full path and are the caller's to refuse, to warn of or to ignore.

mod decode;
mod encode;
mod number;
mod scan;
mod strict;
#[cfg(test)]
mod tests;

pub use encode::{SplitObject, encode_json, encode_node, encode_split};
pub(crate) use encode::{needs_no_escape, write_escaped, write_prefixed_string, write_string};
pub(crate) use number::write_float;
pub(crate) use scan::stop_from;

use crate::tree::Exceeded;
use crate::{Schema, Tree, TypeId};
use std::sync::Arc;

/// Treatment of unknown and duplicate fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    /// They are dropped silently.
    #[default]
    Ignore,
    /// They are dropped and listed in [`Decoded::strict_errors`].
    Report,
}

/// A decoded object, and what strict decoding has against it.
#[derive(Debug, Clone)]
pub struct Decoded {
    pub tree: Tree,
    /// `unknown field "spec.foo"`, `duplicate field "metadata.name"`, in document order.
    pub strict_errors: Vec<String>,
}

/// The document cannot be read; `Display` is the decoder's sentence as upstream words it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON (or YAML, or protobuf) at all.
    #[error("{0}")]
    Syntax(String),
    /// A value of the wrong type: `json: cannot unmarshal …`.
    #[error("{0}")]
    Type(String),
    /// A leaf that its own parser refused (a quantity, a time).
    #[error("{0}")]
    Value(String),
    #[error("exceeded max depth")]
    TooDeep,
    /// Few bytes that request more than a tree may hold.
    #[error("the document has more values than an object may have")]
    TooManyValues,
    #[error("the document has {size} bytes, more than the {limit} that are read")]
    TooLarge { size: usize, limit: usize },
}

impl From<Exceeded> for DecodeError {
    fn from(bound: Exceeded) -> Self {
        match bound {
            Exceeded::Depth => Self::TooDeep,
            Exceeded::Size | Exceeded::Steps => Self::TooManyValues,
        }
    }
}

/// No document larger than this is decoded; request bodies are bounded far below.
pub const MAX_INPUT: usize = 64 << 20;

/// Decodes a document into the normal form of a type.
pub fn decode_json(
    schema: &Arc<Schema>,
    ty: TypeId,
    input: &[u8],
    strictness: Strictness,
) -> Result<Decoded, DecodeError> {
    decode::decode(schema, ty, input, strictness)
}

/// Checks that a text is one JSON value that may stand inside of `depth` lists and maps.
pub(crate) fn check_json(text: &str, depth: usize) -> Result<(), DecodeError> {
    let mut scan = scan::Scanner::new(text);
    scan.skip(depth)?;
    if scan.peek().is_some() {
        Err(scan.unexpected("after top-level value"))
    } else {
        Ok(())
    }
}

impl Tree {
    /// Free-form JSON.
    pub fn from_json(text: &str) -> Result<Self, DecodeError> {
        let schema = crate::tree::untyped_schema();
        Ok(decode_json(&schema, TypeId::ANY, text.as_bytes(), Strictness::Ignore)?.tree)
    }
}
