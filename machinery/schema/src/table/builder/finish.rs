//! The end of building: checks, and what is found by name or needed at every decode.

use super::{SchemaBuilder, SchemaError, index};
use crate::table::{Field, NameIndex, Schema, Text, TypeId, blob};

impl SchemaBuilder {
    /// Checks and freezes.
    pub fn finish(mut self) -> Result<Schema, SchemaError> {
        if let Some(open) = self.defined.iter().position(|defined| !defined) {
            let name = self.types[open].go_name;
            return Err(SchemaError::Undefined(self.text[name.range()].to_owned()));
        }
        if self.text.len() > u32::MAX as usize / 2 {
            return Err(SchemaError::TooLarge {
                what: "bytes of text",
                limit: u32::MAX as usize / 2,
            });
        }
        let mut slots = Vec::new();
        let mut always = Vec::new();
        let mut defaults = Vec::new();
        for at in 0..self.types.len() {
            let range = self.types[at].fields.start as usize..self.types[at].fields.end as usize;
            if range.len() > usize::from(u16::MAX) / 2 {
                return Err(SchemaError::TooLarge {
                    what: "fields in one struct",
                    limit: usize::from(u16::MAX) / 2,
                });
            }
            let fields = &self.fields[range];
            let names = fields.iter().map(|field| &self.text[field.name.range()]);
            let index_of_names = NameIndex::build(&mut slots, names);
            let first = index(always.len());
            if self.types[at].typed {
                let needed = fields
                    .iter()
                    .enumerate()
                    .filter(|(_, field)| self.is_always_written(field));
                always.extend(needed.map(|(position, _)| u16::try_from(position).unwrap_or(u16::MAX)));
            }
            let typed = self.types[at].typed;
            let has_default = |field: &Field| {
                let default = self
                    .extras
                    .get(field.extra as usize)
                    .map_or(Text::default(), |extra| extra.default);
                crate::defaults::is_effective(&self.text[default.range()], field.pointer, typed)
            };
            let first_default = index(defaults.len());
            let defaulted = (0u16..).zip(fields).filter(|(_, field)| has_default(field));
            defaults.extend(defaulted.map(|(position, _)| position));
            let ty = &mut self.types[at];
            ty.names = index_of_names;
            ty.always = first..index(always.len());
            ty.defaults = first_default..index(defaults.len());
            ty.defaulted = !ty.defaults.is_empty();
        }
        self.mark_reachable();
        let mut schema = Schema {
            text: self.text.into_boxed_str(),
            types: self.types.into_boxed_slice(),
            fields: self.fields.into_boxed_slice(),
            extras: self.extras.into_boxed_slice(),
            always: always.into_boxed_slice(),
            defaults: defaults.into_boxed_slice(),
            groups: self.groups.into_boxed_slice(),
            slots: slots.into_boxed_slice(),
            constraints: self.constraints.into_boxed_slice(),
            named: self.named,
            fingerprint: 0,
        };
        schema.fingerprint = blob::fingerprint(&schema);
        Ok(schema)
    }

    /// The same as [`finish`](Self::finish), for arrays that came from a blob.
    pub(crate) fn finish_read(mut self) -> Result<Schema, SchemaError> {
        self.defined = vec![true; self.types.len()];
        self.finish()
    }

    /// Go writes the field although nothing set it.
    fn is_always_written(&self, field: &Field) -> bool {
        if field.omitzero {
            return false;
        }
        !field.omitempty || (!field.pointer && self.types[field.ty.index()].shape.is_go_struct())
    }

    /// A type is defaulted when it is itself or any type below it is; the walk of the others is saved.
    fn mark_reachable(&mut self) {
        loop {
            let mut changed = false;
            for at in 0..self.types.len() {
                let fields = self.types[at].fields.start as usize..self.types[at].fields.end as usize;
                let below = self.fields[fields]
                    .iter()
                    .map(|field| field.ty)
                    .chain([self.types[at].item]);
                let below: Vec<usize> = below.map(TypeId::index).collect();
                let defaulted = self.types[at].defaulted || below.iter().any(|id| self.types[*id].defaulted);
                let ty = &mut self.types[at];
                changed |= defaulted != ty.defaulted;
                ty.defaulted = defaulted;
            }
            if !changed {
                return;
            }
        }
    }
}
