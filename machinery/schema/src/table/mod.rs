//! The table's form: what the engines know about types and fields.
//!
//! A [`Schema`] is a handful of flat arrays: types, their fields in Go's declaration order (inlined structs
//! flattened), rare attributes on the side, and one text that all names are slices of. Built-in kinds and
//! CRDs have the same form; [`SchemaBuilder`] makes both, [`blob`] writes and reads the generated one.

pub mod blob;
mod builder;
mod index;

pub use builder::{FieldSpec, SchemaBuilder, SchemaError};

use index::{NameIndex, Slot};
use std::collections::HashMap;
use std::ops::Range;

/// A type of a schema. [`TypeId::ANY`] is free-form JSON in every schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

impl TypeId {
    /// Any JSON value; unknown-typed subtrees, `RawExtension` contents, CRs without a schema.
    pub const ANY: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slice of the schema's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Text {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Text {
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(crate) fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

/// Form of a type's values, which also decides the leaf rules that apply to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Shape {
    /// Free-form JSON, object keys in sorted order (Go's `map[string]any`).
    Any,
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Float,
    Str,
    /// Base64 text in JSON, bytes in protobuf.
    Bytes,
    Struct,
    List,
    Map,
    /// Text, written back in canonical form.
    Quantity,
    /// RFC 3339 with seconds; null when zero.
    Time,
    /// RFC 3339 with microseconds; null when zero.
    MicroTime,
    /// Go's duration text.
    Duration,
    /// A 32-bit number or a string.
    IntOrString,
    /// Opaque JSON (`RawExtension`, `FieldsV1`, apiextensions' `JSON`), member order kept.
    Raw,
    /// A boolean or a schema (`JSONSchemaPropsOrBool`); `item` is the schema.
    SchemaOrBool,
    /// One schema or a list (`JSONSchemaPropsOrArray`); `item` is the schema.
    SchemaOrArray,
    /// A schema or a list of strings (`JSONSchemaPropsOrStringArray`); `item` is the schema.
    SchemaOrStrings,
}

impl Shape {
    pub(crate) const ALL: [Self; 21] = [
        Self::Any,
        Self::Bool,
        Self::Int32,
        Self::Int64,
        Self::Uint32,
        Self::Uint64,
        Self::Float,
        Self::Str,
        Self::Bytes,
        Self::Struct,
        Self::List,
        Self::Map,
        Self::Quantity,
        Self::Time,
        Self::MicroTime,
        Self::Duration,
        Self::IntOrString,
        Self::Raw,
        Self::SchemaOrBool,
        Self::SchemaOrArray,
        Self::SchemaOrStrings,
    ];

    /// Go's kind of the value is struct: never empty for `omitempty`, zero value by fields.
    pub fn is_go_struct(self) -> bool {
        matches!(
            self,
            Self::Struct
                | Self::Quantity
                | Self::Time
                | Self::MicroTime
                | Self::Duration
                | Self::IntOrString
                | Self::Raw
                | Self::SchemaOrBool
                | Self::SchemaOrArray
                | Self::SchemaOrStrings
        )
    }
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ListType {
    #[default]
    Unset,
    Atomic,
    Set,
    Map,
}

/// `x-kubernetes-map-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum MapType {
    #[default]
    Unset,
    Atomic,
    Granular,
}

/// The protobuf wire type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Wire {
    #[default]
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

/// One type.
#[derive(Debug, Clone)]
pub struct Type {
    pub shape: Shape,
    /// Of lists and maps the element, of `SchemaOr…` the schema.
    pub item: TypeId,
    /// Go's name (`v1.PodSpec`, `int32`), as decode errors print it.
    pub go_name: Text,
    /// `x-kubernetes-map-type` of the type itself.
    pub map_type: MapType,
    /// Follows upstream's typed decoder: nulls become zero values, zero values appear, `omitempty` goes.
    /// Custom resources below `metadata` do not.
    pub typed: bool,
    /// Struct of a custom kind that keeps fields it does not know.
    pub preserve_unknown: bool,
    /// Struct of a custom kind that is a whole object (`apiVersion`, `kind`, `metadata` are implied).
    pub embedded: bool,
    /// Null is a value of its own (CRDs).
    pub nullable: bool,
    /// Constraints of a custom kind's value.
    pub constraints: Option<u32>,
    pub(crate) fields: Range<u32>,
    pub(crate) always: Range<u32>,
    /// Its own fields with a default, in [`Schema::defaults`].
    pub(crate) defaults: Range<u32>,
    /// The type or one below it has a field with a default.
    pub(crate) defaulted: bool,
    pub(crate) names: NameIndex,
    /// A named list that protobuf wraps in a message of its own (`meta/v1.Verbs`).
    pub wrapped: bool,
    /// Inlined structs as protobuf has them; [`Field::group`] counts from one.
    pub(crate) groups: Range<u32>,
}

/// An inlined struct, which in protobuf is a message like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Go's name of the field, which errors of Go's decoder put into paths.
    pub name: Text,
    pub number: u16,
    /// The inlined struct it stands in itself, counted from one; 0 is the outer one.
    pub parent: u8,
}

