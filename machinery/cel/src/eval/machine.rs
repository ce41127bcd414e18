//! The machine: values of variables and loops, and one function for each kind of node.

use super::plan::{Call, ListNode, MapEntryNode, Node, ObjectNode, PatternUse, Runner};
use super::{Activation, Limits, Meter};
use crate::library::regex;
use crate::value::{Entries, EvalError, Evaluated, Key, List, Map, Object, Text, Value};
use smallvec::SmallVec;
use std::sync::Arc;

/// A value of a loop.
#[derive(Debug)]
pub(super) enum Slot<'a> {
    Value(Value<'a>),
    Failed(EvalError),
    /// Evaluated when it is requested.
    Later(&'a Node),
}

pub(crate) struct Machine<'a> {
    pub(crate) meter: Meter,
    activation: &'a dyn Activation,
    names: &'a [String],
    variables: Vec<Option<Evaluated<'a>>>,
    pub(super) locals: Vec<Slot<'a>>,
}

/// A constant of the plan, without a copy of its text.
pub(super) fn constant<'a>(own: &'a Value<'static>) -> Value<'a> {
    match own {
        Value::String(own) => Value::String(Text::Borrowed(own.as_str())),
        other => other.clone(),
    }
}

impl<'a> Machine<'a> {
    pub(crate) fn new(activation: &'a dyn Activation, names: &'a [String], limits: Limits) -> Self {
        Self {
            meter: Meter::new(limits),
            activation,
            names,
            variables: vec![None; names.len()],
            locals: Vec::new(),
        }
    }

