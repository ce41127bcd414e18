//! Building a [`Schema`](super::Schema): declare types (so that they may refer to each other), define them or [`import`] them,
//! [`finish`].

mod finish;
mod import;

use super::{Extra, Field, Group, ListType, MapType, NO_EXTRA, NameIndex, Shape, Text, Type, TypeId, Wire};
use crate::structural::Constraints;
use std::collections::HashMap;

/// A schema that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("type {0} was declared but never defined")]
    Undefined(String),
    #[error("the schema has more than {limit} {what}")]
    TooLarge { what: &'static str, limit: usize },
    #[error("the table's blob is damaged: {0}")]
    Blob(&'static str),
    #[error("the table's blob has format {found}, this program reads {known}")]
    Format { found: u32, known: u32 },
}

/// One field as its maker says it. `..FieldSpec::default()` fills the rest.
#[derive(Debug, Clone)]
pub struct FieldSpec {
    pub name: String,
    pub ty: TypeId,
    pub number: u16,
    pub wire: Wire,
    pub pointer: bool,
    pub omitempty: bool,
    pub omitzero: bool,
    pub required: bool,
    /// Counted from one into the groups given to [`SchemaBuilder::define_struct`].
    pub group: u8,
    pub list_type: ListType,
    pub map_type: MapType,
    pub map_keys: Vec<String>,
    pub patch_strategy: String,
    pub patch_merge_key: String,
    pub default: String,
    pub enum_values: Vec<String>,
    pub format: String,
    pub feature_gate: String,
}

impl Default for FieldSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            ty: TypeId::ANY,
            number: 0,
            wire: Wire::Varint,
            pointer: false,
            omitempty: false,
            omitzero: false,
            required: false,
            group: 0,
            list_type: ListType::Unset,
            map_type: MapType::Unset,
            map_keys: Vec::new(),
            patch_strategy: String::new(),
            patch_merge_key: String::new(),
            default: String::new(),
            enum_values: Vec::new(),
            format: String::new(),
            feature_gate: String::new(),
        }
    }
}

impl FieldSpec {
    /// A field with a name and a type, `omitempty` as most are.
    pub fn optional(name: &str, ty: TypeId) -> Self {
        Self {
            name: name.to_owned(),
            ty,
            omitempty: true,
            ..Self::default()
        }
    }

    /// A field that is always written.
    pub fn always(name: &str, ty: TypeId) -> Self {
        Self {
            name: name.to_owned(),
            ty,
            required: true,
            ..Self::default()
        }
    }
}

/// Collects types; see the module's comment.
#[derive(Debug)]
pub struct SchemaBuilder {
    pub(super) text: String,
    interned: HashMap<String, Text>,
    pub(super) types: Vec<Type>,
    defined: Vec<bool>,
    pub(super) fields: Vec<Field>,
    pub(super) extras: Vec<Extra>,
    pub(super) groups: Vec<Group>,
    pub(super) constraints: Vec<Constraints>,
    pub(super) named: HashMap<Box<str>, TypeId>,
    leaves: HashMap<(Shape, String), TypeId>,
    lists: HashMap<(Shape, TypeId), TypeId>,
}

impl Default for SchemaBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl SchemaBuilder {
    /// An empty schema; it has [`TypeId::ANY`] already.
    pub fn new() -> Self {
        let mut builder = Self {
            text: String::new(),
            interned: HashMap::new(),
            types: Vec::new(),
            defined: Vec::new(),
            fields: Vec::new(),
            extras: Vec::new(),
            groups: Vec::new(),
            constraints: Vec::new(),
            named: HashMap::new(),
            leaves: HashMap::new(),
            lists: HashMap::new(),
        };
        builder.push(Shape::Any, TypeId::ANY, "interface {}", true);
        builder
    }

    /// A type without parts, shared by (shape, Go name).
    pub fn leaf(&mut self, shape: Shape, go_name: &str) -> TypeId {
        if let Some(known) = self.leaves.get(&(shape, go_name.to_owned())) {
            return *known;
        }
        let id = self.push(shape, TypeId::ANY, go_name, true);
        self.leaves.insert((shape, go_name.to_owned()), id);
        id
    }

    /// A list of `item`, shared.
    pub fn list(&mut self, item: TypeId) -> TypeId {
        self.part_of(Shape::List, item, "[]")
    }

    /// A map from strings to `item`, shared.
    pub fn map(&mut self, item: TypeId) -> TypeId {
        self.part_of(Shape::Map, item, "map[string]")
    }

    /// One of the `SchemaOr…` shapes over the schema type `item`.
    pub fn schema_or(&mut self, shape: Shape, item: TypeId) -> TypeId {
        self.part_of(shape, item, "")
    }

    /// A list or map of its own, to be changed through [`type_mut`](Self::type_mut).
    pub fn own(&mut self, shape: Shape, item: TypeId, go_name: &str) -> TypeId {
        self.push(shape, item, go_name, true)
    }

