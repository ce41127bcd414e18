//! Typed decoding: a value by its type here, members of objects in [`members`], values without children in [`scalars`].

mod members;
mod scalars;

use super::scan::{Literal, Scanner, unescape};
use super::strict::{PathStep, Strict};
use super::{DecodeError, Decoded, MAX_INPUT, Strictness};
use crate::MAX_DEPTH;
use crate::table::{Schema, Shape, TypeId};
use crate::tree::{MAX_NODES, Node, Tree, narrow};
use std::borrow::Cow;
use std::sync::Arc;

pub(super) fn decode(
    schema: &Arc<Schema>,
    ty: TypeId,
    input: &[u8],
    strictness: Strictness,
) -> Result<Decoded, DecodeError> {
    if input.len() > MAX_INPUT {
        return Err(DecodeError::TooLarge {
            size: input.len(),
            limit: MAX_INPUT,
        });
    }
    // As Go's decoder does, bytes that are not UTF-8 become U+FFFD.
    let original = input;
    let input = match std::str::from_utf8(original) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(original),
    };
    let mut tree = Tree::empty(schema, ty, input.len() / 16 + 16);
    tree.text = String::with_capacity(input.len() + 256);
    if !tree.fits_text(input.len()) {
        return Err(DecodeError::TooManyValues);
    }
    tree.text.push_str(&input);
    let mut decoder = Decoder {
        scan: match &input {
            Cow::Borrowed(text) => Scanner::new(text),
            Cow::Owned(text) => Scanner::repaired(text, original),
        },
        schema,
        tree,
        pending: Vec::with_capacity(64),
        strict: Strict::new(strictness == Strictness::Report),
        depth: 0,
        wrong_type: None,
    };
    let root = decoder.value(ty)?;
    decoder.tree.root = if root.is_null() {
        decoder.tree.zero(ty, 0)
    } else {
        root
    };
    if decoder.scan.peek().is_some() {
        return Err(decoder.scan.unexpected("after top-level value"));
    }
    decoder.tree.check_bounds()?;
    match decoder.wrong_type {
        Some(error) => Err(DecodeError::Type(error)),
        None => Ok(Decoded {
            tree: decoder.tree,
            strict_errors: decoder.strict.errors,
        }),
    }
}

struct Decoder<'i> {
    scan: Scanner<'i>,
    schema: &'i Schema,
    tree: Tree,
    /// Children of the values that are still open, innermost last.
    pending: Vec<Node>,
    strict: Strict,
    depth: usize,
    /// The first wrong type; decoding goes on behind it, as Go's does.
    wrong_type: Option<String>,
}

