//! The generated table as bytes, and back.
//!
//! A header (magic, format, counts) and flat little-endian records; names are slices of one text at the end.
//! Reading is one pass that fills the arrays of [`Schema`]; the text of a blob built into the binary is
//! copied once. Types of custom kinds (with constraints) are never written.

use super::{
    Extra, Field, Group, ListType, MapType, NO_EXTRA, NameIndex, Schema, SchemaBuilder, SchemaError, Shape,
    Text, Type, TypeId, Wire,
};

const MAGIC: &[u8; 4] = b"knT1";
const FORMAT: u32 = 2;
/// No count in a blob may exceed this; a damaged one must not request memory.
const MAX_RECORDS: u32 = 1 << 20;

/// The schema as a blob.
pub fn write(schema: &Schema) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(schema.text.len() + schema.fields.len() * 32));
    out.0.extend_from_slice(MAGIC);
    out.u32(FORMAT);
    out.count(schema.types.len());
    for ty in &schema.types {
        write_type(&mut out, ty);
    }
    out.count(schema.fields.len());
    for field in &schema.fields {
        write_field(&mut out, field);
    }
    out.count(schema.extras.len());
    for extra in &schema.extras {
        write_extra(&mut out, extra);
    }
    out.count(schema.groups.len());
    for group in &schema.groups {
        out.text(group.name);
        out.u16(group.number);
        out.u8(group.parent);
    }
    let mut named: Vec<_> = schema.named.iter().collect();
    named.sort();
    out.count(named.len());
    for (name, id) in named {
        out.bytes(name.as_bytes());
        out.u32(id.0);
    }
    out.bytes(schema.text.as_bytes());
    out.0
}

/// Reads what [`fn@write`] wrote.
pub fn read(blob: &[u8]) -> Result<Schema, SchemaError> {
    let mut input = Reader(blob);
    if input.take(4)? != MAGIC {
        return Err(SchemaError::Blob("it does not begin as one"));
    }
    let found = input.u32()?;
    if found != FORMAT {
        return Err(SchemaError::Format { found, known: FORMAT });
    }
    let mut builder = SchemaBuilder::new();
    builder.types = input.list(read_type)?;
    builder.fields = input.list(read_field)?;
    builder.extras = input.list(read_extra)?;
    builder.groups = input.list(|input| {
        Ok(Group {
            name: input.slice()?,
            number: input.u16()?,
            parent: input.u8()?,
        })
    })?;
    let named = input.list(|input| Ok((input.text()?.to_owned(), TypeId(input.u32()?))))?;
    builder.named = named
        .into_iter()
        .map(|(name, id)| (name.into_boxed_str(), id))
        .collect();
    builder.text = input.text()?.to_owned();
    check(&builder)?;
    builder.finish_read()
}

/// Everything that points somewhere points inside.
fn check(builder: &SchemaBuilder) -> Result<(), SchemaError> {
    let types = builder.types.len();
    let text = |text: &Text| builder.text.get(text.range()).is_some();
    let range =
        |range: &std::ops::Range<u32>, len: usize| range.start <= range.end && range.end as usize <= len;
    let type_ok = |ty: &Type| {
        ty.item.index() < types
            && text(&ty.go_name)
            && range(&ty.fields, builder.fields.len())
            && range(&ty.groups, builder.groups.len())
    };
    let field_ok = |field: &Field| {
        field.ty.index() < types
            && text(&field.name)
            && (field.extra == NO_EXTRA || (field.extra as usize) < builder.extras.len())
    };
    let extra_ok = |extra: &Extra| {
        let texts = [
            &extra.patch_merge_key,
            &extra.default,
            &extra.format,
            &extra.feature_gate,
        ];
        texts
            .into_iter()
            .chain(&extra.map_keys)
            .chain(&extra.enum_values)
            .all(text)
    };
    let sound = types > 0
        && builder.types.iter().all(type_ok)
        && builder.fields.iter().all(field_ok)
        && builder.extras.iter().all(extra_ok)
        && builder.groups.iter().all(|group| text(&group.name))
        && builder.named.values().all(|id| id.index() < types);
    if sound {
        Ok(())
    } else {
        Err(SchemaError::Blob("a record points outside"))
    }
}

/// A number for the schema's whole content (FNV-1a over eight bytes at a time).
pub(super) fn fingerprint(schema: &Schema) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut feed = |bytes: &[u8]| {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
            hash ^= hash >> 29;
        }
    };
    feed(&write(schema));
    for constraints in &schema.constraints {
        feed(format!("{constraints:?}").as_bytes());
    }
    hash
}

fn write_type(out: &mut Writer, ty: &Type) {
    out.u8(ty.shape as u8);
    out.u32(ty.item.0);
    out.text(ty.go_name);
    out.u8(ty.map_type as u8);
    out.flags(&[
        ty.typed,
        ty.preserve_unknown,
        ty.embedded,
        ty.nullable,
        ty.wrapped,
    ]);
    for number in [ty.fields.start, ty.fields.end, ty.groups.start, ty.groups.end] {
        out.u32(number);
    }
}

