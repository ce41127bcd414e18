//! Protobuf to trees.

use super::wire::{BYTES, FIXED64, Reader, Tag, VARINT, illegal};
use crate::MAX_DEPTH;
use crate::json::{DecodeError, MAX_INPUT};
use crate::leaf;
use crate::normal::normal_field;
use crate::table::{Field, Schema, Shape, TypeId};
use crate::tree::{MAX_NODES, Node, Tree};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use smallvec::SmallVec;
use std::sync::Arc;

/// Years that JSON can say: 0001 to 9999.
const TIME_RANGE: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

/// Decodes a whole body of a type; kind and version of the envelope become the tree's.
pub fn decode_protobuf(schema: &Arc<Schema>, ty: TypeId, input: &[u8]) -> Result<Tree, DecodeError> {
    let envelope = super::open_envelope(input)?;
    let mut tree = decode_message(schema, ty, envelope.raw)?;
    for (name, value) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
        if !value.is_empty() && schema.field(ty, name).is_some() {
            tree.set_str(&[name], value);
        }
    }
    Ok(tree)
}

/// Decodes the message of a struct, without envelope, into its normal form.
pub fn decode_message(schema: &Arc<Schema>, ty: TypeId, raw: &[u8]) -> Result<Tree, DecodeError> {
    if raw.len() > MAX_INPUT {
        return Err(DecodeError::TooLarge {
            size: raw.len(),
            limit: MAX_INPUT,
        });
    }
    let mut tree = Tree::empty(schema, ty, raw.len() / 16 + 16);
    tree.text = String::with_capacity(raw.len() + 64);
    let mut decoder = Decoder {
        schema,
        tree,
        pending: Vec::with_capacity(64),
        depth: 0,
    };
    decoder.tree.root = decoder.message(ty, &[raw])?;
    decoder.tree.check_bounds()?;
    Ok(decoder.tree)
}

/// The parts of one message.
type Parts<'a> = SmallVec<[&'a [u8]; 2]>;
/// Messages of fields that are no lists, by position.
type Messages<'a> = SmallVec<[(usize, &'a [u8]); 4]>;

struct Decoder<'s> {
    schema: &'s Schema,
    tree: Tree,
    /// Values of the messages that are still open, innermost last; items of lists and maps lie singly.
    pending: Vec<Node>,
    depth: usize,
}

