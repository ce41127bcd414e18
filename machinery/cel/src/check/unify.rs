//! Assignability of types, and the types that parameters of calls turn out to have.

use crate::types::Type;

/// Types found for the parameters of calls, with a way back.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    found: Vec<Option<Type>>,
    /// Types before each change since the last decision.
    undo: Vec<(usize, Option<Type>)>,
}

impl Mapping {
    pub(super) fn new_var(&mut self) -> Type {
        self.found.push(None);
        Type::Var(self.found.len() - 1)
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Var(own) => self.found[*own].as_ref(),
            _ => None,
        }
    }

    fn add(&mut self, var: &Type, ty: Type) {
        if let Type::Var(own) = var {
            let before = self.found[*own].replace(ty);
            self.undo.push((*own, before));
        }
    }

    /// Reports whether types are assignable; what was found on the way is kept only if they are.
    pub(super) fn assignable(&mut self, from: &[&Type], to: &[&Type]) -> bool {
        self.undo.clear();
        let assignable = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.one(from, to));
        if !assignable {
            while let Some((var, before)) = self.undo.pop() {
                self.found[var] = before;
            }
        }
        assignable
    }

    fn one(&mut self, left: &Type, right: &Type) -> bool {
        if let Type::Var(_) = right {
            let (valid, known) = self.substitutes(left, right);
            if valid {
                return true;
            }
            if known {
                return false;
            }
        }
        if let Type::Var(_) = left {
            return self.substitutes(right, left).0;
        }
        if left.is_dyn_or_error() || right.is_dyn_or_error() {
            return true;
        }
        if *left == Type::Null {
            return nullable(right);
        }
        if *right == Type::Null {
            return nullable(left);
        }
        match (left, right) {
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(left), Type::List(right)) => self.one(left, right),
            (Type::Map(left), Type::Map(right)) => self.one(&left.0, &right.0) && self.one(&left.1, &right.1),
            (Type::Opaque(left, own), Type::Opaque(right, other)) => {
                left == right
                    && own.len() == other.len()
                    && own
                        .iter()
                        .zip(other.iter())
                        .all(|(own, other)| self.one(own, other))
            }
            _ => left == right,
        }
    }

    /// Reports whether a variable can have a type, and whether one was known.
    fn substitutes(&mut self, ty: &Type, var: &Type) -> (bool, bool) {
        if ty == var {
            return (true, true);
        }
        if let Some(found) = self.find(var).cloned() {
            if *ty == found {
                return (true, true);
            }
            if !self.one(ty, &found) {
                return (false, true);
            }
            let general = most_general(ty, &found);
            if self.absent(var, &general) {
                self.add(var, general);
            }
            return (true, true);
        }
        if self.absent(var, ty) {
            self.add(var, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Reports whether a variable is no part of a type.
    fn absent(&self, var: &Type, within: &Type) -> bool {
        if var == within {
            return false;
        }
        if let Type::Var(_) = within {
            return self.find(within).is_none_or(|found| self.absent(var, found));
        }
        within.params().into_iter().all(|part| self.absent(var, part))
    }

    /// The type with what was found in the place of variables; `to_dyn` also where nothing was found.
    pub(super) fn substitute(&self, ty: &Type, to_dyn: bool) -> Type {
        match ty {
            Type::Var(_) => match self.find(ty) {
                Some(found) => self.substitute(found, to_dyn),
                None if to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::Param(_) if to_dyn => Type::Dyn,
            _ => ty.with_params(&mut |part| self.substitute(part, to_dyn)),
        }
    }
}

fn nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Opaque(..) | Type::Object(_) | Type::Any | Type::Duration | Type::Timestamp | Type::Null
    )
}

/// The more general of two types that agree.
pub(super) fn most_general(left: &Type, right: &Type) -> Type {
    if less_specific(left, right) { left } else { right }.clone()
}

fn less_specific(left: &Type, right: &Type) -> bool {
    if left.is_dyn() || matches!(left, Type::Var(_) | Type::Param(_)) {
        return true;
    }
    if right.is_dyn() || matches!(right, Type::Var(_) | Type::Param(_)) {
        return false;
    }
    match (left, right) {
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(_), Type::List(_))
        | (Type::Map(_), Type::Map(_))
        | (Type::Opaque(..), Type::Opaque(..)) => {
            let (own, other) = (left.params(), right.params());
            left.name() == right.name()
                && own.len() == other.len()
                && own
                    .iter()
                    .zip(other)
                    .all(|(own, other)| less_specific(own, other))
        }
        _ => left == right,
    }
}
