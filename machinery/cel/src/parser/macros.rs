//! Macros: calls that become loops, presence tests and conditions while they are read.

use super::Parser;
use crate::ast::{
    ACCUMULATOR, CallExpr, Comprehension, Expr, ExprKind, Id, Literal, MapEntry, OLD_ACCUMULATOR,
};

/// Expansion of a macro: its nodes are all at the place of the call.
struct Expander<'a, 's> {
    parser: &'a mut Parser<'s>,
    offset: usize,
}

/// A problem of an argument, with the node that it is in.
type Expanded = Result<Expr, (Id, String)>;

/// Expands a call; the call itself comes back when it is no macro.
pub(super) fn expand(parser: &mut Parser<'_>, id: Id, call: CallExpr) -> Result<Expr, CallExpr> {
    let Some(rule) = rule(parser, &call) else {
        return Err(call);
    };
    let offset = parser.offsets[id];
    let mut expander = Expander { parser, offset };
    match rule(&mut expander, call) {
        Ok(expr) => Ok(expr),
        Err((id, message)) => {
            let offset = parser.offsets[id];
            Ok(parser.wrong(offset, message))
        }
    }
}

type Rule = fn(&mut Expander<'_, '_>, CallExpr) -> Expanded;

fn rule(parser: &Parser<'_>, call: &CallExpr) -> Option<Rule> {
    let receiver = call.target.is_some();
    Some(match (call.function.as_str(), call.args.len(), receiver) {
        ("has", 1, false) => has,
        ("all", 2 | 3, true) => all,
        ("exists", 2 | 3, true) => exists,
        ("exists_one" | "existsOne", 2 | 3, true) => exists_one,
        ("map", 2 | 3, true) => map,
        ("filter", 2, true) => filter,
        ("transformList", 3 | 4, true) => transform_list,
        ("transformMap", 3 | 4, true) => transform_map,
        ("transformMapEntry", 3 | 4, true) => transform_map_entry,
        ("optMap", 2, true) => opt_map,
        ("optFlatMap", 2, true) => opt_flat_map,
        ("sortBy", 2, true) => sort_by,
        ("bind", 3, true) if parser.syntax.bind => {
            let on_cel = call.target.as_ref().and_then(Expr::as_ident) == Some("cel");
            return on_cel.then_some(bind);
        }
        _ => return None,
    })
}

impl Expander<'_, '_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        self.parser.node(self.offset, kind)
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.node(ExprKind::List {
            elements,
            optional: Vec::new(),
        })
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.member(function, None, args)
    }

    fn member(&mut self, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call(Box::new(CallExpr {
            function: function.to_owned(),
            target,
            args,
        })))
    }

    /// A copy with nodes of its own; the parser stops by itself when there are too many.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, expr: &mut Expr) {
        let offset = self.parser.offsets[expr.id];
        expr.id = self.parser.id(offset);
        match &mut expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => self.renumber(operand),
            ExprKind::Call(call) => {
                let operands = call.target.iter_mut().chain(&mut call.args);
                operands.for_each(|own| self.renumber(own));
            }
            ExprKind::List { elements, .. } => elements.iter_mut().for_each(|own| self.renumber(own)),
            ExprKind::Map(entries) => {
                for MapEntry { key, value, .. } in entries {
                    self.renumber(key);
                    self.renumber(value);
                }
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter_mut().for_each(|own| self.renumber(&mut own.value))
            }
            ExprKind::Comprehension(fold) => {
                let Comprehension {
                    range,
                    init,
                    condition,
                    step,
                    result,
                    ..
                } = &mut **fold;
                [range, init, condition, step, result]
                    .into_iter()
                    .for_each(|own| self.renumber(own));
            }
        }
    }

    fn fold(&mut self, vars: Vars, init: Expr, condition: Expr, step: Expr, result: Expr) -> Expr {
        self.node(ExprKind::Comprehension(Box::new(Comprehension {
            range: vars.range,
            var: vars.first,
            var2: vars.second,
            accu: ACCUMULATOR.to_owned(),
            init,
            condition,
            step,
            result,
        })))
    }

    /// A loop without a range: a variable that is bound while the result is evaluated.
    fn bound(&mut self, name: &str, init: Expr, result: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        self.node(ExprKind::Comprehension(Box::new(Comprehension {
            range,
            var: "#unused".to_owned(),
            var2: String::new(),
            accu: name.to_owned(),
            init,
            condition,
            step,
            result,
        })))
    }

    /// A step that is only made where a filter holds.
    fn filtered(&mut self, filter: Option<Expr>, step: Expr) -> Expr {
        let Some(filter) = filter else { return step };
        let same = self.accumulator();
        self.call("_?_:_", vec![filter, step, same])
    }
}

