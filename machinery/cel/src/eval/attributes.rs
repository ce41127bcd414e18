//! Variables with what is selected from them.

use super::machine::Machine;
use super::plan::{Attribute, Base, Qualifier, QualifierKey};
use crate::value::{EvalError, Evaluated, Value, as_int};

/// Way in which a qualifier is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Value,
    /// The result is an optional.
    Optional,
    /// `has`: only whether there is something.
    Test,
}

impl<'a> Machine<'a> {
    /// The value of an attribute, without the cost of its base.
    pub(super) fn resolve(&mut self, own: &'a Attribute, test: bool) -> Evaluated<'a> {
        let base = match &own.base {
            Base::Variable(slot) => self.variable(*slot)?,
            Base::Local(slot) => self.local(*slot)?,
            Base::Relative(node) => self.eval(node)?,
            Base::Conditional(own) => match self.eval(&own.0)? {
                Value::Bool(true) => self.resolve(&own.1, false)?,
                Value::Bool(false) => self.resolve(&own.2, false)?,
                _ => return Err(EvalError::no_overload()),
            },
        };
        if own.qualifiers.is_empty() {
            return Ok(base);
        }
        self.qualify(base, &own.qualifiers, test)
    }

    fn qualify(&mut self, base: Value<'a>, qualifiers: &'a [Qualifier], test: bool) -> Evaluated<'a> {
        let (mut value, mut optional) = match base {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(own)) => ((*own).clone(), true),
            other => (other, false),
        };
        for (at, qualifier) in qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let last = test && at + 1 == qualifiers.len();
            let mode = match (optional, last) {
                (true, _) => Mode::Optional,
                (false, true) => Mode::Test,
                (false, false) => Mode::Value,
            };
            match self.step(value, qualifier, mode, last)? {
                Some(found) => value = found,
                None => return Ok(Value::Optional(None)),
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// Applies one qualifier; none when there is nothing and an optional is wanted.
    fn step(
        &mut self,
        value: Value<'a>,
        qualifier: &'a Qualifier,
        mode: Mode,
        test: bool,
    ) -> Result<Option<Value<'a>>, EvalError> {
        let key = match &qualifier.key {
            QualifierKey::Const(own) => Ok(super::machine::constant(own)),
            QualifierKey::Attribute(own) => self.resolve(own, false),
            QualifierKey::Node(own) => self.eval(own),
        };
        let found = key.and_then(|key| match lookup(&value, &key) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) if mode == Mode::Value => Err(missing(&value, &key)),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        });
        if matches!(&found, Err(error) if error.is_final()) {
            return found;
        }
        self.decoded(&found)?;
        if mode != Mode::Optional || matches!(found, Ok(Some(_))) {
            self.meter.spend(1)?;
        }
        let found = found?;
        if test && mode == Mode::Test {
            return Ok(Some(Value::Bool(found.is_some())));
        }
        Ok(found)
    }
}

impl<'a> Machine<'a> {
    /// Counts what a part of an object took to be made: bytes are decoded at each mention, and problems show the text.
    fn decoded(&mut self, found: &Result<Option<Value<'a>>, EvalError>) -> Result<(), EvalError> {
        match found {
            Ok(Some(Value::Bytes(own))) => self.meter.read(own.len()),
            Err(error) => self.meter.read(error.message().len()),
            _ => Ok(()),
        }
    }
}

/// A part of a value.
fn lookup<'a>(value: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::Map(own) => own.find(key).transpose(),
        Value::List(own) => {
            let at = index(key)?;
            usize::try_from(at).ok().and_then(|at| own.get(at)).transpose()
        }
        Value::Object(own) => {
            let name = key.as_str().unwrap_or_default();
            Ok(own.get(name).cloned())
        }
        _ => Ok(None),
    }
}

fn missing(value: &Value<'_>, key: &Value<'_>) -> EvalError {
    match value {
        Value::List(_) => EvalError::new(format!("index out of bounds: {}", key.shown())),
        _ => EvalError::new(format!("no such key: {}", key.shown())),
    }
}

/// Place in a list.
fn index(key: &Value<'_>) -> Result<i64, EvalError> {
    let unsupported = || EvalError::new(format!("unsupported index value {} in list", key.shown()));
    match key {
        Value::Int(own) => Ok(*own),
        Value::Uint(own) => i64::try_from(*own).map_err(|_| unsupported()),
        Value::Double(own) => as_int(*own).ok_or_else(unsupported),
        other => {
            let name = other.ty();
            Err(EvalError::new(format!(
                "unsupported index type '{}' in list",
                name.name()
            )))
        }
    }
}
