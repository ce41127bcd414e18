//! Lists.

use super::{Evaluated, Foreign, Value};
use crate::declared::ListKind;
use std::sync::Arc;

/// A list.
#[derive(Debug, Clone)]
pub enum List<'a> {
    Values(Arc<Vec<Value<'a>>>),
    /// Two lists, one after the other.
    Joined(Arc<Joined<'a>>),
    /// A list of an object.
    Foreign(Foreign<'a>),
    /// Elements of lists of an object, sets or maps, that were joined.
    Kept(Arc<Vec<Value<'a>>>, &'a ListKind),
}

/// Two lists, one after the other.
#[derive(Debug)]
pub struct Joined<'a> {
    first: List<'a>,
    second: List<'a>,
    len: usize,
    depth: usize,
}

/// Lists join without copies up to this depth.
const MAX_JOINED: usize = 48;

impl<'a> List<'a> {
    pub fn new(values: Vec<Value<'a>>) -> Self {
        Self::Values(Arc::new(values))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Values(own) | Self::Kept(own, _) => own.len(),
            Self::Joined(own) => own.len,
            Self::Foreign(own) => own.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn depth(&self) -> usize {
        match self {
            Self::Joined(own) => own.depth,
            _ => 0,
        }
    }

    /// One element, when there is one.
    pub fn get(&self, at: usize) -> Option<Evaluated<'a>> {
        match self {
            Self::Values(own) | Self::Kept(own, _) => own.get(at).cloned().map(Ok),
            Self::Joined(own) => match at.checked_sub(own.first.len()) {
                Some(rest) => own.second.get(rest),
                None => own.first.get(at),
            },
            Self::Foreign(own) => own.item(at),
        }
    }

    /// The elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = Evaluated<'a>> + '_ {
        let mut pending = vec![self];
        let mut current: Option<(&List<'a>, usize)> = None;
        std::iter::from_fn(move || {
            loop {
                if let Some((list, at)) = &mut current {
                    if let Some(found) = list.get(*at) {
                        *at += 1;
                        return Some(found);
                    }
                    current = None;
                }
                match pending.pop()? {
                    Self::Joined(own) => {
                        pending.push(&own.second);
                        pending.push(&own.first);
                    }
                    other => current = Some((other, 0)),
                }
            }
        })
    }

    /// This list and another after it, and how many elements were copied for that.
    pub(crate) fn join(self, other: Self) -> (Self, usize) {
        if self.is_empty() {
            return (other, 0);
        }
        if other.is_empty() {
            return (self, 0);
        }
        let depth = 1 + self.depth().max(other.depth());
        let len = self.len() + other.len();
        let joined = Self::Joined(Arc::new(Joined {
            first: self,
            second: other,
            len,
            depth,
        }));
        if depth <= MAX_JOINED {
            return (joined, 0);
        }
        // Elements of objects that cannot be read are errors where they are requested; they stay null here.
        let values = joined.iter().map(|own| own.unwrap_or(Value::Null)).collect();
        (Self::new(values), len)
    }
}
