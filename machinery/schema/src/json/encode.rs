//! Trees to JSON, compact and in the tree's order.

use super::number::{write_float, write_int};
use crate::table::{Schema, TypeId};
use crate::tree::{Node, Ref, Tag, Tree, child_type, effective};
use bytes::Bytes;

/// Appends a tree as JSON.
pub fn encode_json(tree: &Tree, out: &mut Vec<u8>) {
    encode_node(tree.root(), out);
}

/// Appends one value as JSON.
pub fn encode_node(value: Ref<'_>, out: &mut Vec<u8>) {
    let writer = Writer {
        tree: value.tree,
        schema: value.schema(),
    };
    writer.value(value.node, value.ty, out);
}

struct Writer<'a> {
    tree: &'a Tree,
    schema: &'a Schema,
}

impl Writer<'_> {
    /// The type matters only for what has members or items.
    fn value(&self, node: Node, ty: TypeId, out: &mut Vec<u8>) {
        match node.tag() {
            Tag::Null => out.extend_from_slice(b"null"),
            Tag::Bool => out.extend_from_slice(if node.as_bool() { b"true" } else { b"false" }),
            Tag::Int => write_int(out, node.as_int()),
            Tag::Float => write_float(out, node.as_float()),
            Tag::Str => write_string(out, self.tree.text_of(node)),
            Tag::Raw => out.extend_from_slice(self.tree.text_of(node).as_bytes()),
            Tag::List => {
                let item = child_type(self.schema, ty, Node::NULL);
                out.push(b'[');
                for (at, child) in self.tree.children(node).iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    self.value(*child, item, out);
                }
                out.push(b']');
            }
            Tag::Map => {
                let ty = effective(self.schema, ty, Tag::Map);
                out.push(b'{');
                for (at, member) in self.tree.children(node).iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    self.member(ty, *member, out);
                }
                out.push(b'}');
            }
        }
    }

    /// A member of a map or struct of type `parent`.
    fn member(&self, parent: TypeId, member: Node, out: &mut Vec<u8>) {
        let field = if member.is_named() {
            None
        } else {
            self.schema.field_at(parent, member.position())
        };
        let ty = match field {
            Some(field) => {
                // Names of fields need no escapes.
                out.push(b'"');
                out.extend_from_slice(self.schema.text(field.name).as_bytes());
                out.push(b'"');
                field.ty
            }
            None => {
                write_string(out, self.tree.name_of(parent, member));
                child_type(self.schema, parent, member)
            }
        };
        out.push(b':');
        self.value(member, ty, out);
    }
}

/// An encoded object in three slices, so that kind and revision are supplied when it is framed.
///
/// `{` + [`type_meta`](Self::type_meta) + [`head`](Self::head) + `"42"` + [`tail`](Self::tail) is the whole object;
/// without `type_meta` it is a list item of a built-in kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitObject {
    /// `"kind":"Pod","apiVersion":"v1",`
    pub type_meta: Bytes,
    /// From `"metadata":{` up to and including `"resourceVersion":`.
    pub head: Bytes,
    /// Text after the revision, with the closing brace.
    pub tail: Bytes,
}

impl SplitObject {
    /// The whole object at a revision.
    pub fn join(&self, revision: u64) -> Vec<u8> {
        let len = self.type_meta.len() + self.head.len() + self.tail.len() + 24;
        let mut out = Vec::with_capacity(len);
        out.push(b'{');
        out.extend_from_slice(&self.type_meta);
        out.extend_from_slice(&self.head);
        out.push(b'"');
        out.extend_from_slice(revision.to_string().as_bytes());
        out.push(b'"');
        out.extend_from_slice(&self.tail);
        out
    }
}

/// Encodes an object in three slices. A revision the tree carries is left out; `metadata` is made when missing.
pub fn encode_split(tree: &Tree) -> SplitObject {
    let (root, schema) = (tree.root(), &*tree.schema);
    let writer = Writer { tree, schema };
    // Names and punctuation are not in the text; about as much again.
    let mut out = Vec::with_capacity(2 * tree.text.len() + 256);
    for name in ["kind", "apiVersion"] {
        if let Some(text) = root.get(name).and_then(Ref::as_str) {
            write_string(&mut out, name);
            out.push(b':');
            write_string(&mut out, text);
            out.push(b',');
        }
    }
    let type_meta = out.len();
    out.extend_from_slice(b"\"metadata\":{");
    let metadata = root.get("metadata");
    let (before, after) = metadata.map_or((&[][..], &[][..]), split_metadata);
    for member in before {
        metadata
            .into_iter()
            .for_each(|metadata| writer.member(metadata.ty, *member, &mut out));
        out.push(b',');
    }
    out.extend_from_slice(b"\"resourceVersion\":");
    let head = out.len();
    for member in after {
        out.push(b',');
        metadata
            .into_iter()
            .for_each(|metadata| writer.member(metadata.ty, *member, &mut out));
    }
    out.push(b'}');
    for member in tree.children(root.node) {
        if !matches!(tree.name_of(root.ty, *member), "kind" | "apiVersion" | "metadata") {
            out.push(b',');
            writer.member(root.ty, *member, &mut out);
        }
    }
    out.push(b'}');
    // It is kept for as long as the object is stored.
    out.shrink_to_fit();
    let mut tail = Bytes::from(out);
    let mut head = tail.split_to(head);
    let type_meta = head.split_to(type_meta);
    SplitObject {
        type_meta,
        head,
        tail,
    }
}

