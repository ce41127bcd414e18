//! Equality and order of values.

use super::numbers;
use super::{EvalError, List, Map, Value};
use crate::declared::{Form, ListKind};
use crate::eval::Meter;
use std::cmp::Ordering;
use std::collections::HashSet;

impl<'a> Value<'a> {
    /// Reports whether values are equal; each pair of parts is work.
    pub(crate) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, EvalError> {
        meter.work(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(own), Self::Bool(other)) => own == other,
            (Self::String(own), Self::String(other)) => {
                meter.read(own.as_str().len().min(other.as_str().len()))?;
                own == other
            }
            (Self::Bytes(own), Self::Bytes(other)) => {
                meter.read(own.len().max(other.len()))?;
                own == other
            }
            (Self::Timestamp(own), Self::Timestamp(other)) => own == other,
            (Self::Duration(own), Self::Duration(other)) => own == other,
            (Self::Type(own), Self::Type(other)) => own.name() == other.name(),
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(own)), Self::Optional(Some(other))) => own.equals(other, meter)?,
            (Self::Opaque(own), Self::Opaque(other)) => {
                meter.work(own.steps_to_compare().saturating_add(other.steps_to_compare()))?;
                own.equals(other)
            }
            (Self::List(own), Self::List(other)) => list_equals(own, other, meter)?,
            (Self::Map(own), Self::Map(other)) => map_equals(own, other, meter)?,
            (Self::Object(own), Self::Object(other)) => {
                if own.type_name != other.type_name || own.fields.len() != other.fields.len() {
                    return Ok(false);
                }
                for (name, value) in &own.fields {
                    let equal = match other.get(name) {
                        Some(other) => value.equals(other, meter)?,
                        None => false,
                    };
                    if !equal {
                        return Ok(false);
                    }
                }
                true
            }
            _ => numbers::compare(self, other) == Some(Ordering::Equal),
        })
    }

    /// Bytes that are read where a function looks through a value; none of those that are made of other values.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::String(own) => own.as_str().len(),
            Self::Bytes(own) => own.len(),
            Self::Opaque(own) => own.bytes(),
            _ => 0,
        }
    }

    /// Order of two values of types that have one.
    pub(crate) fn order(&self, other: &Self) -> Result<Ordering, EvalError> {
        let is_nan = |own: &Self| matches!(own, Self::Double(own) if own.is_nan());
        let is_number = |own: &Self| matches!(own, Self::Int(_) | Self::Uint(_) | Self::Double(_));
        Ok(match (self, other) {
            (Self::Bool(own), Self::Bool(other)) => own.cmp(other),
            (Self::String(own), Self::String(other)) => own.as_str().cmp(other.as_str()),
            (Self::Bytes(own), Self::Bytes(other)) => own.cmp(other),
            (Self::Timestamp(own), Self::Timestamp(other)) => own.cmp(other),
            (Self::Duration(own), Self::Duration(other)) => own.cmp(other),
            _ if is_number(self) && (is_number(other) || is_nan(self)) => {
                let nan = || EvalError::new("NaN values cannot be ordered");
                numbers::compare(self, other).ok_or_else(nan)?
            }
            _ => return Err(EvalError::no_overload()),
        })
    }
}

fn list_equals<'a>(own: &List<'a>, other: &List<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    if own.len() != other.len() {
        return Ok(false);
    }
    match kind(own) {
        Some(ListKind::Set) => return set_equals(own, other, meter),
        Some(ListKind::Map(keys)) => return keyed_equals(own, other, keys, meter),
        _ => {}
    }
    for (own, other) in own.iter().zip(other.iter()) {
        if !own?.equals(&other?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `x-kubernetes-list-type` of a list of an object.
pub(crate) fn kind<'a>(list: &List<'a>) -> Option<&'a ListKind> {
    match list {
        List::Foreign(own) => match &own.declared?.form {
            Form::List { kind, .. } => Some(kind),
            _ => None,
        },
        List::Kept(_, kind) => Some(kind),
        _ => None,
    }
}

/// Elements by what they are, without their order.
fn set_equals<'a>(own: &List<'a>, other: &List<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    let mut sets: [HashSet<String>; 2] = Default::default();
    for (set, list) in sets.iter_mut().zip([own, other]) {
        for element in list.iter() {
            set.insert(element?.canonical(meter)?);
        }
    }
    Ok(sets[0] == sets[1])
}

/// Elements with the same keys are equal, without their order.
fn keyed_equals<'a>(
    own: &List<'a>,
    other: &List<'a>,
    keys: &[String],
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    let mut found = std::collections::HashMap::new();
    for element in own.iter() {
        let element = element?;
        found.insert(composite(&element, keys, meter)?, element);
    }
    let mut seen = HashSet::new();
    for element in other.iter() {
        let element = element?;
        let key = composite(&element, keys, meter)?;
        match found.get(&key) {
            Some(own) if own.equals(&element, meter)? => {}
            _ => return Ok(false),
        }
        seen.insert(key);
    }
    Ok(seen.len() == found.len())
}

/// The keys of an element of a list that is a map.
pub(crate) fn composite<'a>(
    element: &Value<'a>,
    keys: &[String],
    meter: &mut Meter,
) -> Result<String, EvalError> {
    let Value::Map(map) = element else {
        return Err(EvalError::no_overload());
    };
    let mut out = String::new();
    for key in keys {
        let name = crate::escaping::escape(key).map_or_else(|| key.clone(), std::borrow::Cow::into_owned);
        match map.find(&Value::owned(name)) {
            Some(value) => out += &value?.canonical(meter)?,
            None => out.push('-'),
        }
        out.push('\0');
    }
    Ok(out)
}

fn map_equals<'a>(own: &Map<'a>, other: &Map<'a>, meter: &mut Meter) -> Result<bool, EvalError> {
    if own.len() != other.len() {
        return Ok(false);
    }
    if let (Map::Foreign(own), Map::Foreign(other)) = (own, other)
        && !own.undeclared_equal(other, meter)?
    {
        return Ok(false);
    }
    for key in own.keys() {
        let equal = match (own.find(&key), other.find(&key)) {
            (Some(own), Some(other)) => own?.equals(&other?, meter)?,
            (None, None) => true,
            _ => false,
        };
        if !equal {
            return Ok(false);
        }
    }
    Ok(true)
}