/// Range and variables of a loop.
struct Vars {
    range: Expr,
    first: String,
    second: String,
}

const NOT_SIMPLE: &str = "argument must be a simple name";

/// The variables, of which there are two when the call has more than `one` arguments, and the arguments after them.
fn vars(call: CallExpr, two: bool, problem: &str) -> Result<(Vars, Vec<Expr>), (Id, String)> {
    let mut args = call.args.into_iter();
    let mut name = || {
        let arg = args.next().expect("counted by the rule");
        let name = arg.as_ident().map(str::to_owned);
        name.map(|name| (arg.id, name))
            .ok_or_else(|| (arg.id, problem.to_owned()))
    };
    let first = name()?;
    let second = if two { Some(name()?) } else { None };
    if let Some((id, own)) = &second
        && *own == first.1
    {
        return Err((*id, format!("duplicate variable name: {own}")));
    }
    for (id, own) in [Some(&first), second.as_ref()].into_iter().flatten() {
        if own == ACCUMULATOR || own == OLD_ACCUMULATOR {
            return Err((
                *id,
                "iteration variable overwrites accumulator variable".to_owned(),
            ));
        }
    }
    let vars = Vars {
        range: call.target.expect("the rule is for members"),
        first: first.1,
        second: second.map(|(_, own)| own).unwrap_or_default(),
    };
    Ok((vars, args.collect()))
}

fn has(e: &mut Expander<'_, '_>, mut call: CallExpr) -> Expanded {
    let arg = call.args.remove(0);
    match arg.kind {
        ExprKind::Select { operand, field, .. } => Ok(e.node(ExprKind::Select {
            operand,
            field,
            test: true,
        })),
        _ => Err((arg.id, "invalid argument to has() macro".to_owned())),
    }
}

fn quantifier(
    e: &mut Expander<'_, '_>,
    call: CallExpr,
    init: Literal,
    condition: fn(&mut Expander<'_, '_>) -> Expr,
    step: fn(&mut Expander<'_, '_>, Expr) -> Expr,
    result: fn(&mut Expander<'_, '_>) -> Expr,
) -> Expanded {
    let two = call.args.len() == 3;
    let (vars, mut args) = vars(call, two, NOT_SIMPLE)?;
    let init = e.literal(init);
    let condition = condition(e);
    let step = step(e, args.remove(0));
    let result = result(e);
    Ok(e.fold(vars, init, condition, step, result))
}

fn all(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let condition = |e: &mut Expander<'_, '_>| {
        let accumulator = e.accumulator();
        e.call("@not_strictly_false", vec![accumulator])
    };
    let step = |e: &mut Expander<'_, '_>, predicate| {
        let accumulator = e.accumulator();
        e.call("_&&_", vec![accumulator, predicate])
    };
    quantifier(e, call, Literal::Bool(true), condition, step, |e| e.accumulator())
}

fn exists(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let condition = |e: &mut Expander<'_, '_>| {
        let accumulator = e.accumulator();
        let not = e.call("!_", vec![accumulator]);
        e.call("@not_strictly_false", vec![not])
    };
    let step = |e: &mut Expander<'_, '_>, predicate| {
        let accumulator = e.accumulator();
        e.call("_||_", vec![accumulator, predicate])
    };
    quantifier(e, call, Literal::Bool(false), condition, step, |e| {
        e.accumulator()
    })
}

fn exists_one(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let condition = |e: &mut Expander<'_, '_>| e.literal(Literal::Bool(true));
    let step = |e: &mut Expander<'_, '_>, predicate| {
        let args = vec![e.accumulator(), e.literal(Literal::Int(1))];
        let more = e.call("_+_", args);
        e.filtered(Some(predicate), more)
    };
    quantifier(e, call, Literal::Int(0), condition, step, |e| {
        let args = vec![e.accumulator(), e.literal(Literal::Int(1))];
        e.call("_==_", args)
    })
}