/// The members of `metadata` before and after the place of `resourceVersion`.
fn split_metadata(metadata: Ref<'_>) -> (&[Node], &[Node]) {
    let tree = metadata.tree;
    let children = tree.children(metadata.node);
    let own_place = tree
        .schema
        .field(metadata.ty, "resourceVersion")
        .map(|(position, _)| position);
    let place = children
        .iter()
        .position(|child| match own_place {
            Some(position) => child.is_named() || child.position() >= position,
            None => tree.key_of(*child) >= "resourceVersion",
        })
        .unwrap_or(children.len());
    let (before, after) = children.split_at(place);
    match after.first() {
        Some(first) if tree.name_of(metadata.ty, *first) == "resourceVersion" => (before, &after[1..]),
        _ => (before, after),
    }
}

/// Bytes that need a look inside a string.
static ESCAPES: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 0x20 {
        table[at] = true;
        at += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    // U+2028 and U+2029 begin with this byte.
    table[0xe2] = true;
    table
};

/// Appends a string literal, escaped as Go's encoder does (HTML characters included).
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    write_prefixed_string(out, b"", text);
}

/// The same as [`write_string`], with a beginning that needs no escape.
pub(crate) fn write_prefixed_string(out: &mut Vec<u8>, prefix: &[u8], text: &str) {
    out.reserve(prefix.len() + text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(prefix);
    write_escaped(out, text);
    out.push(b'"');
}

/// Appends what stands between the quotes of a string literal.
pub(crate) fn write_escaped(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let (mut done, mut at) = (0, 0);
    loop {
        at += plain_prefix(&bytes[at..]);
        let Some(next) = bytes[at..].iter().position(|byte| ESCAPES[usize::from(*byte)]) else {
            break;
        };
        at += next;
        let escape = escape_of(&bytes[at..]);
        if escape.len > 0 {
            out.extend_from_slice(&bytes[done..at]);
            out.extend_from_slice(&escape.text[..escape.len]);
            done = at + escape.taken;
        }
        at += escape.taken;
    }
    out.extend_from_slice(&bytes[done..]);
}

/// Reports whether a text is written as it is.
pub(crate) fn needs_no_escape(text: &str) -> bool {
    plain_prefix(text.as_bytes()) == text.len()
}

/// Number of bytes from the beginning that certainly need no look: whole blocks, or all. Written so that it becomes
/// vector code.
fn plain_prefix(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let plain = blocks.iter().take_while(|block| is_plain(block)).count();
    let mut last = [b' '; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    if plain == blocks.len() && is_plain(&last) {
        return bytes.len();
    }
    plain * BLOCK
}

const BLOCK: usize = 16;

/// Compares all bytes of a block at once, without a branch between them.
fn is_plain(block: &[u8; BLOCK]) -> bool {
    let look = block.iter().fold(0, |look, byte| {
        look | u8::from(*byte < 0x20)
            | u8::from(*byte == b'"')
            | u8::from(*byte == b'\\')
            | u8::from(*byte == b'<')
            | u8::from(*byte == b'>')
            | u8::from(*byte == b'&')
            | u8::from(*byte == 0xe2)
    });
    look == 0
}

/// Text that replaces a number of bytes; empty where they stay.
struct Escape {
    text: [u8; 6],
    len: usize,
    taken: usize,
}

/// The escape for what stands first.
fn escape_of(bytes: &[u8]) -> Escape {
    match bytes[0] {
        quoted @ (b'"' | b'\\') => short(quoted),
        b'\n' => short(b'n'),
        b'\r' => short(b'r'),
        b'\t' => short(b't'),
        0x08 => short(b'b'),
        0x0c => short(b'f'),
        0xe2 if bytes.len() > 2 && bytes[1] == 0x80 && matches!(bytes[2], 0xa8 | 0xa9) => Escape {
            taken: 3,
            ..unicode(0x2028 + u16::from(bytes[2] - 0xa8))
        },
        0xe2 => Escape {
            text: [0; 6],
            len: 0,
            taken: 1,
        },
        byte => unicode(u16::from(byte)),
    }
}

fn short(letter: u8) -> Escape {
    Escape {
        text: [b'\\', letter, 0, 0, 0, 0],
        len: 2,
        taken: 1,
    }
}

fn unicode(unit: u16) -> Escape {
    let digit = |shift: u16| b"0123456789abcdef"[usize::from(unit >> shift & 15)];
    Escape {
        text: [b'\\', b'u', digit(12), digit(8), digit(4), digit(0)],
        len: 6,
        taken: 1,
    }
}