/// One field of a struct, in JSON terms.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: Text,
    pub ty: TypeId,
    /// Protobuf number; 0 when the field is not on the wire.
    pub number: u16,
    pub wire: Wire,
    /// Go has a pointer: absent and zero differ.
    pub pointer: bool,
    pub omitempty: bool,
    pub omitzero: bool,
    /// OpenAPI's `required`.
    pub required: bool,
    /// Number of the inlined struct that holds the field on the wire, counted from one; 0 is the struct itself.
    pub group: u8,
    /// Index of its [`Extra`], or `NO_EXTRA`.
    pub(crate) extra: u32,
}

pub(crate) const NO_EXTRA: u32 = u32::MAX;

/// Attributes that few fields have.
#[derive(Debug, Clone, Default)]
pub struct Extra {
    pub list_type: ListType,
    pub map_type: MapType,
    pub map_keys: Vec<Text>,
    /// `patchStrategy` has `merge`.
    pub patch_merge: bool,
    /// `patchStrategy` has `replace`.
    pub patch_replace: bool,
    /// `patchStrategy` has `retainKeys`.
    pub patch_retain_keys: bool,
    pub patch_merge_key: Text,
    /// The default as JSON text.
    pub default: Text,
    pub enum_values: Vec<Text>,
    pub format: Text,
    pub feature_gate: Text,
}

/// A set of types the engines run on. Shared as `Arc<Schema>`; never changes once built.
#[derive(Debug)]
pub struct Schema {
    pub(crate) text: Box<str>,
    pub(crate) types: Box<[Type]>,
    pub(crate) fields: Box<[Field]>,
    pub(crate) extras: Box<[Extra]>,
    /// Positions (within their struct) of fields that appear even when they have no value.
    pub(crate) always: Box<[u16]>,
    /// Positions (within their struct) of fields with a default that does something.
    pub(crate) defaults: Box<[u16]>,
    pub(crate) groups: Box<[Group]>,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) constraints: Box<[crate::structural::Constraints]>,
    pub(crate) named: HashMap<Box<str>, TypeId>,
    pub(crate) fingerprint: u64,
}

impl Schema {
    pub fn ty(&self, id: TypeId) -> &Type {
        &self.types[id.index()]
    }

    pub fn text(&self, text: Text) -> &str {
        &self.text[text.range()]
    }

    /// The fields of a struct in Go's order; empty for other types.
    pub fn fields(&self, id: TypeId) -> &[Field] {
        let range = &self.ty(id).fields;
        &self.fields[range.start as usize..range.end as usize]
    }

    /// A struct's field by its JSON name, case and all, with its position.
    pub fn field(&self, id: TypeId, name: &str) -> Option<(usize, &Field)> {
        let ty = self.ty(id);
        let fields = &self.fields[ty.fields.start as usize..ty.fields.end as usize];
        let found = ty.names.find(&self.slots, name.as_bytes(), |position| {
            fields
                .get(position)
                .is_some_and(|field| self.text(field.name) == name)
        })?;
        Some((found, &fields[found]))
    }

    /// The type a value of field `position` has.
    pub fn field_at(&self, id: TypeId, position: usize) -> Option<&Field> {
        self.fields(id).get(position)
    }

    pub fn extra(&self, field: &Field) -> Option<&Extra> {
        self.extras.get(field.extra as usize)
    }

    /// The default of a field as JSON text.
    pub fn default_of(&self, field: &Field) -> Option<&str> {
        self.extra(field)
            .map(|extra| self.text(extra.default))
            .filter(|text| !text.is_empty())
    }

    /// The feature gates a field stands behind, comma separated.
    pub fn gate_at(&self, id: TypeId, position: usize) -> Option<&str> {
        let extra = self.extra(self.field_at(id, position)?)?;
        (!extra.feature_gate.is_empty()).then(|| self.text(extra.feature_gate))
    }

    /// A type by its full Go name (`k8s.io/api/core/v1.Pod`), or by the name it was declared under.
    pub fn type_named(&self, name: &str) -> Option<TypeId> {
        self.named.get(name).copied()
    }

    /// All declared names, for tools.
    pub fn names(&self) -> impl Iterator<Item = (&str, TypeId)> {
        self.named.iter().map(|(name, id)| (name.as_ref(), *id))
    }

    pub fn type_count(&self) -> usize {
        self.types.len()
    }

    /// Differs whenever the table differs; stored records name it.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Go's name of a type without its package: what decode errors call the struct.
    pub fn struct_name(&self, id: TypeId) -> &str {
        let name = self.text(self.ty(id).go_name);
        name.rsplit_once('.').map_or(name, |(_, last)| last)
    }

    pub(crate) fn always(&self, ty: &Type) -> &[u16] {
        &self.always[ty.always.start as usize..ty.always.end as usize]
    }

    pub(crate) fn defaults(&self, ty: &Type) -> &[u16] {
        &self.defaults[ty.defaults.start as usize..ty.defaults.end as usize]
    }

    pub(crate) fn groups(&self, ty: &Type) -> &[Group] {
        &self.groups[ty.groups.start as usize..ty.groups.end as usize]
    }
}
