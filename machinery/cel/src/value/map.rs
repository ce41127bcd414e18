//! Maps.

use super::{EvalError, Evaluated, Foreign, Text, Value, as_int, as_uint};
use std::collections::HashMap;
use std::sync::Arc;

/// A map.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    Values(Arc<Entries<'a>>),
    /// An object, or a part of one.
    Foreign(Foreign<'a>),
    /// Values that are made when they are requested.
    Fields(&'a dyn Fields),
}

/// Values by name that are made when they are requested, such as the variables of a policy.
pub trait Fields: std::fmt::Debug + Send + Sync {
    /// The value with a name, when there is one.
    fn get<'s>(&'s self, name: &str) -> Option<Evaluated<'s>>;
    /// All names.
    fn names(&self) -> Vec<String>;

    /// Reports whether `in` finds the name, where more can be had than there is.
    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// A key, the same for numbers that are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    /// Above the greatest [`Key::Int`].
    Uint(u64),
    String(Text<'a>),
    /// No whole number.
    Double(u64),
}

impl<'a> Key<'a> {
    /// The key that a value is, when it can be one.
    pub(crate) fn of(value: &Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Bool(own) => Self::Bool(*own),
            Value::Int(own) => Self::Int(*own),
            Value::Uint(own) => i64::try_from(*own).map_or(Self::Uint(*own), Self::Int),
            Value::String(own) => Self::String(own.clone()),
            Value::Double(own) => match (as_int(*own), as_uint(*own)) {
                (Some(own), _) => Self::Int(own),
                (None, Some(own)) => Self::Uint(own),
                _ => Self::Double(own.to_bits()),
            },
            _ => return None,
        })
    }
}

/// Entries in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Entries<'a> {
    list: Vec<(Value<'a>, Value<'a>)>,
    /// Places in the list, once there are more than a few.
    index: HashMap<Key<'a>, usize>,
}

/// Number of keys that are compared one by one.
const FEW: usize = 8;

impl<'a> Entries<'a> {
    fn position(&self, key: &Key<'a>) -> Option<usize> {
        if self.list.len() > FEW {
            return self.index.get(key).copied();
        }
        self.list
            .iter()
            .position(|own| Key::of(&own.0).as_ref() == Some(key))
    }

    pub(crate) fn get(&self, key: &Key<'a>) -> Option<&Value<'a>> {
        self.position(key).map(|at| &self.list[at].1)
    }

    /// Adds an entry, or gives another value to the one that is there.
    pub(crate) fn set(&mut self, key: Value<'a>, value: Value<'a>) -> Result<(), EvalError> {
        let own = Key::of(&key).ok_or_else(|| unsupported(&key))?;
        if let Some(at) = self.position(&own) {
            self.list[at].1 = value;
            return Ok(());
        }
        self.list.push((key, value));
        let last = self.list.len() - 1;
        match last.cmp(&FEW) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                let keys = self.list.iter().enumerate();
                self.index = keys
                    .filter_map(|(at, own)| Some((Key::of(&own.0)?, at)))
                    .collect();
            }
            std::cmp::Ordering::Greater => {
                self.index.insert(own, last);
            }
        }
        Ok(())
    }

    /// Adds an entry whose key is new.
    pub(crate) fn insert(&mut self, key: Value<'a>, value: Value<'a>) -> Result<(), EvalError> {
        let own = Key::of(&key).ok_or_else(|| unsupported(&key))?;
        if self.position(&own).is_some() {
            return Err(EvalError::new(format!(
                "insert failed: key {} already exists",
                key.shown()
            )));
        }
        self.set(key, value)
    }

    pub(crate) fn remove(&mut self, key: &Value<'a>) {
        let at = Key::of(key).and_then(|own| self.position(&own));
        if let Some(at) = at {
            self.list.remove(at);
            let keys = self.list.iter().enumerate();
            self.index = keys
                .filter_map(|(at, own)| Some((Key::of(&own.0)?, at)))
                .collect();
        }
    }

    /// The entries, in order.
    pub fn list(&self) -> &[(Value<'a>, Value<'a>)] {
        &self.list
    }
}

fn unsupported(key: &Value<'_>) -> EvalError {
    EvalError::new(format!("unsupported key type: {}", key.ty().name()))
}

impl<'a> Map<'a> {
    pub(crate) fn new(entries: Entries<'a>) -> Self {
        Self::Values(Arc::new(entries))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Values(own) => own.list.len(),
            Self::Foreign(own) => own.len(),
            Self::Fields(own) => own.names().len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, when there is one.
    pub fn find(&self, key: &Value<'a>) -> Option<Evaluated<'a>> {
        match self {
            Self::Values(own) => own.get(&Key::of(key)?).cloned().map(Ok),
            Self::Foreign(own) => match key {
                Value::String(name) => own.member(name.as_str()),
                _ => own.no_such_key(),
            },
            Self::Fields(own) => own.get(key.as_str()?),
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Values(own) => own.list.iter().map(|own| own.0.clone()).collect(),
            Self::Foreign(own) => own.names(),
            Self::Fields(own) => own.names().into_iter().map(Value::owned).collect(),
        }
    }
}