impl Decoder<'_> {
    /// Into a list or map: it is these that nest in a tree, not messages.
    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(DecodeError::TooDeep)
        } else {
            Ok(())
        }
    }

    /// Puts a value among those whose parent is still open.
    fn keep(&mut self, value: Node) -> Result<(), DecodeError> {
        if self.pending.len() >= MAX_NODES {
            return Err(DecodeError::TooManyValues);
        }
        self.pending.push(value);
        Ok(())
    }

    /// A struct. A message may come in several parts: one that a field names twice is merged, as Go's code does.
    fn message(&mut self, id: TypeId, parts: &[&[u8]]) -> Result<Node, DecodeError> {
        self.enter()?;
        let mark = self.pending.len();
        let mut messages = Messages::new();
        for raw in parts {
            self.fields(id, 0, raw, &mut messages)?;
        }
        messages.sort_by_key(|(position, _)| *position);
        for same in messages.chunk_by(|a, b| a.0 == b.0) {
            let (position, parts) = (same[0].0, Parts::from_iter(same.iter().map(|(_, raw)| *raw)));
            let value = self.single_message(self.schema.fields(id)[position].ty, &parts)?;
            self.keep(value.in_field(position))?;
        }
        let node = self.close(id, mark);
        self.depth -= 1;
        Ok(node)
    }

    /// The fields of one level; an inlined struct's message adds to the same struct. Messages of fields that are no lists
    /// are put aside: another part of them may follow.
    fn fields<'a>(
        &mut self,
        id: TypeId,
        level: u8,
        raw: &'a [u8],
        messages: &mut Messages<'a>,
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(raw);
        let mut hint = 0;
        while let Some(tag) = reader.tag()? {
            if let Some((position, field)) = self.find(id, level, tag.number, hint) {
                hint = position + 1;
                let ty = self.schema.ty(field.ty);
                if is_message(ty.shape, ty.wrapped) {
                    messages.push((position, reader.bytes(tag)?));
                } else if ty.shape == Shape::List && !ty.wrapped {
                    self.items(ty.item, position, &mut reader, tag)?;
                } else {
                    let value = match ty.shape {
                        Shape::Map => self.entry(ty.item, reader.bytes(tag)?)?,
                        _ => self.single(field.ty, &mut reader, tag)?,
                    };
                    self.keep(value.in_field(position))?;
                }
            } else if let Some(inner) = self.inner(id, level, tag.number) {
                // Ends: the levels of a struct are a tree.
                self.fields(id, inner, reader.bytes(tag)?, messages)?;
            } else {
                reader.skip(tag)?;
            }
        }
        Ok(())
    }

    /// One item of a list, or several numbers in one field: Go's code takes both forms.
    fn items(
        &mut self,
        item: TypeId,
        position: usize,
        reader: &mut Reader<'_>,
        tag: Tag,
    ) -> Result<(), DecodeError> {
        self.enter()?;
        match packed(self.schema.ty(item).shape) {
            Some(wire) if tag.wire == BYTES => {
                let mut packed = Reader::new(reader.bytes(tag)?);
                let tag = Tag { wire, ..tag };
                while !packed.is_empty() {
                    let value = self.single(item, &mut packed, tag)?;
                    self.keep(value.in_field(position))?;
                }
            }
            _ => {
                let value = self.single(item, reader, tag)?;
                self.keep(value.in_field(position))?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Fields come in order, or nearly so: the search begins behind the last one, which itself may repeat.
    fn find(&self, id: TypeId, level: u8, number: u32, hint: usize) -> Option<(usize, Field)> {
        let fields = self.schema.fields(id);
        let hint = hint.saturating_sub(1).min(fields.len());
        let (before, after) = fields.split_at(hint);
        let is = |field: &Field| field.group == level && u32::from(field.number) == number && number != 0;
        let found = after
            .iter()
            .position(is)
            .map(|at| at + hint)
            .or_else(|| before.iter().position(is))?;
        Some((found, fields[found]))
    }

    fn inner(&self, id: TypeId, level: u8, number: u32) -> Option<u8> {
        let groups = self.schema.groups(self.schema.ty(id));
        let at = groups
            .iter()
            .position(|group| group.parent == level && u32::from(group.number) == number)?;
        u8::try_from(at + 1).ok()
    }

    /// A field's message, in one part or several.
    fn single_message(&mut self, id: TypeId, parts: &[&[u8]]) -> Result<Node, DecodeError> {
        let ty = self.schema.ty(id);
        match ty.shape {
            Shape::Struct => self.message(id, parts),
            Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => {
                self.schema_or(ty.shape, ty.item, parts)
            }
            Shape::List => self.wrapped(ty.item, parts),
            shape => self.small_message(shape, parts),
        }
    }

    fn single(&mut self, id: TypeId, reader: &mut Reader<'_>, tag: Tag) -> Result<Node, DecodeError> {
        let schema = self.schema;
        let ty = schema.ty(id);
        Ok(match ty.shape {
            Shape::Bool => Node::bool(reader.number(tag)? != 0),
            Shape::Int32 => Node::int(i64::from(truncated(reader.number(tag)?))),
            Shape::Int64 | Shape::Uint32 | Shape::Uint64 => Node::int(reader.number(tag)?),
            Shape::Float => Node::float(reader.double(tag)?),
            Shape::Str => {
                let text = String::from_utf8_lossy(reader.bytes(tag)?);
                Node::str(self.tree.push_text(&text))
            }
            Shape::Bytes => {
                let text = STANDARD.encode(reader.bytes(tag)?);
                Node::str(self.tree.push_text(&text))
            }
            Shape::Any | Shape::Map => return Err(illegal("proto: the type has no protobuf form")),
            _ => self.single_message(id, &[reader.bytes(tag)?])?,
        })
    }

    /// A named list: a message whose field 1 repeats.
    fn wrapped(&mut self, item: TypeId, parts: &[&[u8]]) -> Result<Node, DecodeError> {
        self.enter()?;
        let mark = self.pending.len();
        for raw in parts {
            let mut reader = Reader::new(raw);
            while let Some(tag) = reader.tag()? {
                if tag.number == 1 {
                    let value = self.single(item, &mut reader, tag)?;
                    self.keep(value)?;
                } else {
                    reader.skip(tag)?;
                }
            }
        }
        let span = self.tree.push_children(&self.pending[mark..]);
        self.pending.truncate(mark);
        self.depth -= 1;
        Ok(Node::list(span))
    }

    fn entry(&mut self, item: TypeId, raw: &[u8]) -> Result<Node, DecodeError> {
        self.enter()?;
        let mut reader = Reader::new(raw);
        let mut key = (0, 0);
        let mut value = None;
        while let Some(tag) = reader.tag()? {
            match tag.number {
                1 => {
                    let text = String::from_utf8_lossy(reader.bytes(tag)?);
                    key = self.tree.push_text(&text);
                }
                2 => value = Some(self.single(item, &mut reader, tag)?),
                _ => reader.skip(tag)?,
            }
        }
        let value = match value {
            Some(value) => value,
            None if self.schema.ty(item).shape == Shape::Bytes => Node::str((0, 0)),
            None => self.tree.zero(item, self.depth),
        };
        self.depth -= 1;
        // Marked as named until the map is put together; the field's position is found by its neighbours.
        Ok(self.keyed(value, key))
    }

    /// A map's entry as a list of key and value, so that it can lie among the fields by position.
    fn keyed(&mut self, value: Node, key: (u32, u32)) -> Node {
        let span = self.tree.push_children(&[value.in_key(key)]);
        Node::map(span)
    }

    /// Quantities, times, durations, int-or-strings and opaque JSON.
    fn small_message(&mut self, shape: Shape, parts: &[&[u8]]) -> Result<Node, DecodeError> {
        let (mut first, mut second, mut bytes): (i64, i64, Option<&[u8]>) = (0, 0, None);
        let bytes_at = if shape == Shape::IntOrString { 3 } else { 1 };
        let has_bytes = matches!(shape, Shape::IntOrString | Shape::Quantity | Shape::Raw);
        for raw in parts {
            if matches!(shape, Shape::Time | Shape::MicroTime) {
                // Times have a decoder of their own, which starts over.
                (first, second) = (0, 0);
            }
            let mut reader = Reader::new(raw);
            while let Some(tag) = reader.tag()? {
                match tag.number {
                    number if has_bytes && number == bytes_at => bytes = Some(reader.bytes(tag)?),
                    1 => first = reader.number(tag)?,
                    2 => second = reader.number(tag)?,
                    _ => reader.skip(tag)?,
                }
            }
        }
        let text = String::from_utf8_lossy(bytes.unwrap_or_default());
        Ok(match shape {
            Shape::IntOrString if first == 1 => Node::str(self.tree.push_text(&text)),
            Shape::IntOrString => Node::int(i64::from(truncated(second))),
            Shape::Quantity if text.is_empty() => Node::str(self.tree.push_text("0")),
            Shape::Quantity => {
                let canonical = leaf::canonical(shape, &text).map_err(DecodeError::Value)?;
                Node::str(self.tree.push_text(canonical.as_deref().unwrap_or(&text)))
            }
            Shape::Duration => {
                let text = leaf::write_duration(first);
                Node::str(self.tree.push_text(&text))
            }
            Shape::Raw => self.raw(&text)?,
            _ => self.time(shape, first, second)?,
        })
    }

    fn time(&mut self, shape: Shape, seconds: i64, nanos: i64) -> Result<Node, DecodeError> {
        if seconds == 0 && nanos == 0 {
            return Ok(Node::NULL);
        }
        if !TIME_RANGE.contains(&seconds) {
            return Err(illegal("Time.MarshalJSON: year outside of range [0,9999]"));
        }
        let text = match shape {
            Shape::MicroTime => leaf::write_micro_time(
                seconds,
                u32::try_from(nanos.clamp(0, 999_999_999) / 1000).unwrap_or(0),
            ),
            _ => leaf::write_time(seconds),
        };
        Ok(Node::str(self.tree.push_text(&text)))
    }

    fn raw(&mut self, text: &str) -> Result<Node, DecodeError> {
        if text.is_empty() || text == "null" {
            return Ok(Node::NULL);
        }
        crate::json::check_json(text, self.depth)?;
        let compact = leaf::compact_json(text);
        Ok(Node::raw(self.tree.push_text(&compact)))
    }

    fn schema_or(&mut self, shape: Shape, schema: TypeId, parts: &[&[u8]]) -> Result<Node, DecodeError> {
        let mark = self.pending.len();
        let (mut allows, mut own) = (false, Parts::new());
        for raw in parts {
            let mut reader = Reader::new(raw);
            while let Some(tag) = reader.tag()? {
                match (shape, tag.number) {
                    (Shape::SchemaOrBool, 1) => allows = reader.number(tag)? != 0,
                    (Shape::SchemaOrBool, 2) | (Shape::SchemaOrArray | Shape::SchemaOrStrings, 1) => {
                        own.push(reader.bytes(tag)?);
                    }
                    (Shape::SchemaOrArray | Shape::SchemaOrStrings, 2) => {
                        let item = self.schema_or_item(shape, schema, reader.bytes(tag)?)?;
                        self.keep(item)?;
                    }
                    _ => reader.skip(tag)?,
                }
            }
        }
        if !own.is_empty() {
            self.pending.truncate(mark);
            return self.message(schema, &own);
        }
        let items = self.tree.push_children(&self.pending[mark..]);
        self.pending.truncate(mark);
        Ok(match shape {
            Shape::SchemaOrBool => Node::bool(allows),
            _ if items.1 > 0 => Node::list(items),
            _ => Node::NULL,
        })
    }

    fn schema_or_item(&mut self, shape: Shape, schema: TypeId, raw: &[u8]) -> Result<Node, DecodeError> {
        self.enter()?;
        let item = match shape {
            Shape::SchemaOrArray => self.message(schema, &[raw])?,
            _ => Node::str(self.tree.push_text(&String::from_utf8_lossy(raw))),
        };
        self.depth -= 1;
        Ok(item)
    }

    /// Puts the values since `mark` together as a struct in normal form.
    fn close(&mut self, id: TypeId, mark: usize) -> Node {
        let values = self.pending.split_off(mark);
        let mut values = values;
        if !values.is_sorted_by_key(|value| value.position()) {
            values.sort_by_key(|value| value.position());
        }
        let schema = self.schema;
        let fields = schema.fields(id);
        let mut always = schema
            .always(schema.ty(id))
            .iter()
            .map(|position| usize::from(*position))
            .peekable();
        for same in values.chunk_by(|a, b| a.position() == b.position()) {
            let position = same[0].position();
            while let Some(missing) = always.next_if(|missing| *missing < position) {
                let zero = self.tree.zero_field(schema, id, missing, self.depth);
                self.pending.push(zero);
            }
            always.next_if(|own| *own == position);
            let value = self.joined(fields[position].ty, same);
            if let Some(kept) = normal_field(&mut self.tree, &fields[position], value, self.depth) {
                self.pending.push(kept.in_field(position));
            }
        }
        for missing in always {
            let zero = self.tree.zero_field(schema, id, missing, self.depth);
            self.pending.push(zero);
        }
        let span = self.tree.push_children(&self.pending[mark..]);
        self.pending.truncate(mark);
        Node::map(span)
    }

    /// The values of one field: items of a list, entries of a map, else the last one counts.
    fn joined(&mut self, id: TypeId, values: &[Node]) -> Node {
        let ty = self.schema.ty(id);
        match ty.shape {
            Shape::List if !ty.wrapped => {
                let items: Vec<Node> = values.iter().map(|value| value.bare()).collect();
                Node::list(self.tree.push_children(&items))
            }
            Shape::Map => {
                let entries: Vec<Node> = values
                    .iter()
                    .flat_map(|value| self.tree.children(*value))
                    .copied()
                    .collect();
                let span = self.tree.push_children(&entries);
                let count = self.tree.sort_and_dedup(span);
                Node::map((span.0, count))
            }
            _ => values.last().map_or(Node::NULL, |value| value.bare()),
        }
    }
}

/// The field's value is one message, which may come in parts.
fn is_message(shape: Shape, wrapped: bool) -> bool {
    match shape {
        Shape::List => wrapped,
        Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::Float => false,
        Shape::Str | Shape::Bytes | Shape::Map | Shape::Any => false,
        _ => true,
    }
}

/// Wire type of packed numbers of a shape, which stand one after the other in one field.
fn packed(shape: Shape) -> Option<u8> {
    match shape {
        Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 => Some(VARINT),
        Shape::Float => Some(FIXED64),
        _ => None,
    }
}

/// Go's generated code keeps the low 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "that is the rule")]
fn truncated(value: i64) -> i32 {
    value as i32
}
