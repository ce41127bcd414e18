//! Types of another schema.

use super::{SchemaBuilder, index};
use crate::table::{Extra, Field, Group, NO_EXTRA, Schema, TypeId};
use std::collections::HashMap;

impl SchemaBuilder {
    /// Copies a type of another schema, and all it refers to.
    pub fn import(&mut self, from: &Schema, id: TypeId) -> TypeId {
        let mut known = HashMap::new();
        self.import_into(from, id, &mut known)
    }

    fn import_into(&mut self, from: &Schema, id: TypeId, known: &mut HashMap<TypeId, TypeId>) -> TypeId {
        if id == TypeId::ANY {
            return id;
        }
        if let Some(done) = known.get(&id) {
            return *done;
        }
        let ty = from.ty(id);
        let made = self.push(ty.shape, TypeId::ANY, from.text(ty.go_name), true);
        known.insert(id, made);
        let item = self.import_into(from, ty.item, known);
        let first = self.import_fields(from, id, known);
        let target = &mut self.types[made.index()];
        target.item = item;
        target.fields = first;
        (target.map_type, target.typed, target.wrapped) = (ty.map_type, ty.typed, ty.wrapped);
        (target.preserve_unknown, target.embedded, target.nullable) =
            (ty.preserve_unknown, ty.embedded, ty.nullable);
        let first_group = index(self.groups.len());
        for group in from.groups(ty) {
            let name = self.intern(from.text(group.name));
            self.groups.push(Group { name, ..*group });
        }
        self.types[made.index()].groups = first_group..index(self.groups.len());
        made
    }

    fn import_fields(
        &mut self,
        from: &Schema,
        id: TypeId,
        known: &mut HashMap<TypeId, TypeId>,
    ) -> std::ops::Range<u32> {
        let mut made = Vec::new();
        for field in from.fields(id) {
            let ty = self.import_into(from, field.ty, known);
            let extra = from
                .extra(field)
                .map_or(NO_EXTRA, |extra| self.import_extra(from, extra));
            made.push(Field {
                name: self.intern(from.text(field.name)),
                ty,
                extra,
                ..*field
            });
        }
        let first = index(self.fields.len());
        self.fields.append(&mut made);
        first..index(self.fields.len())
    }

    fn import_extra(&mut self, from: &Schema, extra: &Extra) -> u32 {
        let mut copy = extra.clone();
        for text in copy.map_keys.iter_mut().chain(&mut copy.enum_values) {
            *text = self.intern(from.text(*text));
        }
        for text in [
            &mut copy.patch_merge_key,
            &mut copy.default,
            &mut copy.format,
            &mut copy.feature_gate,
        ] {
            *text = self.intern(from.text(*text));
        }
        self.extras.push(copy);
        index(self.extras.len() - 1)
    }
}