fn read_type(input: &mut Reader<'_>) -> Result<Type, SchemaError> {
    let shape = Shape::ALL.get(usize::from(input.u8()?)).copied();
    let shape = shape.ok_or(SchemaError::Blob("an unknown shape"))?;
    let (item, go_name, map_type) = (TypeId(input.u32()?), input.slice()?, map_type(input.u8()?));
    let [typed, preserve_unknown, embedded, nullable, wrapped, ..] = input.flags()?;
    let fields = input.u32()?..input.u32()?;
    let groups = input.u32()?..input.u32()?;
    Ok(Type {
        shape,
        item,
        go_name,
        map_type,
        typed,
        preserve_unknown,
        embedded,
        nullable,
        wrapped,
        constraints: None,
        fields,
        always: 0..0,
        defaults: 0..0,
        defaulted: false,
        names: NameIndex::default(),
        groups,
    })
}

fn write_field(out: &mut Writer, field: &Field) {
    out.text(field.name);
    out.u32(field.ty.0);
    out.u16(field.number);
    out.u8(field.wire as u8);
    out.flags(&[field.pointer, field.omitempty, field.omitzero, field.required]);
    out.u8(field.group);
    out.u32(field.extra);
}

fn read_field(input: &mut Reader<'_>) -> Result<Field, SchemaError> {
    let (name, ty, number) = (input.slice()?, TypeId(input.u32()?), input.u16()?);
    let wire = match input.u8()? {
        0 => Wire::Varint,
        1 => Wire::Fixed64,
        2 => Wire::Bytes,
        3 => Wire::Fixed32,
        _ => return Err(SchemaError::Blob("an unknown wire type")),
    };
    let [pointer, omitempty, omitzero, required, ..] = input.flags()?;
    let (group, extra) = (input.u8()?, input.u32()?);
    Ok(Field {
        name,
        ty,
        number,
        wire,
        pointer,
        omitempty,
        omitzero,
        required,
        group,
        extra,
    })
}

fn write_extra(out: &mut Writer, extra: &Extra) {
    out.u8(extra.list_type as u8);
    out.u8(extra.map_type as u8);
    out.flags(&[extra.patch_merge, extra.patch_replace, extra.patch_retain_keys]);
    for list in [&extra.map_keys, &extra.enum_values] {
        out.count(list.len());
        list.iter().for_each(|text| out.text(*text));
    }
    for text in [
        extra.patch_merge_key,
        extra.default,
        extra.format,
        extra.feature_gate,
    ] {
        out.text(text);
    }
}

fn read_extra(input: &mut Reader<'_>) -> Result<Extra, SchemaError> {
    let list_type = match input.u8()? {
        1 => ListType::Atomic,
        2 => ListType::Set,
        3 => ListType::Map,
        _ => ListType::Unset,
    };
    let map_type = map_type(input.u8()?);
    let [patch_merge, patch_replace, patch_retain_keys, ..] = input.flags()?;
    let map_keys = input.list(Reader::slice)?;
    let enum_values = input.list(Reader::slice)?;
    Ok(Extra {
        list_type,
        map_type,
        map_keys,
        patch_merge,
        patch_replace,
        patch_retain_keys,
        patch_merge_key: input.slice()?,
        default: input.slice()?,
        enum_values,
        format: input.slice()?,
        feature_gate: input.slice()?,
    })
}

fn map_type(byte: u8) -> MapType {
    match byte {
        1 => MapType::Atomic,
        2 => MapType::Granular,
        _ => MapType::Unset,
    }
}

/// Little-endian output, shared with the kinds' part of the table in `machinery-api`.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn count(&mut self, value: usize) {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX));
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.count(value.len());
        self.0.extend_from_slice(value);
    }

    /// Up to eight yes-or-no answers in a byte.
    pub fn flags(&mut self, flags: &[bool]) {
        self.u8(flags
            .iter()
            .enumerate()
            .fold(0, |byte, (at, flag)| byte | (u8::from(*flag) << at)));
    }

    fn text(&mut self, text: Text) {
        self.u32(text.start);
        self.u32(text.len);
    }
}

/// Bounded input; every read that would pass the end is an error.
#[derive(Debug, Clone)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], SchemaError> {
        let (head, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(SchemaError::Blob("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub fn u8(&mut self) -> Result<u8, SchemaError> {
        Ok(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Result<u16, SchemaError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub fn u32(&mut self) -> Result<u32, SchemaError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn text(&mut self) -> Result<&'a str, SchemaError> {
        let count = self.u32()? as usize;
        std::str::from_utf8(self.take(count)?).map_err(|_| SchemaError::Blob("a name is not UTF-8"))
    }

    pub fn flags(&mut self) -> Result<[bool; 8], SchemaError> {
        let byte = self.u8()?;
        Ok(std::array::from_fn(|at| byte >> at & 1 == 1))
    }

    /// A counted list; the count is checked before memory is requested.
    pub fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SchemaError>,
    ) -> Result<Vec<T>, SchemaError> {
        let count = self.u32()?;
        if count > MAX_RECORDS || count as usize > self.0.len() {
            return Err(SchemaError::Blob("an impossible count"));
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn slice(&mut self) -> Result<Text, SchemaError> {
        Ok(Text {
            start: self.u32()?,
            len: self.u32()?,
        })
    }
}
