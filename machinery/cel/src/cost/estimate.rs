//! The range of what an expression may cost, from the sizes that values can have.

use super::functions::{self, Argument, Estimate};
use super::range::Range;
use super::{LIST, MAP, OBJECT};
use crate::ast::{CallExpr, Comprehension, Expr, ExprKind, Id, Literal};
use crate::check::Checked;
use crate::declared::Declared;
use crate::types::Type;
use std::collections::HashMap;
use std::rc::Rc;

/// Sizes of what paths lead to. A path begins with a variable; further steps are names of fields, `@items`, `@keys` and `@values`.
pub trait Sizes {
    /// The greatest size, when it is known.
    fn max_size(&self, path: &[&str]) -> Option<u64>;

    /// Steps to look through all of the value, when they are known.
    fn max_steps(&self, _path: &[&str]) -> Option<u64> {
        None
    }
}

/// Sizes of values of which nothing is declared.
#[derive(Debug, Clone, Copy)]
pub struct NoSizes;

impl Sizes for NoSizes {
    fn max_size(&self, _path: &[&str]) -> Option<u64> {
        None
    }
}

/// Every variable has the declared type.
impl Sizes for Declared {
    fn max_size(&self, path: &[&str]) -> Option<u64> {
        Declared::max_size(self, path.get(1..)?)
    }

    fn max_steps(&self, path: &[&str]) -> Option<u64> {
        Declared::max_steps(self, path.get(1..)?)
    }
}

/// Steps from a variable to a value, the last first.
#[derive(Debug)]
pub(super) struct Path {
    parent: Option<Rc<Path>>,
    step: String,
}

pub(super) fn child(parent: Option<&Rc<Path>>, step: &str) -> Option<Rc<Path>> {
    Some(Rc::new(Path {
        parent: parent.cloned(),
        step: step.to_owned(),
    }))
}

fn steps(path: &Path) -> Vec<&str> {
    let mut out = vec![path.step.as_str()];
    let mut at = path;
    while let Some(parent) = &at.parent {
        out.push(&parent.step);
        at = parent;
    }
    out.reverse();
    out
}

/// Sizes of keys and values of a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    map: bool,
    key: Range,
    value: Range,
}

impl Entry {
    pub(super) fn is_map(&self) -> bool {
        self.map
    }

    pub(super) fn greatest_value(&self) -> u64 {
        self.value.max
    }
}

/// Knowledge of a variable of a loop.
#[derive(Debug, Clone, Default)]
struct Local {
    path: Option<Rc<Path>>,
    size: Option<Range>,
    entry: Option<Entry>,
}

pub(super) struct Coster<'c> {
    checked: &'c Checked,
    pub(super) sizes: &'c dyn Sizes,
    paths: HashMap<Id, Rc<Path>>,
    locals: HashMap<String, Vec<Local>>,
    computed: HashMap<Id, Range>,
    entries: HashMap<Id, Entry>,
    /// Steps that upstream's figures leave out are counted as well.
    pub(super) counts_work: bool,
}

/// The range of what a tree may cost.
pub(crate) fn estimate(checked: &Checked, sizes: &dyn Sizes) -> Range {
    Coster::new(checked, sizes).cost(&checked.parsed.expr)
}

impl<'c> Coster<'c> {
    pub(super) fn new(checked: &'c Checked, sizes: &'c dyn Sizes) -> Self {
        Self {
            checked,
            sizes,
            paths: HashMap::new(),
            locals: HashMap::new(),
            computed: HashMap::new(),
            entries: HashMap::new(),
            counts_work: false,
        }
    }
}

