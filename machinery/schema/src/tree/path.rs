//! Changes by path: made of [`Mut`], one step after the other.

use super::{Mut, Tree, Value};
use std::sync::Arc;

/// One step of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl Tree {
    /// Sets the value at a path, making maps on the way; an index must be there or be the end of its list.
    pub fn set<'v>(&mut self, path: &[Step<'_>], value: impl Into<Value<'v>>) {
        let mut at = self.root_mut();
        for step in path {
            at = match step {
                Step::Name(name) => at.into_entry(name),
                Step::Index(index) => at.into_item_or_new(*index),
            };
        }
        at.set_value(value);
    }

    /// Sets a string at a path of member names.
    pub fn set_str(&mut self, path: &[&str], value: &str) {
        self.enter(path).set_value(value);
    }

    /// Sets a number at a path of member names.
    pub fn set_i64(&mut self, path: &[&str], value: i64) {
        self.enter(path).set_value(value);
    }

    /// Takes the member at a path of member names away; says whether it was there.
    pub fn remove(&mut self, path: &[&str]) -> bool {
        let Some((last, above)) = path.split_last() else {
            return false;
        };
        self.with(above, |mut at| at.remove(last)).unwrap_or(false)
    }

    /// Puts a member of the root back to its value when unset.
    pub fn reset(&mut self, member: &str) {
        let (schema, ty) = (Arc::clone(&self.schema), self.ty);
        let always = |position: usize| {
            let all = schema.always(schema.ty(ty));
            all.iter().any(|own| usize::from(*own) == position)
        };
        match schema.field(ty, member).filter(|(position, _)| always(*position)) {
            Some((position, _)) => {
                let zero = self.zero_field(&schema, ty, position, 1);
                self.root_mut().entry(member).replace(zero);
            }
            None => {
                self.remove(&[member]);
            }
        }
    }

    /// Appends to the list at a path of member names, making it when it is not there.
    pub fn push<'v>(&mut self, path: &[&str], value: impl Into<Value<'v>>) {
        self.enter(path).push(value);
    }

    /// Calls `change` with the value at a path of member names, when it is there.
    pub fn with<T>(&mut self, path: &[&str], change: impl FnOnce(Mut<'_>) -> T) -> Option<T> {
        let mut at = self.root_mut();
        for name in path {
            at = at.into_field(name)?;
        }
        Some(change(at))
    }

    /// The value at a path of member names, made of maps as far as it is not there.
    fn enter(&mut self, path: &[&str]) -> Mut<'_> {
        let mut at = self.root_mut();
        for name in path {
            at = at.into_entry(name);
        }
        at
    }
}
