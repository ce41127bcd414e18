//! Lists, maps and objects that are written out.

use super::Checker;
use super::unify::most_general;
use crate::ast::{Expr, ExprKind, Id};
use crate::types::Type;

impl Checker<'_> {
    fn join(&mut self, before: Option<Type>, own: Type) -> Type {
        let Some(before) = before else { return own };
        if self.mapping.assignable(&[&before], &[&own]) {
            return most_general(&before, &own);
        }
        // The caller decides later whether they may differ: arguments of `format` always do.
        Type::Dyn
    }

    /// Type inside an optional element or entry.
    fn unwrap(&mut self, id: Id, ty: Type) -> Type {
        if let Some(inner) = ty.unwrapped() {
            return inner.clone();
        }
        if !ty.is_dyn() {
            self.mismatch(id, &Type::optional(ty.clone()), &ty);
        }
        ty
    }

    pub(super) fn list(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::List { elements, optional } = &mut expr.kind else {
            return;
        };
        let mut item = None;
        for (at, element) in elements.iter_mut().enumerate() {
            self.check(element);
            let mut ty = self.get(element.id);
            if optional.contains(&at) {
                ty = self.unwrap(element.id, ty);
            }
            item = Some(self.join(item, ty));
        }
        let item = item.unwrap_or_else(|| self.mapping.new_var());
        self.set(id, Type::list(item));
    }

    pub(super) fn map(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Map(entries) = &mut expr.kind else {
            return;
        };
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.check(&mut entry.key);
            let ty = self.get(entry.key.id);
            key = Some(self.join(key, ty));
            self.check(&mut entry.value);
            let mut ty = self.get(entry.value.id);
            if entry.optional {
                ty = self.unwrap(entry.value.id, ty);
            }
            value = Some(self.join(value, ty));
        }
        let key = key.unwrap_or_else(|| self.mapping.new_var());
        let value = value.unwrap_or_else(|| self.mapping.new_var());
        self.set(id, Type::map(key, value));
    }

    pub(super) fn object(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Struct { name, fields } = &mut expr.kind else {
            return;
        };
        let found = super::type_name(name.trim_start_matches('.'), self.env);
        let Some(ty) = found else {
            let name = name.clone();
            return self.undeclared(id, &name);
        };
        *name = name.trim_start_matches('.').to_owned();
        if !matches!(ty, Type::Object(_)) {
            let message = format!("'{}' is not a message type", ty.name());
            self.report(id, message);
            self.types[id] = Some(Type::Error);
            return;
        }
        self.set(id, ty);
        for field in fields {
            self.check(&mut field.value);
            let wanted = self
                .object_field(field.id, name, &field.name)
                .unwrap_or(Type::Error);
            let mut ty = self.get(field.value.id);
            if field.optional {
                ty = self.unwrap(field.value.id, ty);
            }
            if !self.mapping.assignable(&[&wanted], &[&ty]) {
                let name = &field.name;
                let message =
                    format!("expected type of field '{name}' is '{wanted}' but provided type is '{ty}'");
                self.report(field.id, message);
            }
        }
    }
}
