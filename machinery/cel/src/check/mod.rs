//! The type checker: every node gets a type, every name and call what it refers to.
//!
//! The rules are cel-go's: parameters of functions are found by unification, what is dynamic agrees with everything.

mod calls;
mod literals;
mod unify;
mod validators;

use crate::ast::{Comprehension, Expr, ExprKind, Id, Literal};
use crate::env::Env;
use crate::parser::Parsed;
use crate::source::Issues;
use crate::types::Type;
use std::collections::HashMap;
use unify::Mapping;

/// Parts of a type.
const MAX_TYPE: usize = 1_000;

/// A tree with types.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) parsed: Parsed,
    /// Types by node.
    pub(crate) types: Vec<Type>,
    /// Overloads that a call may have, by node.
    pub(crate) overloads: HashMap<Id, Vec<&'static str>>,
    /// Nodes that name a type, which is their value.
    pub(crate) type_names: HashMap<Id, Type>,
    pub(crate) ty: Type,
}

/// Checks a tree.
pub(crate) fn check(mut parsed: Parsed, env: &Env) -> Result<Checked, Issues> {
    let mut expr = std::mem::replace(
        &mut parsed.expr,
        Expr {
            id: 0,
            kind: ExprKind::Unspecified,
        },
    );
    let mut checker = Checker {
        env,
        parsed: &parsed,
        issues: Issues::new(parsed.source.clone()),
        types: vec![None; parsed.offsets.len()],
        overloads: HashMap::new(),
        type_names: HashMap::new(),
        mapping: Mapping::default(),
        scopes: Vec::new(),
    };
    checker.check(&mut expr);
    let mapping = &checker.mapping;
    let types: Vec<_> = checker
        .types
        .iter()
        .map(|ty| ty.as_ref().map_or(Type::Dyn, |ty| mapping.substitute(ty, true)))
        .collect();
    let Checker {
        issues,
        overloads,
        type_names,
        ..
    } = checker;
    parsed.expr = expr;
    let ty = types[parsed.expr.id].clone();
    let checked = Checked {
        parsed,
        types,
        overloads,
        type_names,
        ty,
    };
    let issues = if issues.is_empty() {
        validators::validate(&checked, env)
    } else {
        issues
    };
    if issues.is_empty() {
        return Ok(checked);
    }
    let mut issues = issues;
    issues.sort();
    Err(issues)
}

struct Checker<'c> {
    env: &'c Env,
    parsed: &'c Parsed,
    issues: Issues,
    types: Vec<Option<Type>>,
    overloads: HashMap<Id, Vec<&'static str>>,
    type_names: HashMap<Id, Type>,
    mapping: Mapping,
    /// Variables of the loops around the place.
    scopes: Vec<(String, Type)>,
}

/// Declaration that a name refers to.
enum Resolved {
    Variable(String, Type),
    TypeName(Type),
}