    pub(super) fn variable(&mut self, slot: usize) -> Evaluated<'a> {
        if let Some(known) = &self.variables[slot] {
            return known.clone();
        }
        let name = &self.names[slot];
        let missing = || Err(EvalError::new(format!("no such attribute(s): {name}")));
        let value = self.activation.resolve(name).unwrap_or_else(missing);
        self.variables[slot] = Some(value.clone());
        value
    }

    pub(super) fn local(&mut self, slot: usize) -> Evaluated<'a> {
        match &self.locals[slot] {
            Slot::Value(own) => Ok(own.clone()),
            Slot::Failed(error) => Err(error.clone()),
            Slot::Later(node) => {
                let node = *node;
                // It is evaluated where it is written: without the loops that have begun since.
                let inner = self.locals.split_off(slot);
                let value = self.eval(node);
                self.locals.truncate(slot);
                self.locals.extend(inner);
                self.locals[slot] = match &value {
                    Ok(own) => Slot::Value(own.clone()),
                    Err(error) => Slot::Failed(error.clone()),
                };
                value
            }
        }
    }

    /// Evaluates a node. Kinds have functions of their own, which keeps the frames of deep expressions small.
    pub(crate) fn eval(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Const(own) => Ok(constant(own)),
            Node::Attribute(own) => self.attribute(own),
            Node::Test(own) => self.test(own),
            Node::And(own) => self.logic(own, false),
            Node::Or(own) => self.logic(own, true),
            Node::Equal(own, equal) => self.equal(own, *equal),
            Node::Call(own) => self.call(own),
            Node::Member(own) => self.member(own),
            Node::OrElse(own, value) => self.or_else(own, *value),
            Node::List(own) => self.list(own),
            Node::Map(own) => self.map(own),
            Node::Object(own) => self.object(own),
            Node::Fold(own) => self.fold(own),
        }
    }

    #[inline(never)]
    fn attribute(&mut self, own: &'a super::plan::Attribute) -> Evaluated<'a> {
        let value = self.resolve(own, false);
        if matches!(&value, Err(error) if error.is_final()) {
            return value;
        }
        if !matches!(own.base, super::plan::Base::Conditional(_)) {
            self.meter.spend(1)?;
        }
        value
    }

    #[inline(never)]
    fn test(&mut self, own: &'a super::plan::Attribute) -> Evaluated<'a> {
        Ok(match self.resolve(own, true)? {
            Value::Optional(own) => Value::Bool(own.is_some()),
            other => other,
        })
    }

    /// `&&` and `||`: one term that decides makes up for another that failed.
    #[inline(never)]
    fn logic(&mut self, terms: &'a [Node; 2], decisive: bool) -> Evaluated<'a> {
        let mut failed = None;
        for term in terms {
            let error = match self.eval(term) {
                Ok(Value::Bool(own)) if own == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => continue,
                Ok(_) => EvalError::no_overload(),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => error,
            };
            failed.get_or_insert(error);
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Value::Bool(!decisive)),
        }
    }

    #[inline(never)]
    fn equal(&mut self, sides: &'a [Node; 2], equal: bool) -> Evaluated<'a> {
        let (left, right) = (self.eval(&sides[0]), self.eval(&sides[1]));
        for side in [&left, &right] {
            if let Err(error) = side
                && error.is_final()
            {
                return Err(error.clone());
            }
        }
        let cost = crate::cost::equality(left.as_ref().ok(), right.as_ref().ok(), equal);
        self.meter.spend(cost)?;
        let found = left?.equals(&right?, &mut self.meter)?;
        Ok(Value::Bool(found == equal))
    }

    #[inline(never)]
    fn call(&mut self, call: &'a Call) -> Evaluated<'a> {
        let mut args: SmallVec<[Value<'a>; 3]> = SmallVec::new();
        let mut failed = None;
        for arg in &call.args {
            match self.eval(arg) {
                Ok(own) => args.push(own),
                Err(error) if error.is_final() || call.in_turn => return Err(error),
                Err(error) => {
                    failed.get_or_insert(error);
                    args.push(Value::Null);
                }
            }
        }
        let result = match failed {
            // Whether what failed is strictly false: it is not.
            Some(_) if call.lenient => Ok(Value::Bool(true)),
            Some(error) => Err(error),
            None => self.run(call, &args),
        };
        if matches!(&result, Err(error) if error.is_final()) {
            return result;
        }
        let cost = crate::cost::call(call.rule, &args, result.as_ref().ok());
        self.meter.spend(cost)?;
        result
    }

    fn run(&mut self, call: &'a Call, args: &[Value<'a>]) -> Evaluated<'a> {
        if !crate::cost::looks_at_an_edge(call.rule) {
            for arg in args {
                self.meter.read(arg.bytes())?;
            }
        }
        let found = match &call.run {
            Runner::Function(function) => function(&mut self.meter, args),
            Runner::Pattern(own, pattern) => match (own, args) {
                (PatternUse::Matches, [Value::String(text), _]) => {
                    self.meter.work(pattern.steps(text.as_str().len()))?;
                    Some(Ok(Value::Bool(pattern.is_match(text.as_str()))))
                }
                (PatternUse::Find, [Value::String(text), _]) => {
                    Some(regex::found(pattern, text, &mut self.meter))
                }
                (PatternUse::FindAll, [Value::String(text), _, rest @ ..]) => {
                    regex::found_all(pattern, text, rest.first(), &mut self.meter)
                }
                _ => None,
            },
        };
        found.unwrap_or_else(|| Err(crate::library::no_overload(&call.name, args)))
    }

    #[inline(never)]
    fn member(&mut self, own: &'a (Node, std::collections::HashSet<Key<'static>>)) -> Evaluated<'a> {
        let value = self.eval(&own.0)?;
        self.meter.read(value.bytes())?;
        let key = Key::of(&value);
        let set: &std::collections::HashSet<Key<'_>> = &own.1;
        let is_nan = matches!(value, Value::Double(own) if own.is_nan());
        Ok(Value::Bool(!is_nan && key.is_some_and(|key| set.contains(&key))))
    }

    #[inline(never)]
    fn or_else(&mut self, sides: &'a [Node; 2], value: bool) -> Evaluated<'a> {
        match self.eval(&sides[0])? {
            Value::Optional(Some(own)) if value => Ok((*own).clone()),
            own @ Value::Optional(Some(_)) => Ok(own),
            Value::Optional(None) => self.eval(&sides[1]),
            _ => Err(EvalError::no_overload()),
        }
    }

    #[inline(never)]
    fn list(&mut self, own: &'a ListNode) -> Evaluated<'a> {
        let list = self.elements(own);
        if matches!(&list, Err(error) if error.is_final()) {
            return list;
        }
        self.meter.spend(crate::cost::LIST)?;
        list
    }

    fn elements(&mut self, own: &'a ListNode) -> Evaluated<'a> {
        self.meter.hold(own.elements.len() * size_of::<Value<'_>>())?;
        let mut values = Vec::with_capacity(own.elements.len());
        for (at, element) in own.elements.iter().enumerate() {
            let value = self.eval(element)?;
            if !own.optional.contains(&at) {
                values.push(value);
                continue;
            }
            match value {
                Value::Optional(Some(own)) => values.push((*own).clone()),
                Value::Optional(None) => {}
                other => {
                    let shown = other.shown();
                    let message =
                        format!("cannot initialize optional list element from non-optional value {shown}");
                    return Err(EvalError::new(message));
                }
            }
        }
        Ok(Value::List(List::new(values)))
    }

    #[inline(never)]
    fn map(&mut self, own: &'a [MapEntryNode]) -> Evaluated<'a> {
        let map = self.entries(own);
        if matches!(&map, Err(error) if error.is_final()) {
            return map;
        }
        self.meter.spend(crate::cost::MAP)?;
        map
    }

    fn entries(&mut self, own: &'a [MapEntryNode]) -> Evaluated<'a> {
        self.meter.hold(own.len() * 3 * size_of::<Value<'_>>())?;
        let mut entries = Entries::default();
        for entry in own {
            let key = self.eval(&entry.key)?;
            let value = self.eval(&entry.value)?;
            match value {
                value if !entry.optional => entries.set(key, value)?,
                Value::Optional(Some(own)) => entries.set(key, (*own).clone())?,
                Value::Optional(None) => entries.remove(&key),
                other => return Err(not_optional(&key.shown(), &other)),
            }
        }
        Ok(Value::Map(Map::new(entries)))
    }

    #[inline(never)]
    fn object(&mut self, own: &'a ObjectNode) -> Evaluated<'a> {
        let object = self.fields(own);
        if matches!(&object, Err(error) if error.is_final()) {
            return object;
        }
        self.meter.spend(crate::cost::OBJECT)?;
        object
    }

    fn fields(&mut self, own: &'a ObjectNode) -> Evaluated<'a> {
        self.meter.hold(own.fields.len() * 2 * size_of::<Value<'_>>())?;
        let mut fields: Vec<(Arc<str>, Value<'a>)> = Vec::with_capacity(own.fields.len());
        for (name, node, optional) in &own.fields {
            let value = match self.eval(node)? {
                value if !optional => value,
                Value::Optional(Some(own)) => (*own).clone(),
                Value::Optional(None) => continue,
                other => return Err(not_optional(name, &other)),
            };
            match fields.iter_mut().find(|own| own.0 == *name) {
                Some(own) => own.1 = value,
                None => fields.push((name.clone(), value)),
            }
        }
        crate::library::json_patch::check(&own.type_name, &fields)?;
        Ok(Value::Object(Arc::new(Object {
            type_name: own.type_name.clone(),
            fields,
        })))
    }
}

fn not_optional(name: &str, value: &Value<'_>) -> EvalError {
    let shown = value.shown();
    EvalError::new(format!(
        "cannot initialize optional entry '{name}' from non-optional value {shown}"
    ))
}
