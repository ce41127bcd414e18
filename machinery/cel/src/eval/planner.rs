//! From a checked tree to a plan: names become places, constants are evaluated, patterns compiled.

use super::plan::{
    Attribute, Base, Call, Fold, ListNode, MapEntryNode, Node, ObjectNode, PatternUse, Qualifier,
    QualifierKey, Runner, Step,
};
use super::{Limits, Machine, Variables};
use crate::ast::{ACCUMULATOR, CallExpr, Comprehension, Expr, ExprKind, Id, Literal};
use crate::check::Checked;
use crate::library;
use crate::value::{Key, List, Value};
use machinery_schema::structural::Search;
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes that the patterns of one program may take.
const MAX_PATTERNS: usize = 16 << 20;

/// A plan, and the names of the variables that it uses.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) node: Node,
    pub(crate) variables: Vec<String>,
}

/// Makes the plan of a tree.
pub(crate) fn plan(checked: &Checked) -> Result<Planned, String> {
    let mut planner = Planner {
        checked,
        variables: Vec::new(),
        scopes: Vec::new(),
        patterns: 0,
    };
    let node = planner.node(&checked.parsed.expr)?;
    Ok(Planned {
        node,
        variables: planner.variables,
    })
}

struct Planner<'c> {
    checked: &'c Checked,
    variables: Vec<String>,
    /// Variables of the loops around the place, by their places on the stack.
    scopes: Vec<String>,
    patterns: usize,
}