fn collect(e: &mut Expander<'_, '_>, vars: Vars, filter: Option<Expr>, element: Expr) -> Expr {
    let init = e.list(Vec::new());
    let condition = e.literal(Literal::Bool(true));
    let accumulator = e.accumulator();
    let list = e.list(vec![element]);
    let step = e.call("_+_", vec![accumulator, list]);
    let step = e.filtered(filter, step);
    let result = e.accumulator();
    e.fold(vars, init, condition, step, result)
}

/// A filter, when there is one, and the transformation after it.
fn transformation(mut args: Vec<Expr>) -> (Option<Expr>, Expr) {
    let last = args.pop().expect("counted by the rule");
    (args.pop(), last)
}

fn map(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let (vars, args) = vars(call, false, "argument is not an identifier")?;
    let (filter, element) = transformation(args);
    Ok(collect(e, vars, filter, element))
}

fn filter(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let var = call.args[0].clone();
    let (vars, mut args) = vars(call, false, "argument is not an identifier")?;
    Ok(collect(e, vars, args.pop(), var))
}

fn transform_list(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let (vars, args) = vars(call, true, NOT_SIMPLE)?;
    let (filter, element) = transformation(args);
    Ok(collect(e, vars, filter, element))
}

fn insert(e: &mut Expander<'_, '_>, vars: Vars, filter: Option<Expr>, mut inserted: Vec<Expr>) -> Expr {
    let init = e.node(ExprKind::Map(Vec::new()));
    let condition = e.literal(Literal::Bool(true));
    inserted.insert(0, e.accumulator());
    let step = e.call("cel.@mapInsert", inserted);
    let step = e.filtered(filter, step);
    let result = e.accumulator();
    e.fold(vars, init, condition, step, result)
}

fn transform_map(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let (vars, args) = vars(call, true, NOT_SIMPLE)?;
    let (filter, value) = transformation(args);
    let key = e.ident(&vars.first);
    Ok(insert(e, vars, filter, vec![key, value]))
}

fn transform_map_entry(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    let (vars, args) = vars(call, true, NOT_SIMPLE)?;
    let (filter, entries) = transformation(args);
    Ok(insert(e, vars, filter, vec![entries]))
}

fn opt_map(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    optional(e, call, "optMap", true)
}

fn opt_flat_map(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    optional(e, call, "optFlatMap", false)
}

fn optional(e: &mut Expander<'_, '_>, mut call: CallExpr, name: &str, wrap: bool) -> Expanded {
    let mapped = call.args.pop().expect("counted by the rule");
    let var = call.args.pop().expect("counted by the rule");
    let Some(variable) = var.as_ident() else {
        let problem = format!("{name}() variable name must be a simple identifier");
        return Err((var.id, problem));
    };
    let target = call.target.expect("the rule is for members");
    let copy = if e.parser.is_too_large() {
        e.ident(variable)
    } else {
        e.copy(&target)
    };
    let present = e.member("hasValue", Some(target), Vec::new());
    let value = e.member("value", Some(copy), Vec::new());
    let mut result = e.bound(variable, value, mapped);
    if wrap {
        result = e.call("optional.of", vec![result]);
    }
    let none = e.call("optional.none", Vec::new());
    Ok(e.call("_?_:_", vec![present, result, none]))
}

fn sort_by(e: &mut Expander<'_, '_>, call: CallExpr) -> Expanded {
    const INPUT: &str = "@__sortBy_input__";
    let target = call.target.as_ref().expect("the rule is for members");
    if matches!(
        target.kind,
        ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }
    ) {
        let problem =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err((target.id, problem.to_owned()));
    }
    let target = call.target.expect("the rule is for members");
    let inner = CallExpr {
        function: "map".to_owned(),
        target: Some(e.ident(INPUT)),
        args: call.args,
    };
    let keys = map(e, inner)?;
    let input = e.ident(INPUT);
    let sorted = e.member("@sortByAssociatedKeys", Some(input), vec![keys]);
    Ok(e.bound(INPUT, target, sorted))
}

fn bind(e: &mut Expander<'_, '_>, mut call: CallExpr) -> Expanded {
    let result = call.args.pop().expect("counted by the rule");
    let init = call.args.pop().expect("counted by the rule");
    let var = call.args.pop().expect("counted by the rule");
    let Some(variable) = var.as_ident() else {
        let problem = "cel.bind() variable names must be simple identifiers";
        return Err((var.id, problem.to_owned()));
    };
    Ok(e.bound(variable, init, result))
}