impl Checker<'_> {
    fn report(&mut self, id: Id, message: String) {
        let location = self.parsed.location(id);
        self.issues.report(location, message);
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        self.types[id] = Some(Type::Error);
    }

    fn set(&mut self, id: Id, ty: Type) {
        if ty.exceeds(MAX_TYPE) {
            self.report(id, format!("type has more than {MAX_TYPE} parts"));
            self.types[id] = Some(Type::Error);
            return;
        }
        self.types[id] = Some(ty);
    }

    fn get(&self, id: Id) -> Type {
        self.types[id].clone().unwrap_or(Type::Error)
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn check(&mut self, expr: &mut Expr) {
        match &mut expr.kind {
            ExprKind::Unspecified => {}
            ExprKind::Literal(literal) => {
                let ty = literal_type(literal);
                self.set(expr.id, ty);
            }
            ExprKind::Ident(_) => self.ident(expr),
            ExprKind::Select { .. } => self.select(expr),
            ExprKind::Call(_) => self.call(expr),
            ExprKind::List { .. } => self.list(expr),
            ExprKind::Map(_) => self.map(expr),
            ExprKind::Struct { .. } => self.object(expr),
            ExprKind::Comprehension(fold) => self.comprehension(expr.id, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Type> {
        let mut scopes = self.scopes.iter().rev();
        scopes.find(|own| own.0 == name).map(|own| &own.1)
    }

    fn global(&self, name: &str) -> Option<Resolved> {
        let name = name.trim_start_matches('.');
        if let Some(ty) = self.env.variables.get(name) {
            return Some(Resolved::Variable(name.to_owned(), ty.clone()));
        }
        type_name(name, self.env).map(Resolved::TypeName)
    }

    fn resolve(&self, name: &str) -> Option<Resolved> {
        let local = self.local(name.trim_start_matches('.'));
        if let Some(ty) = local
            && !name.starts_with('.')
        {
            return Some(Resolved::Variable(name.to_owned(), ty.clone()));
        }
        let found = self.global(name)?;
        Some(match found {
            Resolved::Variable(own, ty) if local.is_some() => Resolved::Variable(format!(".{own}"), ty),
            other => other,
        })
    }

    /// A name with dots; the first part must be no variable of a loop.
    fn resolve_qualified(&self, name: &str) -> Option<Resolved> {
        let first = name.trim_start_matches('.').split('.').next()?;
        let local = self.local(first).is_some();
        if local && !name.starts_with('.') {
            return None;
        }
        Some(match self.global(name)? {
            Resolved::Variable(own, ty) if local => Resolved::Variable(format!(".{own}"), ty),
            other => other,
        })
    }

    fn refer(&mut self, expr: &mut Expr, resolved: Resolved) {
        match resolved {
            Resolved::Variable(name, ty) => {
                self.set(expr.id, ty);
                expr.kind = ExprKind::Ident(name);
            }
            Resolved::TypeName(ty) => {
                self.set(expr.id, Type::type_of(ty.clone()));
                expr.kind = ExprKind::Ident(ty.name().to_owned());
                self.type_names.insert(expr.id, ty);
            }
        }
    }

    fn ident(&mut self, expr: &mut Expr) {
        let name = expr.as_ident().unwrap_or_default().to_owned();
        match self.resolve(&name) {
            Some(resolved) => self.refer(expr, resolved),
            None => self.undeclared(expr.id, &name),
        }
    }

    fn select(&mut self, expr: &mut Expr) {
        let resolved = match expr.qualified_name() {
            Some(name) => self.resolve_qualified(&name),
            None => None,
        };
        if let Some(resolved) = resolved {
            return self.refer(expr, resolved);
        }
        let id = expr.id;
        let ExprKind::Select { operand, field, test } = &mut expr.kind else {
            return;
        };
        let (field, test) = (field.clone(), *test);
        let ty = self.field(id, operand, &field, false);
        let ty = if test { Type::Bool } else { ty };
        let ty = self.mapping.substitute(&ty, false);
        self.set(id, ty);
    }

    /// Type of a field of an operand, which is checked first.
    fn field(&mut self, id: Id, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.mapping.substitute(&self.get(operand.id), false);
        let (target, wrapped) = match operand.unwrapped() {
            Some(inner) => (inner.clone(), true),
            None => (operand, optional),
        };
        let ty = match &target {
            Type::Map(own) => own.1.clone(),
            Type::Object(name) => self.object_field(id, name, field).unwrap_or(Type::Error),
            Type::Var(_) => {
                self.mapping.assignable(&[&Type::Dyn], &[&target]);
                Type::Dyn
            }
            _ => {
                if !target.is_dyn_or_error() {
                    self.report(id, format!("type '{target}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if wrapped { Type::optional(ty) } else { ty }
    }

    fn object_field(&mut self, id: Id, name: &str, field: &str) -> Option<Type> {
        if !self.env.has_type(name) {
            self.report(id, format!("unexpected failed resolution of '{name}'"));
            return None;
        }
        let found = self.env.field(name, field);
        if found.is_none() {
            self.report(id, format!("undefined field '{field}'"));
        }
        found
    }

    fn comprehension(&mut self, id: Id, fold: &mut Comprehension) {
        self.check(&mut fold.range);
        self.check(&mut fold.init);
        let range = self.mapping.substitute(&self.get(fold.range.id), false);
        let accu = self.get(fold.init.id);
        let two = !fold.var2.is_empty();
        let (first, second) = self.loop_types(fold.range.id, &range, two);
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), accu.clone()));
        self.scopes.push((fold.var.clone(), first));
        if two {
            self.scopes.push((fold.var2.clone(), second));
        }
        self.check(&mut fold.condition);
        self.assert(fold.condition.id, &Type::Bool);
        self.check(&mut fold.step);
        self.assert(fold.step.id, &accu);
        self.scopes.truncate(depth + 1);
        self.check(&mut fold.result);
        self.scopes.truncate(depth);
        let ty = self.mapping.substitute(&self.get(fold.result.id), false);
        self.set(id, ty);
    }

    fn loop_types(&mut self, id: Id, range: &Type, two: bool) -> (Type, Type) {
        match range {
            Type::List(item) if two => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(own) => (own.0.clone(), own.1.clone()),
            Type::Dyn | Type::Any | Type::Error | Type::Var(_) => {
                self.mapping.assignable(&[&Type::Dyn], &[range]);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let message = format!(
                    "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(id, message);
                (Type::Error, Type::Error)
            }
        }
    }

    fn assert(&mut self, id: Id, expected: &Type) {
        let found = self.get(id);
        if !self.mapping.assignable(&[expected], &[&found]) {
            self.mismatch(id, expected, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The type with a name.
fn type_name(name: &str, env: &Env) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" | "net.CIDR" => Type::Opaque(name.into(), std::sync::Arc::new([])),
        _ if env.has_type(name) => Type::object(name),
        _ => return None,
    })
}