    /// A struct to be defined later, found by `name`; `go_name` is what errors print.
    pub fn declare(&mut self, name: &str, go_name: &str) -> TypeId {
        if let Some(known) = self.named.get(name) {
            return *known;
        }
        let id = self.push(Shape::Struct, TypeId::ANY, go_name, false);
        self.named.insert(name.into(), id);
        id
    }

    /// A nameless struct, to be defined later.
    pub fn declare_anonymous(&mut self, go_name: &str) -> TypeId {
        self.push(Shape::Struct, TypeId::ANY, go_name, false)
    }

    /// Another name for a type.
    pub fn alias(&mut self, name: &str, id: TypeId) {
        self.named.insert(name.into(), id);
    }

    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.named.get(name).copied()
    }

    /// Gives a declared struct its fields, in Go's order; `groups` are the inlined ones.
    pub fn define_struct(&mut self, id: TypeId, specs: Vec<FieldSpec>, groups: &[Group]) {
        let first = index(self.fields.len());
        for spec in specs {
            let field = self.field(spec);
            self.fields.push(field);
        }
        let first_group = index(self.groups.len());
        self.groups.extend_from_slice(groups);
        let (fields, groups) = (
            first..index(self.fields.len()),
            first_group..index(self.groups.len()),
        );
        let ty = &mut self.types[id.index()];
        ty.fields = fields;
        ty.groups = groups;
        self.defined[id.index()] = true;
    }

    /// Changes what a type says of itself (flags, not its parts).
    pub fn type_mut(&mut self, id: TypeId) -> &mut Type {
        &mut self.types[id.index()]
    }

    /// Attaches constraints to a type.
    pub fn constrain(&mut self, id: TypeId, constraints: Constraints) {
        self.types[id.index()].constraints = Some(index(self.constraints.len()));
        self.constraints.push(constraints);
    }

    pub fn intern(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return Text::default();
        }
        if let Some(known) = self.interned.get(text) {
            return *known;
        }
        let made = Text {
            start: index(self.text.len()),
            len: index(text.len()),
        };
        self.text.push_str(text);
        self.interned.insert(text.to_owned(), made);
        made
    }

    fn part_of(&mut self, shape: Shape, item: TypeId, prefix: &str) -> TypeId {
        if let Some(known) = self.lists.get(&(shape, item)) {
            return *known;
        }
        let name = format!("{prefix}{}", &self.text[self.types[item.index()].go_name.range()]);
        let id = self.push(shape, item, &name, true);
        self.lists.insert((shape, item), id);
        id
    }

    fn push(&mut self, shape: Shape, item: TypeId, go_name: &str, defined: bool) -> TypeId {
        let go_name = self.intern(go_name);
        let id = TypeId(index(self.types.len()));
        self.types.push(Type {
            shape,
            item,
            go_name,
            map_type: MapType::Unset,
            typed: true,
            preserve_unknown: false,
            embedded: false,
            wrapped: false,
            nullable: false,
            constraints: None,
            fields: 0..0,
            always: 0..0,
            defaults: 0..0,
            defaulted: false,
            names: NameIndex::default(),
            groups: 0..0,
        });
        self.defined.push(defined);
        id
    }

    fn field(&mut self, spec: FieldSpec) -> Field {
        let extra = self.extra(&spec);
        Field {
            name: self.intern(&spec.name),
            ty: spec.ty,
            number: spec.number,
            wire: spec.wire,
            pointer: spec.pointer,
            omitempty: spec.omitempty,
            omitzero: spec.omitzero,
            required: spec.required,
            group: spec.group,
            extra,
        }
    }

    fn extra(&mut self, spec: &FieldSpec) -> u32 {
        let texts = [
            &spec.patch_strategy,
            &spec.patch_merge_key,
            &spec.default,
            &spec.format,
            &spec.feature_gate,
        ];
        let plain = spec.list_type == ListType::Unset
            && spec.map_type == MapType::Unset
            && spec.map_keys.is_empty()
            && spec.enum_values.is_empty()
            && texts.iter().all(|text| text.is_empty());
        if plain {
            return NO_EXTRA;
        }
        let strategy = |word: &str| spec.patch_strategy.split(',').any(|own| own.trim() == word);
        let extra = Extra {
            list_type: spec.list_type,
            map_type: spec.map_type,
            map_keys: spec.map_keys.iter().map(|key| self.intern(key)).collect(),
            patch_merge: strategy("merge"),
            patch_replace: strategy("replace"),
            patch_retain_keys: strategy("retainKeys"),
            patch_merge_key: self.intern(&spec.patch_merge_key),
            default: self.intern(&spec.default),
            enum_values: spec.enum_values.iter().map(|value| self.intern(value)).collect(),
            format: self.intern(&spec.format),
            feature_gate: self.intern(&spec.feature_gate),
        };
        self.extras.push(extra);
        index(self.extras.len() - 1)
    }
}

/// Positions fit 32 bits; [`SchemaBuilder::finish`] refuses a text that does not.
fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
