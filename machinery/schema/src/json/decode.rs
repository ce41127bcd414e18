//! Typed decoding.

use super::scan::{Literal, Scanner, unescape};
use super::strict::{PathStep, Strict};
use super::{DecodeError, Decoded, MAX_INPUT, Strictness};
use crate::MAX_DEPTH;
use crate::leaf;
use crate::normal::normal_field;
use crate::table::{Schema, Shape, TypeId};
use crate::tree::{MAX_NODES, Node, Tag, Tree, narrow};
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

    fn members_of_struct(&mut self, id: TypeId) -> Result<Node, DecodeError> {
        self.enter()?;
        let mark = self.pending.len();
        let mut seen = SeenFields::default();
        if !self.scan.take(b'}') {
            loop {
                self.member_of_struct(id, &mut seen)?;
                if !self.scan.more(b'}', "after object key:value pair")? {
                    break;
                }
            }
        }
        let node = self.close_struct(id, mark, &seen);
        self.depth -= 1;
        Ok(node)
    }

    fn member_of_struct(&mut self, id: TypeId, seen: &mut SeenFields) -> Result<(), DecodeError> {
        let key = self.scan.key()?;
        let schema = self.schema;
        let name = self.literal_text(key)?;
        let Some((position, field)) = schema.field(id, &name) else {
            return self.unknown_member(id, key, &name);
        };
        let again = !seen.insert(position);
        if again {
            self.strict.duplicate(schema, &self.tree.text, &name);
            seen.repeated = true;
        }
        self.strict.path.push(PathStep::Field { parent: id, position });
        let start = self.scan.at;
        let value = self.value(field.ty)?;
        let is_embedded = schema.ty(id).embedded && self.depth > 1;
        if is_embedded && value.tag() != Tag::Str && matches!(&*name, "apiVersion" | "kind") {
            self.not_a_string(start);
        }
        self.strict.path.pop();
        let kept = if schema.ty(id).typed {
            normal_field(&mut self.tree, field, value, self.depth)
        } else {
            // Of custom resources a null that may not be goes, and a default may take its place.
            match value.is_null() {
                true => self.keeps_null(field.ty).then(|| self.embedded_null(field.ty)),
                false => Some(value),
            }
        };
        match kept {
            Some(node) => self.keep(node.in_field(position)),
            // The last one counts, also where it leaves nothing.
            None if again => self.keep(Node::gone(position)),
            None => Ok(()),
        }
    }

    /// A member the struct has no field for: dropped and reported, unless the type keeps what it does not know.
    #[cold]
    fn unknown_member(&mut self, id: TypeId, key: Literal, name: &str) -> Result<(), DecodeError> {
        let ty = self.schema.ty(id);
        if !ty.preserve_unknown {
            self.strict.unknown(self.schema, &self.tree.text, name);
            return self.scan.skip(self.depth);
        }
        let span = self.literal_span(key)?;
        self.strict.path.push(PathStep::Key {
            start: span.0,
            len: span.1,
        });
        let value = self.value(ty.item)?;
        self.strict.path.pop();
        self.keep(value.in_key(span))
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

    fn close_struct(&mut self, id: TypeId, mark: usize, seen: &SeenFields) -> Node {
        for position in self.schema.always(self.schema.ty(id)) {
            let position = usize::from(*position);
            if !seen.has(position) {
                let zero = self.tree.zero_field(self.schema, id, position, self.depth);
                self.pending.push(zero);
            }
        }
        let order = |node: &Node| {
            if node.is_named() {
                usize::MAX
            } else {
                node.position()
            }
        };
        let children = &mut self.pending[mark..];
        if !children.is_sorted_by_key(order) {
            children.sort_by_key(order);
        }
        if seen.repeated {
            self.drop_repeated(mark);
        }
        if let Some(last) = self.pending[mark..].last()
            && last.is_named()
        {
            let first = self.pending[mark..]
                .iter()
                .position(|node| node.is_named())
                .unwrap_or(0);
            self.sort_named(mark + first);
        }
        self.close(mark, Node::map)
    }

    /// Keeps the last of a field's values, which stand together in the order of the document.
    #[cold]
    fn drop_repeated(&mut self, mark: usize) {
        let children = self.pending.split_off(mark);
        let same = |a: &Node, b: &Node| !a.is_named() && !b.is_named() && a.position() == b.position();
        let last = children.chunk_by(same).filter_map(|values| values.last());
        self.pending.extend(last.filter(|value| !value.is_gone()));
    }

    fn members_of_map(&mut self, item: TypeId) -> Result<Node, DecodeError> {
        self.enter()?;
        let mark = self.pending.len();
        if !self.scan.take(b'}') {
            loop {
                let key = self.scan.key()?;
                let span = self.literal_span(key)?;
                let value = self.element(
                    item,
                    PathStep::Key {
                        start: span.0,
                        len: span.1,
                    },
                )?;
                if !value.is_null() || self.keeps_null(item) {
                    self.keep(value.in_key(span))?;
                }
                if !self.scan.more(b'}', "after object key:value pair")? {
                    break;
                }
            }
        }
        self.depth -= 1;
        self.sort_named(mark);
        Ok(self.close(mark, Node::map))
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

    /// An object of a custom kind where the schema has no members: it loses them all, and each is reported.
    #[cold]
    fn no_members(&mut self) -> Result<Node, DecodeError> {
        self.enter()?;
        let mark = self.pending.len();
        if !self.scan.take(b'}') {
            loop {
                let key = self.scan.key()?;
                let name = self.literal_text(key)?;
                self.strict.unknown(self.schema, &self.tree.text, &name);
                self.scan.skip(self.depth)?;
                if !self.scan.more(b'}', "after object key:value pair")? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(self.close(mark, Node::map))
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

    /// Refuses what an object within a custom object says of its type; the value begins at `start`.
    #[cold]
    fn not_a_string(&mut self, start: usize) {
        if self.wrong_type.is_none() {
            let shown = self.scan.slice(start, self.scan.at).trim();
            let path = self.strict.full(self.schema, &self.tree.text);
            self.wrong_type = Some(format!("{path}: Invalid value: {shown}: must be a string"));
        }
    }

    /// Metadata of an object within a custom object that is null has no members.
    fn embedded_null(&mut self, ty: TypeId) -> Node {
        match self.schema.ty(ty).shape {
            Shape::Struct if self.schema.ty(ty).typed => self.tree.zero(ty, self.depth),
            _ => Node::NULL,
        }
    }

    /// A custom kind's map drops nulls that its values may not be.
    fn keeps_null(&self, item: TypeId) -> bool {
        let ty = self.schema.ty(item);
        item == TypeId::ANY || ty.typed || ty.nullable
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

    /// Puts the named children from `from` on in order; of equal keys the last stays and is reported.
    fn sort_named(&mut self, from: usize) {
        let text = self.tree.text.as_bytes();
        let key = |node: &Node| {
            let (start, len) = node.key_slice();
            &text[start as usize..(start + len) as usize]
        };
        let children = &mut self.pending[from..];
        if children.is_sorted_by(|a, b| key(a) < key(b)) {
            return;
        }
        children.sort_by(|a, b| key(a).cmp(key(b)));
        let mut kept: Vec<Node> = Vec::with_capacity(children.len());
        let mut duplicates = Vec::new();
        for child in children.iter() {
            match kept.last_mut() {
                Some(last) if key(last) == key(child) => {
                    *last = *child;
                    duplicates.push(String::from_utf8_lossy(key(child)).into_owned());
                }
                _ => kept.push(*child),
            }
        }
        self.pending.truncate(from);
        self.pending.append(&mut kept);
        for name in duplicates {
            self.strict.duplicate(self.schema, &self.tree.text, &name);
        }
    }

    fn close(&mut self, mark: usize, make: fn((u32, u32)) -> Node) -> Node {
        let span = self.tree.push_children(&self.pending[mark..]);
        self.pending.truncate(mark);
        make(span)
    }

    fn raw(&mut self) -> Result<Node, DecodeError> {
        let start = self.scan.at;
        self.scan.skip(self.depth)?;
        let input = self.scan.slice(start, self.scan.at);
        if !input.bytes().any(|byte| byte.is_ascii_whitespace()) {
            return Ok(Node::raw((narrow(start), narrow(input.len()))));
        }
        let compact = leaf::compact_json(input);
        Ok(Node::raw(self.tree.push_text(&compact)))
    }

    fn string(&mut self, id: TypeId, shape: Shape) -> Result<Node, DecodeError> {
        let literal = self.scan.string()?;
        if matches!(shape, Shape::Str | Shape::Any | Shape::IntOrString) {
            return self.literal_span(literal).map(Node::str);
        }
        if !self.schema.ty(id).typed {
            return self.literal_span(literal).map(Node::str);
        }
        if !leaf::is_text(shape) {
            return self.mismatched(id, shape, "string");
        }
        let text = self.literal_text(literal)?;
        match leaf::canonical(shape, &text).map_err(DecodeError::Value)? {
            Some(other) => Ok(Node::str(self.tree.push_text(&other))),
            None => self.literal_span(literal).map(Node::str),
        }
    }

    fn boolean(&mut self, id: TypeId, shape: Shape, value: bool) -> Node {
        if matches!(shape, Shape::Bool | Shape::Any | Shape::SchemaOrBool) || !self.schema.ty(id).typed {
            return Node::bool(value);
        }
        self.wrong(id, "bool");
        self.tree.zero(id, self.depth)
    }

    fn number(&mut self, id: TypeId, shape: Shape) -> Result<Node, DecodeError> {
        let number = self.scan.number()?;
        let text = self.scan.slice(number.start, number.end);
        let whole = if number.whole {
            text.parse::<i64>().ok()
        } else {
            None
        };
        if shape == Shape::Any || !self.schema.ty(id).typed {
            return self.free_number(whole, text);
        }
        let fits = |least: i64, most: i64| whole.filter(|value| (least..=most).contains(value));
        let value = match shape {
            Shape::Int32 | Shape::IntOrString => fits(i64::from(i32::MIN), i64::from(i32::MAX)),
            Shape::Int64 => whole,
            Shape::Uint32 => fits(0, i64::from(u32::MAX)),
            Shape::Uint64 => fits(0, i64::MAX),
            Shape::Float => return Ok(Node::float(text.parse().unwrap_or(0.0))),
            Shape::Quantity => {
                let canonical = leaf::canonical(shape, text).map_err(DecodeError::Value)?;
                return Ok(Node::str(
                    self.tree.push_text(canonical.as_deref().unwrap_or(text)),
                ));
            }
            _ => return self.mismatched(id, shape, "number"),
        };
        if value.is_none() {
            self.wrong(id, &format!("number {text}"));
        }
        Ok(Node::int(value.unwrap_or(0)))
    }

    fn free_number(&mut self, whole: Option<i64>, text: &str) -> Result<Node, DecodeError> {
        if let Some(whole) = whole {
            return Ok(Node::int(whole));
        }
        match text.parse::<f64>() {
            // Zero has no sign.
            Ok(value) if value.is_finite() => Ok(Node::float(value + 0.0)),
            _ => {
                let context = self.strict.go_context(self.schema, "float64");
                Err(DecodeError::Type(format!(
                    "json: cannot unmarshal number {text} {context}"
                )))
            }
        }
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

    /// A scalar where the type has none.
    #[cold]
    fn mismatched(&mut self, id: TypeId, shape: Shape, what: &str) -> Result<Node, DecodeError> {
        match shape {
            Shape::SchemaOrBool => Err(DecodeError::Value("boolean or JSON schema expected".to_owned())),
            Shape::SchemaOrArray | Shape::SchemaOrStrings => Ok(Node::NULL),
            _ => {
                self.wrong(id, what);
                Ok(self.tree.zero(id, self.depth))
            }
        }
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

/// Fields of a struct that the document had.
#[derive(Default)]
struct SeenFields {
    first: u128,
    /// A bit for each of the fields behind those.
    others: Vec<u64>,
    /// Some field came twice.
    repeated: bool,
}

impl SeenFields {
    /// Says whether it is new.
    fn insert(&mut self, position: usize) -> bool {
        let new = !self.has(position);
        if position < 128 {
            self.first |= 1 << position;
        } else {
            let word = (position - 128) / 64;
            self.others.resize(self.others.len().max(word + 1), 0);
            self.others[word] |= 1 << (position % 64);
        }
        new
    }

    fn has(&self, position: usize) -> bool {
        if position < 128 {
            return self.first & 1 << position != 0;
        }
        let word = self.others.get((position - 128) / 64);
        word.is_some_and(|word| word & 1 << (position % 64) != 0)
    }
}