impl Coster<'_> {
    pub(super) fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) => Range::default(),
            ExprKind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => child(None, name),
                };
                self.set_path(expr.id, path);
                Range::fixed(1)
            }
            ExprKind::Select { operand, field, test } => {
                let cost = self.select(expr.id, operand, field, *test);
                if !self.counts_work {
                    return cost;
                }
                cost.plus(Range::new(0, self.steps_to_decode(expr)))
            }
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List { elements, .. } => self.list(expr.id, elements),
            ExprKind::Map(entries) => {
                let pairs: Vec<_> = entries.iter().map(|own| (&own.key, &own.value)).collect();
                self.map(expr.id, &pairs)
            }
            ExprKind::Struct { fields, .. } => {
                let costs = fields.iter().map(|own| self.cost(&own.value));
                costs
                    .fold(Range::default(), Range::plus)
                    .plus(Range::fixed(OBJECT))
            }
            ExprKind::Comprehension(fold) if is_bind(fold) => self.bind(expr.id, fold),
            ExprKind::Comprehension(fold) => self.fold(expr.id, fold),
        }
    }

    pub(super) fn ty(&self, id: Id) -> &Type {
        &self.checked.types[id]
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.get(name)?.last()
    }

    fn push(&mut self, name: &str, local: Local) {
        self.locals.entry(name.to_owned()).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        self.locals.get_mut(name).map(Vec::pop);
    }

    fn path(&self, expr: &Expr) -> Option<Rc<Path>> {
        if let Some(local) = expr.as_ident().and_then(|name| self.local(name)) {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned()
    }

    fn set_path(&mut self, id: Id, path: Option<Rc<Path>>) {
        match path {
            Some(path) => self.paths.insert(id, path),
            None => self.paths.remove(&id),
        };
    }

    pub(super) fn size_at(&self, path: Option<&Rc<Path>>) -> Option<Range> {
        let steps = steps(path?);
        self.sizes.max_size(&steps).map(|max| Range::new(0, max))
    }

    pub(super) fn steps_at(&self, path: Option<&Rc<Path>>) -> Option<u64> {
        let steps = steps(path?);
        self.sizes.max_steps(&steps)
    }

    pub(super) fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(known) = self.computed.get(&expr.id) {
            return Some(*known);
        }
        if let Some(written) = written_size(expr) {
            return Some(Range::fixed(written));
        }
        if let Some(found) = self.size_at(self.path(expr).as_ref()) {
            self.computed.insert(expr.id, found);
            return Some(found);
        }
        if is_scalar(self.ty(expr.id)) {
            return Some(Range::fixed(1));
        }
        expr.as_ident().and_then(|name| self.local(name)?.size)
    }

    pub(super) fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn set_size(&mut self, id: Id, size: Option<Range>) {
        if let Some(size) = size {
            self.computed.insert(id, size);
        }
    }

    pub(super) fn entry(&self, expr: &Expr) -> Option<Entry> {
        let own = self.entries.get(&expr.id).copied();
        own.or_else(|| expr.as_ident().and_then(|name| self.local(name)?.entry))
    }

    pub(super) fn join_entries(&mut self, id: Id, left: &Expr, right: &Expr) {
        if let (Some(own), Some(other)) = (self.entry(left), self.entry(right)) {
            let joined = Entry {
                map: own.map,
                key: own.key.union(other.key),
                value: own.value.union(other.value),
            };
            self.entries.insert(id, joined);
        }
    }

    fn select(&mut self, id: Id, operand: &Expr, field: &str, test: bool) -> Range {
        let mut sum = self.cost(operand);
        if test {
            return sum;
        }
        if matches!(
            self.ty(operand.id),
            Type::Map(_) | Type::Object(_) | Type::Param(_)
        ) {
            sum = sum.plus(Range::fixed(1));
        }
        let parent = self.path(operand);
        self.set_path(id, child(parent.as_ref(), field));
        sum
    }

    fn call(&mut self, expr: &Expr, call: &CallExpr) -> Range {
        if call.function == "dyn"
            && let [arg] = &call.args[..]
        {
            let cost = self.cost(arg).plus(Range::fixed(1));
            let size = self.size(arg);
            self.set_size(expr.id, size);
            if let Some(entry) = self.entry(arg) {
                self.entries.insert(expr.id, entry);
            }
            return cost;
        }
        let mut args = Vec::new();
        for arg in &call.args {
            let cost = self.cost(arg);
            args.push(self.argument(arg, cost));
        }
        let Some(overloads) = self.checked.overloads.get(&expr.id) else {
            return Range::default();
        };
        let mut sum = Range::default();
        let target = call.target.as_ref().map(|target| {
            sum = self.cost(target);
            self.argument(target, Range::default())
        });
        let mut cost = Range::new(u64::MAX, 0);
        let mut size: Option<Range> = None;
        for overload in overloads {
            let own = functions::estimate(self, expr, &call.function, overload, target.as_ref(), &args);
            cost = cost.union(own.cost);
            if let Some(own) = own.size {
                size = Some(size.map_or(own, |size| size.union(own)));
            }
            if let (true, Some(list)) = (matches!(*overload, "index_list" | "index_map"), call.args.first()) {
                size = self.entry(list).map(|own| own.value);
                let step = if *overload == "index_list" {
                    "@items"
                } else {
                    "@values"
                };
                let parent = self.path(list);
                self.set_path(expr.id, child(parent.as_ref(), step));
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if self.counts_work {
            let all: Vec<_> = target.iter().chain(&args).collect();
            cost = cost.plus(Range::new(0, self.steps_of_call(&call.function, &all)));
            if call.function == "semver" {
                size = args.first().and_then(|own| own.size);
            }
        }
        self.set_size(expr.id, size);
        sum.plus(cost)
    }

    fn argument<'e>(&mut self, expr: &'e Expr, cost: Range) -> Argument<'e> {
        let path = self.path(expr);
        // Accumulators are no variables of the environment.
        let accumulated = path
            .as_ref()
            .is_some_and(|path| steps(path)[0] == crate::ast::ACCUMULATOR);
        Argument {
            expr,
            cost,
            size: self.size(expr),
            path: path.filter(|_| !accumulated),
        }
    }

    fn list(&mut self, id: Id, elements: &[Expr]) -> Range {
        let mut sum = Range::fixed(LIST);
        let mut item = Range::new(if elements.is_empty() { 0 } else { u64::MAX }, 0);
        for element in elements {
            sum = sum.plus(self.cost(element));
            item = item.union(self.size_or_unknown(element));
        }
        let entry = Entry {
            map: false,
            key: Range::fixed(1),
            value: item,
        };
        self.entries.insert(id, entry);
        sum
    }

    fn map(&mut self, id: Id, pairs: &[(&Expr, &Expr)]) -> Range {
        let mut sum = Range::fixed(MAP);
        let start = Range::new(if pairs.is_empty() { 0 } else { u64::MAX }, 0);
        let mut entry = Entry {
            map: true,
            key: start,
            value: start,
        };
        for (key, value) in pairs {
            sum = sum.plus(self.cost(key)).plus(self.cost(value));
            entry.key = entry.key.union(self.size_or_unknown(key));
            entry.value = entry.value.union(self.size_or_unknown(value));
        }
        self.entries.insert(id, entry);
        sum
    }

    fn bind(&mut self, id: Id, fold: &Comprehension) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accu, &fold.init);
        sum = sum.plus(self.cost(&fold.result));
        self.pop(&fold.accu);
        let size = self.size(&fold.result);
        self.set_size(id, size);
        if let Some(entry) = self.entry(&fold.result) {
            self.entries.insert(id, entry);
        }
        sum
    }

    fn push_value(&mut self, name: &str, expr: &Expr) {
        let local = Local {
            path: self.path(expr),
            size: self.size(expr),
            entry: self.entry(expr),
        };
        self.push(name, local);
    }

    /// A variable that stands for the keys or values of a range.
    fn push_part(&mut self, name: &str, range: &Expr, values: Option<bool>) {
        let entry = self.entry(range);
        let map = entry.map_or(matches!(self.ty(range.id), Type::Map(_)), |own| own.map);
        let list = entry.map_or(matches!(self.ty(range.id), Type::List(_)), |own| !own.map);
        let values = values.unwrap_or(list);
        let step = match (values, list, map) {
            (true, true, _) => "@items",
            (true, false, _) => "@values",
            (false, true, _) => "@indices",
            (false, false, _) => "@keys",
        };
        let parent = self.path(range);
        let local = Local {
            path: child(parent.as_ref(), step),
            size: entry.map(|own| if values { own.value } else { own.key }),
            entry: None,
        };
        self.push(name, local);
    }

    fn fold(&mut self, id: Id, fold: &Comprehension) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accu, &fold.init);
        if fold.var2.is_empty() {
            self.push_part(&fold.var, &fold.range, None);
        } else {
            self.push_part(&fold.var, &fold.range, Some(false));
            self.push_part(&fold.var2, &fold.range, Some(true));
        }
        let turn = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.pop(&fold.var);
        if !fold.var2.is_empty() {
            self.pop(&fold.var2);
        }
        sum = sum.plus(self.cost(&fold.result));
        self.pop(&fold.accu);
        let count = self.size_or_unknown(&fold.range);
        sum = sum.plus(count.times(turn));
        match &fold.init.kind {
            ExprKind::Literal(_) => {
                let size = self.size(&fold.init);
                self.set_size(id, size);
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.set_size(id, Some(count));
                if let Some(entry) = self.entry(&fold.step) {
                    self.entries.insert(id, entry);
                }
            }
            _ => {}
        }
        sum
    }
}

/// A loop that only binds a variable.
fn is_bind(fold: &Comprehension) -> bool {
    let empty = matches!(&fold.range.kind, ExprKind::List { elements, .. } if elements.is_empty());
    empty
        && fold.condition.as_literal() == Some(&Literal::Bool(false))
        && fold.accu != crate::ast::OLD_ACCUMULATOR
}

/// Size of what is written out.
fn written_size(expr: &Expr) -> Option<u64> {
    let size = match &expr.kind {
        ExprKind::Literal(Literal::String(own)) => own.chars().count(),
        ExprKind::Literal(Literal::Bytes(own)) => own.len(),
        ExprKind::Literal(_) => 1,
        ExprKind::List { elements, .. } => elements.len(),
        ExprKind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(size as u64)
}

pub(super) fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        _ => ty.unwrapped().is_some_and(is_scalar),
    }
}

/// The estimate of a call of which nothing special is known.
pub(super) fn plain(args: &[Argument<'_>]) -> Estimate {
    Estimate {
        cost: Range::fixed(1).plus(functions::sum(args)),
        size: None,
    }
}
