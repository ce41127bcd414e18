//! Demands on an expression beyond its types: literals that can be read, lists and maps of one type.

use super::Checked;
use crate::ast::{CallExpr, Expr, ExprKind, Literal};
use crate::env::Env;
use crate::library::format_check;
use crate::source::Issues;
use crate::types::Type;

/// Problems of a tree whose types agree.
pub(super) fn validate(checked: &Checked, env: &Env) -> Issues {
    let mut validator = Validator {
        checked,
        issues: Issues::new(checked.parsed.source.clone()),
        homogeneous: !env.features.mixed_literals,
    };
    validator.visit(&checked.parsed.expr, false);
    validator.issues
}

struct Validator<'c> {
    checked: &'c Checked,
    issues: Issues,
    homogeneous: bool,
}

impl Validator<'_> {
    fn report(&mut self, id: usize, message: String) {
        let location = self.checked.parsed.location(id);
        self.issues.report(location, message);
    }

    /// `exempt` is what `format` is called with: values of several types.
    fn visit(&mut self, expr: &Expr, exempt: bool) {
        let mut inner = exempt;
        match &expr.kind {
            ExprKind::Call(call) => {
                self.literal_argument(call);
                inner |= call.function == "format";
                if call.function == "format"
                    && let Some((id, message)) = format_check::problem(expr.id, call, &self.checked.types)
                {
                    self.report(id, message);
                }
            }
            ExprKind::List { elements, optional } if !exempt && self.homogeneous => {
                self.one_type(elements, optional);
            }
            ExprKind::Map(entries) if !exempt && self.homogeneous => {
                let mut first: Option<(Type, Type)> = None;
                for entry in entries {
                    let key = self.type_of(&entry.key, false);
                    let value = self.type_of(&entry.value, entry.optional);
                    let Some((keys, values)) = &first else {
                        first = Some((key, value));
                        continue;
                    };
                    let (keys, values) = (keys.clone(), values.clone());
                    self.same(entry.key.id, &keys, &key);
                    self.same(entry.value.id, &values, &value);
                }
            }
            _ => {}
        }
        expr.children(|child| self.visit(child, inner));
    }

    fn type_of(&self, expr: &Expr, optional: bool) -> Type {
        let ty = &self.checked.types[expr.id];
        match ty.unwrapped() {
            Some(inner) if optional => inner.clone(),
            _ => ty.clone(),
        }
    }

    fn same(&mut self, id: usize, expected: &Type, found: &Type) -> bool {
        if equivalent(expected, found) {
            return true;
        }
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
        false
    }

    fn one_type(&mut self, elements: &[Expr], optional: &[usize]) {
        let mut first: Option<Type> = None;
        for (at, element) in elements.iter().enumerate() {
            let ty = self.type_of(element, optional.contains(&at));
            match &first {
                None => first = Some(ty),
                Some(own) => {
                    let own = own.clone();
                    if !self.same(element.id, &own, &ty) {
                        return;
                    }
                }
            }
        }
    }

    /// Literal arguments of `duration`, `timestamp` and `matches`.
    fn literal_argument(&mut self, call: &CallExpr) {
        let function = call.function.as_str();
        let Some(arg) = call.args.first() else { return };
        let Some(literal) = arg.as_literal() else { return };
        let valid = match (function, literal) {
            ("duration", Literal::String(text)) => crate::library::times::parse_duration(text).is_some(),
            ("timestamp", Literal::String(text)) => crate::library::times::parse_timestamp(text).is_some(),
            ("timestamp", Literal::Int(seconds)) => crate::library::times::in_range(*seconds),
            // The first argument, also where it is the text and not the pattern: so upstream does.
            ("matches", Literal::String(text)) => machinery_schema::structural::Search::new(text).is_ok(),
            _ => true,
        };
        if !valid {
            self.report(arg.id, format!("invalid {function} argument"));
        }
    }
}

/// Types that agree but for what is dynamic in neither.
fn equivalent(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Type(_), Type::Type(_)) => true,
        _ => {
            let (own, other) = (left.params(), right.params());
            if own.is_empty() && other.is_empty() {
                return left == right;
            }
            std::mem::discriminant(left) == std::mem::discriminant(right)
                && left.name() == right.name()
                && own.len() == other.len()
                && own.iter().zip(other).all(|(own, other)| equivalent(own, other))
        }
    }
}