impl<'i> Decoder<'i> {
    /// A value of a type. Null comes back as null; what that means is for the parent to say.
    fn value(&mut self, id: TypeId) -> Result<Node, DecodeError> {
        let shape = self.schema.ty(id).shape;
        match self.scan.peek() {
            Some(b'n') => self.scan.word("null").map(|()| Node::NULL),
            _ if shape == Shape::Raw => self.raw(),
            Some(b'{') => self.object(id, shape),
            Some(b'[') => self.array(id, shape),
            Some(b'"') => self.string(id, shape),
            Some(b't' | b'f') if shape == Shape::Quantity => Err(not_a_quantity()),
            Some(b't') => self.scan.word("true").map(|()| self.boolean(id, shape, true)),
            Some(b'f') => self.scan.word("false").map(|()| self.boolean(id, shape, false)),
            Some(b'-' | b'0'..=b'9') => self.number(id, shape),
            _ => Err(self.scan.unexpected("looking for beginning of value")),
        }
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.scan.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(DecodeError::TooDeep)
        } else {
            Ok(())
        }
    }

    fn object(&mut self, id: TypeId, shape: Shape) -> Result<Node, DecodeError> {
        let ty = self.schema.ty(id);
        match shape {
            Shape::Struct => self.members_of_struct(id),
            Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => {
                self.leniently(|decoder| decoder.members_of_struct(ty.item))
            }
            Shape::Map => self.members_of_map(ty.item),
            Shape::Any => self.members_of_map(TypeId::ANY),
            _ if ty.typed => self.mismatch(id, "object"),
            _ if ty.preserve_unknown => self.members_of_map(TypeId::ANY),
            _ => self.no_members(),
        }
    }

    fn array(&mut self, id: TypeId, shape: Shape) -> Result<Node, DecodeError> {
        let ty = self.schema.ty(id);
        match shape {
            Shape::List => self.items(ty.item),
            Shape::SchemaOrArray => self.leniently(|decoder| decoder.items(ty.item)),
            Shape::SchemaOrStrings | Shape::Any => self.items(TypeId::ANY),
            _ if ty.typed => self.mismatch(id, "array"),
            _ if ty.preserve_unknown => self.items(TypeId::ANY),
            _ => self.items_without_members(),
        }
    }

    /// Reads without strictness a value that upstream reads with a decoder of the type's own.
    fn leniently(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Node, DecodeError>,
    ) -> Result<Node, DecodeError> {
        let before = std::mem::replace(&mut self.strict.enabled, false);
        let node = read(self);
        self.strict.enabled = before;
        node
    }

    /// Puts a value among those whose parent is still open.
    #[inline]
    fn keep(&mut self, value: Node) -> Result<(), DecodeError> {
        if self.pending.len() >= MAX_NODES {
            return Err(DecodeError::TooManyValues);
        }
        self.pending.push(value);
        Ok(())
    }

    fn items(&mut self, item: TypeId) -> Result<Node, DecodeError> {
        self.enter()?;
        let mark = self.pending.len();
        if !self.scan.take(b']') {
            let mut index = 0;
            loop {
                let value = self.element(item, PathStep::Index(index))?;
                self.keep(value)?;
                index += 1;
                if !self.scan.more(b']', "after array element")? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(self.close(mark, Node::list))
    }

    /// A list of a custom kind where the schema has no items.
    #[cold]
    fn items_without_members(&mut self) -> Result<Node, DecodeError> {
        self.enter()?;
        let mark = self.pending.len();
        if !self.scan.take(b']') {
            let mut index = 0;
            loop {
                self.strict.path.push(PathStep::Index(index));
                let value = match self.scan.peek() {
                    Some(b'{') => self.no_members()?,
                    Some(b'[') => self.items_without_members()?,
                    _ => self.value(TypeId::ANY)?,
                };
                self.strict.path.pop();
                self.keep(value)?;
                index += 1;
                if !self.scan.more(b']', "after array element")? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(self.close(mark, Node::list))
    }

    /// An item of a list or a value of a map; a null among typed ones is their zero value.
    fn element(&mut self, item: TypeId, step: PathStep) -> Result<Node, DecodeError> {
        self.strict.path.push(step);
        let value = self.value(item)?;
        self.strict.path.pop();
        let ty = self.schema.ty(item);
        if !value.is_null() || ty.shape == Shape::Any || !ty.typed {
            return Ok(value);
        }
        // A null among bytes comes back from storage as empty bytes.
        Ok(if ty.shape == Shape::Bytes {
            Node::str((0, 0))
        } else {
            self.tree.zero(item, self.depth)
        })
    }

    fn close(&mut self, mark: usize, make: fn((u32, u32)) -> Node) -> Node {
        let span = self.tree.push_children(&self.pending[mark..]);
        self.pending.truncate(mark);
        make(span)
    }

    fn mismatch(&mut self, id: TypeId, what: &str) -> Result<Node, DecodeError> {
        if self.schema.ty(id).shape == Shape::SchemaOrBool {
            return Err(DecodeError::Value("boolean or JSON schema expected".to_owned()));
        }
        if self.schema.ty(id).shape == Shape::Quantity {
            return Err(not_a_quantity());
        }
        self.wrong(id, what);
        self.scan.skip(self.depth)?;
        Ok(self.tree.zero(id, self.depth))
    }

    #[cold]
    fn wrong(&mut self, id: TypeId, what: &str) {
        if self.wrong_type.is_none() {
            let ty = self.schema.ty(id);
            let go_type = match ty.shape {
                Shape::IntOrString => "int32",
                Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::Duration => "string",
                _ => self.schema.text(ty.go_name),
            };
            let context = self.strict.go_context(self.schema, go_type);
            self.wrong_type = Some(format!("json: cannot unmarshal {what} {context}"));
        }
    }

    #[inline]
    fn literal_text(&self, literal: Literal) -> Result<Cow<'i, str>, DecodeError> {
        let slice = self.scan.slice(literal.start, literal.end);
        if !literal.escaped {
            return Ok(Cow::Borrowed(slice));
        }
        let mut text = String::new();
        unescape(slice, &mut text)?;
        Ok(Cow::Owned(text))
    }

    /// Start and length of a literal in the tree's text, which begins with the input.
    #[inline]
    fn literal_span(&mut self, literal: Literal) -> Result<(u32, u32), DecodeError> {
        if !literal.escaped {
            return Ok((narrow(literal.start), narrow(literal.end - literal.start)));
        }
        if !self.tree.fits_text(literal.end - literal.start) {
            return Err(DecodeError::TooManyValues);
        }
        let start = self.tree.text.len();
        unescape(self.scan.slice(literal.start, literal.end), &mut self.tree.text)?;
        Ok((narrow(start), narrow(self.tree.text.len() - start)))
    }
}

/// The error of the quantity's own parser, which upstream gives every value that is not a number or a string.
fn not_a_quantity() -> DecodeError {
    DecodeError::Value(machinery_meta::quantity::ParseQuantityError::Format.to_string())
}
