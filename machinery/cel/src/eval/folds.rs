//! Loops.

use super::machine::{Machine, Slot};
use super::plan::{Fold, Node, Step};
use crate::value::{Entries, EvalError, Evaluated, List, Map, Value};
use std::sync::Arc;

impl<'a> Machine<'a> {
    #[inline(never)]
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Evaluated<'a> {
        let range = self.eval(&fold.range)?;
        debug_assert_eq!(self.locals.len(), fold.slot, "loops nest as they were planned");
        self.locals.push(Slot::Later(&fold.init));
        let looped = self.iterate(fold, &range);
        self.locals.truncate(fold.slot + 1);
        let result = looped.and_then(|()| self.eval(&fold.result));
        self.locals.truncate(fold.slot);
        result
    }

    fn iterate(&mut self, fold: &'a Fold, range: &Value<'a>) -> Result<(), EvalError> {
        match range {
            Value::List(list) => {
                for (at, element) in list.iter().enumerate() {
                    let element = element.map_or_else(Slot::Failed, Slot::Value);
                    let (first, second) = if fold.two {
                        (Slot::Value(Value::size_of(at)), Some(element))
                    } else {
                        (element, None)
                    };
                    if !self.turn(fold, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for key in map.keys() {
                    let second = if fold.two {
                        let value = map.find(&key).unwrap_or(Ok(Value::Null));
                        Some(value.map_or_else(Slot::Failed, Slot::Value))
                    } else {
                        None
                    };
                    if !self.turn(fold, Slot::Value(key), second)? {
                        break;
                    }
                }
            }
            _ => return Err(EvalError::no_overload()),
        }
        Ok(())
    }

    /// One turn of a loop; reports whether there may be another.
    fn turn(&mut self, fold: &'a Fold, first: Slot<'a>, second: Option<Slot<'a>>) -> Result<bool, EvalError> {
        self.meter.check_interrupt()?;
        self.meter.work(1)?;
        for slot in std::iter::once(&first).chain(&second) {
            if let Slot::Value(Value::Bytes(own)) = slot {
                self.meter.read(own.len())?;
            }
        }
        self.locals.truncate(fold.slot + 1);
        self.locals.push(first);
        self.locals.extend(second);
        match self.eval(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.is_final() => return Err(error),
            _ => {}
        }
        let next = match &fold.step {
            Step::Other(node) => self.eval(node),
            Step::Append(filter, elements) => {
                if !self.filtered(filter.as_ref(), fold.slot)? {
                    return Ok(true);
                }
                self.append(elements, fold.slot)
            }
            Step::Insert(filter, args) => {
                if !self.filtered(filter.as_ref(), fold.slot)? {
                    return Ok(true);
                }
                self.insert(args, fold.slot)
            }
        };
        self.locals[fold.slot] = match next {
            Ok(value) => Slot::Value(value),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => Slot::Failed(error),
        };
        Ok(true)
    }

    /// Reports whether a filter holds; when it fails, so does the accumulator.
    fn filtered(&mut self, filter: Option<&'a Node>, slot: usize) -> Result<bool, EvalError> {
        let Some(filter) = filter else { return Ok(true) };
        let error = match self.eval(filter) {
            Ok(Value::Bool(true)) => return Ok(true),
            Ok(Value::Bool(false)) => {
                // The accumulator is requested, so it is evaluated now if it was not.
                let _ = self.local(slot);
                return Ok(false);
            }
            Ok(_) => EvalError::no_overload(),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => error,
        };
        self.locals[slot] = Slot::Failed(error);
        Ok(false)
    }

    /// Takes the accumulator out of its place, so that it can be changed in place.
    fn take(&mut self, slot: usize) -> Evaluated<'a> {
        let value = self.local(slot);
        self.meter.spend(1)?;
        self.locals[slot] = Slot::Value(Value::Null);
        value
    }

    fn append(&mut self, elements: &'a Node, slot: usize) -> Evaluated<'a> {
        let accumulator = self.take(slot);
        let added = self.eval(elements);
        if let Err(error) = &added
            && error.is_final()
        {
            return added;
        }
        // The call of `_+_`.
        self.meter.spend(1)?;
        let (Value::List(own), Value::List(added)) = (accumulator?, added?) else {
            return Err(EvalError::no_overload());
        };
        let List::Values(mut own) = own else {
            return Ok(Value::List(own.join(added).0));
        };
        self.meter.hold(added.len() * 2 * size_of::<Value<'_>>())?;
        let values = Arc::make_mut(&mut own);
        for element in added.iter() {
            values.push(element?);
        }
        Ok(Value::List(List::Values(own)))
    }

    fn insert(&mut self, args: &'a [Node], slot: usize) -> Evaluated<'a> {
        let Value::Map(Map::Values(mut own)) = self.take(slot)? else {
            return Err(EvalError::no_overload());
        };
        let entries = Arc::make_mut(&mut own);
        match args {
            [key, value] => {
                let (key, value) = (self.eval(key)?, self.eval(value)?);
                self.meter.spend(1)?;
                self.meter.hold(6 * size_of::<Value<'_>>())?;
                entries.insert(key, value)?;
            }
            [map] => {
                let map = self.eval(map);
                if matches!(&map, Err(error) if error.is_final()) {
                    return map;
                }
                self.meter.spend(1)?;
                let Value::Map(map) = map? else {
                    return Err(EvalError::no_overload());
                };
                self.merge(entries, &map)?;
            }
            _ => return Err(EvalError::no_overload()),
        }
        Ok(Value::Map(Map::Values(own)))
    }

    fn merge(&mut self, entries: &mut Entries<'a>, map: &Map<'a>) -> Result<(), EvalError> {
        for key in map.keys() {
            self.meter.hold(6 * size_of::<Value<'_>>())?;
            if let Some(value) = map.find(&key) {
                entries.insert(key, value?)?;
            }
        }
        Ok(())
    }
}
