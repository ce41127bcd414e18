//! Format strings that are literals, checked against the types of what they format.

use super::format::{Clause, Piece, piece, problem as unusable};
use crate::ast::{CallExpr, Expr, ExprKind, Id, Literal};
use crate::types::Type;

/// The problem of a call of `format` with a literal and a list that is written out.
pub(crate) fn problem(id: Id, call: &CallExpr, types: &[Type]) -> Option<(Id, String)> {
    let Literal::String(text) = call.target.as_ref()?.as_literal()? else {
        return None;
    };
    let [
        Expr {
            kind: ExprKind::List { elements, .. },
            ..
        },
    ] = &call.args[..]
    else {
        return None;
    };
    let (mut rest, mut used) = (text.as_str(), 0);
    while !rest.is_empty() {
        let has_arg = if used < elements.len() { Ok(()) } else { Err(used) };
        let (piece, after) = match piece(rest, has_arg) {
            Ok(own) => own,
            Err(message) => return Some((id, message)),
        };
        if let Piece::Clause(clause) = piece {
            if let Some(bad) = rejected(clause, &elements[used], types) {
                return Some((bad, unusable(clause, types[bad].name())));
            }
            used += 1;
        }
        rest = after;
    }
    let given = elements.len();
    (given > used).then(|| {
        let message = format!("too many arguments supplied to string.format (expected {used}, got {given})");
        (id, message)
    })
}

/// The expression of a type that a clause does not take.
fn rejected(clause: Clause, expr: &Expr, types: &[Type]) -> Option<Id> {
    let ty = &types[expr.id];
    if *ty == Type::Dyn {
        return None;
    }
    let takes = match clause {
        Clause::Decimal | Clause::Octal => matches!(ty, Type::Int | Type::Uint),
        Clause::Fixed(_) | Clause::Scientific(_) => matches!(ty, Type::Double | Type::String),
        Clause::Binary => matches!(ty, Type::Int | Type::Uint | Type::Bool),
        Clause::Hex { .. } => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
        Clause::String => !matches!(ty, Type::Object(_) | Type::Opaque(..) | Type::Any | Type::Error),
    };
    if !takes {
        return Some(expr.id);
    }
    if clause != Clause::String {
        return None;
    }
    match &expr.kind {
        ExprKind::List { elements, .. } => elements.iter().find_map(|own| rejected(clause, own, types)),
        ExprKind::Map(entries) => entries.iter().find_map(|own| {
            rejected(clause, &own.key, types).or_else(|| rejected(clause, &own.value, types))
        }),
        _ => None,
    }
}