type Made = Result<Node, String>;

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Made {
        match &expr.kind {
            ExprKind::Unspecified => Err("unsupported expr".to_owned()),
            ExprKind::Literal(literal) => Ok(Node::Const(literal_value(literal))),
            ExprKind::Ident(name) => Ok(match self.type_name(expr.id) {
                Some(own) => own,
                None => Node::Attribute(Box::new(self.variable(name))),
            }),
            ExprKind::Select { operand, field, test } => self.select(expr.id, operand, field, *test),
            ExprKind::Call(call) => self.call(expr.id, call),
            ExprKind::List { elements, optional } => self.list(elements, optional),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => {
                let mut planned = Vec::new();
                for field in fields {
                    let value = self.node(&field.value)?;
                    planned.push((field.name.as_str().into(), value, field.optional));
                }
                Ok(Node::Object(Box::new(ObjectNode {
                    type_name: name.as_str().into(),
                    fields: planned,
                })))
            }
            ExprKind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn type_name(&self, id: Id) -> Option<Node> {
        let ty = self.checked.type_names.get(&id)?;
        Some(Node::Const(Value::Type(Arc::new(ty.clone()))))
    }

    fn variable(&mut self, name: &str) -> Attribute {
        let plain = name.trim_start_matches('.');
        let local = self.scopes.iter().rposition(|own| own == name);
        let base = match local {
            Some(slot) => Base::Local(slot),
            None => Base::Variable(match self.variables.iter().position(|own| own == plain) {
                Some(slot) => slot,
                None => {
                    self.variables.push(plain.to_owned());
                    self.variables.len() - 1
                }
            }),
        };
        Attribute {
            base,
            qualifiers: Vec::new(),
        }
    }

    fn select(&mut self, id: Id, operand: &Expr, field: &str, test: bool) -> Made {
        if let Some(own) = self.type_name(id) {
            return Ok(own);
        }
        let mut attribute = self.attribute(operand)?;
        attribute.qualifiers.push(Qualifier {
            key: QualifierKey::Const(Value::owned(field)),
            optional: false,
        });
        let own = Box::new(attribute);
        Ok(if test {
            Node::Test(own)
        } else {
            Node::Attribute(own)
        })
    }

    /// The operand as an attribute, which further qualifiers can be added to.
    fn attribute(&mut self, operand: &Expr) -> Result<Attribute, String> {
        Ok(into_attribute(self.node(operand)?))
    }

    fn call(&mut self, id: Id, call: &CallExpr) -> Made {
        let overloads = self.checked.overloads.get(&id);
        let overload = overloads.filter(|own| own.len() == 1).map(|own| own[0]);
        match call.function.as_str() {
            "_[_]" => return self.index(call, false),
            "_[?_]" | "_?._" => return self.index(call, true),
            _ => {}
        }
        let mut args = Vec::new();
        for operand in call.operands() {
            args.push(self.node(operand)?);
        }
        match (call.function.as_str(), args.len()) {
            ("_&&_", 2) => return Ok(Node::And(pair(args))),
            ("_||_", 2) => return Ok(Node::Or(pair(args))),
            ("_==_", 2) => return Ok(Node::Equal(pair(args), true)),
            ("_!=_", 2) => return Ok(Node::Equal(pair(args), false)),
            ("or", 2) => return Ok(Node::OrElse(pair(args), false)),
            ("orValue", 2) => return Ok(Node::OrElse(pair(args), true)),
            ("_?_:_", 3) => return Ok(conditional(args)),
            ("@in", 2) if overload == Some("in_list") => match set(args) {
                Ok(own) => return Ok(own),
                Err(back) => args = back,
            },
            _ => {}
        }
        self.function(call, overload, args)
    }

    fn function(&mut self, call: &CallExpr, overload: Option<&str>, args: Vec<Node>) -> Made {
        let name = call.function.as_str();
        // The sum of nothing is of the declared type.
        let own = match overload.and_then(|own| own.strip_prefix("list_")?.split_once("_sum_")) {
            Some((item, _)) if item != "int" => format!("sum({item})"),
            _ => name.to_owned(),
        };
        let function = library::function(&own).ok_or_else(|| format!("no such overload: {name}()"))?;
        let mut run = Runner::Function(function);
        let pattern_use = match name {
            "matches" => Some(PatternUse::Matches),
            "find" => Some(PatternUse::Find),
            "findAll" => Some(PatternUse::FindAll),
            _ => None,
        };
        if let (Some(own), Some(Node::Const(Value::String(text)))) = (pattern_use, args.get(1)) {
            run = Runner::Pattern(own, self.pattern(text.as_str())?);
        }
        let in_turn = args.len() > 2 || name == "format" || matches!(run, Runner::Pattern(..));
        let constant = args.len() == 1 && library::is_conversion(name) && matches!(args[0], Node::Const(_));
        let node = Node::Call(Box::new(Call {
            name: name.into(),
            args,
            run,
            rule: crate::cost::rule(name, overload),
            in_turn,
            lenient: name == "@not_strictly_false",
        }));
        if constant { evaluated(&node) } else { Ok(node) }
    }

    fn pattern(&mut self, text: &str) -> Result<Search, String> {
        let search = Search::new(text)?;
        self.patterns += search.memory();
        if self.patterns > MAX_PATTERNS {
            return Err("the patterns of this expression take more memory than is allowed".to_owned());
        }
        Ok(search)
    }

    fn index(&mut self, call: &CallExpr, optional: bool) -> Made {
        let mut operands = call.operands();
        let (Some(operand), Some(key)) = (operands.next(), operands.next()) else {
            return Err(format!("no such overload: {}", call.function));
        };
        let mut attribute = self.attribute(operand)?;
        let key = match self.node(key)? {
            Node::Const(Value::Bytes(_)) => return Err("invalid qualifier type: types.Bytes".to_owned()),
            Node::Const(Value::Null) => return Err("invalid qualifier type: types.Null".to_owned()),
            Node::Const(own) => QualifierKey::Const(own),
            Node::Attribute(own) => QualifierKey::Attribute(*own),
            other => QualifierKey::Node(other),
        };
        attribute.qualifiers.push(Qualifier { key, optional });
        Ok(Node::Attribute(Box::new(attribute)))
    }

    fn list(&mut self, elements: &[Expr], optional: &[usize]) -> Made {
        let mut planned = Vec::with_capacity(elements.len());
        for element in elements {
            planned.push(self.node(element)?);
        }
        let constant = planned.iter().all(|own| matches!(own, Node::Const(_)));
        let node = Node::List(Box::new(ListNode {
            elements: planned,
            optional: optional.to_vec(),
        }));
        if constant { evaluated(&node) } else { Ok(node) }
    }

    fn map(&mut self, entries: &[crate::ast::MapEntry]) -> Made {
        let mut planned = Vec::with_capacity(entries.len());
        for entry in entries {
            planned.push(MapEntryNode {
                key: self.node(&entry.key)?,
                value: self.node(&entry.value)?,
                optional: entry.optional,
            });
        }
        let is_constant = |own: &Node| matches!(own, Node::Const(_));
        let constant = planned
            .iter()
            .all(|own| is_constant(&own.key) && is_constant(&own.value));
        let node = Node::Map(planned.into());
        if constant { evaluated(&node) } else { Ok(node) }
    }

    fn fold(&mut self, fold: &Comprehension) -> Made {
        let init = self.node(&fold.init)?;
        let range = self.node(&fold.range)?;
        let slot = self.scopes.len();
        self.scopes.push(fold.accu.clone());
        self.scopes.push(fold.var.clone());
        let two = !fold.var2.is_empty();
        if two {
            self.scopes.push(fold.var2.clone());
        }
        let condition = self.node(&fold.condition)?;
        let step = self.step(fold)?;
        self.scopes.truncate(slot + 1);
        let result = self.node(&fold.result)?;
        self.scopes.truncate(slot);
        Ok(Node::Fold(Box::new(Fold {
            range,
            two,
            slot,
            init,
            condition,
            step,
            result,
        })))
    }

    /// A step of one of the forms that macros make changes the accumulator in place.
    fn step(&mut self, fold: &Comprehension) -> Result<Step, String> {
        let (filter, step) = match &fold.step.kind {
            ExprKind::Call(call) if call.function == "_?_:_" && is_accumulator(call.args.get(2)) => {
                (call.args.first(), &call.args[1])
            }
            _ => (None, &fold.step),
        };
        let grows = |call: &CallExpr| match (call.function.as_str(), &fold.init.kind) {
            ("_+_", ExprKind::List { .. }) | ("cel.@mapInsert", ExprKind::Map(_)) => {
                is_accumulator(call.args.first())
            }
            _ => false,
        };
        let ExprKind::Call(call) = &step.kind else {
            return Ok(Step::Other(self.node(&fold.step)?));
        };
        if fold.accu != ACCUMULATOR || !grows(call) {
            return Ok(Step::Other(self.node(&fold.step)?));
        }
        let filter = filter.map(|own| self.node(own)).transpose()?;
        if call.function == "_+_" {
            return Ok(Step::Append(filter, self.node(&call.args[1])?));
        }
        let mut args = Vec::new();
        for arg in &call.args[1..] {
            args.push(self.node(arg)?);
        }
        Ok(Step::Insert(filter, args))
    }
}

fn is_accumulator(expr: Option<&Expr>) -> bool {
    expr.and_then(Expr::as_ident) == Some(ACCUMULATOR)
}

fn into_attribute(node: Node) -> Attribute {
    match node {
        Node::Attribute(own) => *own,
        other => Attribute {
            base: Base::Relative(other),
            qualifiers: Vec::new(),
        },
    }
}

fn conditional(args: Vec<Node>) -> Node {
    let mut args = args.into_iter();
    let mut next = || args.next().expect("three arguments");
    let (condition, truthy, falsy) = (next(), into_attribute(next()), into_attribute(next()));
    Node::Attribute(Box::new(Attribute {
        base: Base::Conditional(Box::new((condition, truthy, falsy))),
        qualifiers: Vec::new(),
    }))
}

fn pair(args: Vec<Node>) -> Box<[Node; 2]> {
    match <Box<[Node; 2]>>::try_from(args) {
        Ok(own) => own,
        Err(_) => unreachable!("two arguments"),
    }
}

/// `in` a list of constants that can be keys; otherwise the arguments come back.
fn set(mut args: Vec<Node>) -> Result<Node, Vec<Node>> {
    let keys = match &args[..] {
        [_, Node::Const(Value::List(list))] => keys(list),
        _ => None,
    };
    match keys {
        None => Err(args),
        Some(keys) if keys.is_empty() => Ok(Node::Const(Value::Bool(false))),
        Some(keys) => Ok(Node::Member(Box::new((args.swap_remove(0), keys)))),
    }
}

/// The elements of a list as keys, when all of them can be.
fn keys(list: &List<'static>) -> Option<HashSet<Key<'static>>> {
    list.iter().map(|own| Key::of(&own.ok()?)).collect()
}

/// The constant that a node without variables is.
fn evaluated(node: &Node) -> Made {
    let variables = Variables::new();
    let mut machine = Machine::new(&variables, &[], Limits::default());
    let value = machine.eval(node).map_err(|error| error.to_string())?;
    Ok(Node::Const(value.into_static()))
}

fn literal_value(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(own) => Value::Bool(*own),
        Literal::Int(own) => Value::Int(*own),
        Literal::Uint(own) => Value::Uint(*own),
        Literal::Double(own) => Value::Double(*own),
        Literal::String(own) => Value::owned(own.as_str()),
        Literal::Bytes(own) => Value::Bytes(own.as_slice().into()),
    }
}
