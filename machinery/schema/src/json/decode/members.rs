//! Members of objects: those of a struct by its fields, those of a map by their names.

use super::Decoder;
use crate::json::DecodeError;
use crate::json::scan::Literal;
use crate::json::strict::PathStep;
use crate::normal::normal_field;
use crate::table::{Shape, TypeId};
use crate::tree::{Node, Tag};

impl Decoder<'_> {
    pub(super) fn members_of_struct(&mut self, id: TypeId) -> Result<Node, DecodeError> {
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

    pub(super) fn members_of_map(&mut self, item: TypeId) -> Result<Node, DecodeError> {
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

    /// An object of a custom kind where the schema has no members: it loses them all, and each is reported.
    #[cold]
    pub(super) fn no_members(&mut self) -> Result<Node, DecodeError> {
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
    pub(super) fn keeps_null(&self, item: TypeId) -> bool {
        let ty = self.schema.ty(item);
        item == TypeId::ANY || ty.typed || ty.nullable
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
