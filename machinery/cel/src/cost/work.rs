//! Work that an expression may take beside its cost, from the sizes that values can have.
//!
//! Upstream takes one for functions that read a text of any length, and a tenth of the outer list for lists in lists. Its
//! figures decide which definitions are accepted; whether rules run where the request is goes by these.

use super::estimate::{Coster, Sizes};
use super::functions::Argument;
use crate::ast::Expr;
use crate::check::Checked;
use crate::declared::MAX_REQUEST;
use crate::eval::BYTES_OF_A_STEP;
use crate::types::Type;

/// Greatest cost of an expression with the steps that its cost does not count.
pub(crate) fn greatest_work(checked: &Checked, sizes: &dyn Sizes) -> u64 {
    let mut coster = Coster::new(checked, sizes);
    coster.counts_work = true;
    coster.cost(&checked.parsed.expr).max
}

impl Coster<'_> {
    /// Steps of a call.
    pub(super) fn steps_of_call(&mut self, function: &str, args: &[&Argument<'_>]) -> u64 {
        match function {
            // The size of what is shorter is in the cost, or nothing of a text is looked at.
            "_&&_" | "_||_" | "_?_:_" | "!_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_[_]" | "_[?_]" | "dyn"
            | "type" | "startsWith" | "endsWith" => 0,
            "_==_" | "_!=_" => self.steps_of_equality(args),
            "getQuery" | "getEscapedPath" | "isURL" => {
                args.iter().map(|own| most(own)).fold(0, u64::saturating_add)
            }
            _ => {
                let lists = matches!(
                    function,
                    "@in" | "indexOf" | "lastIndexOf" | "includes" | "distinct"
                ) || function.starts_with("sets.");
                let steps = args.iter().map(|own| self.steps_of_argument(own, lists));
                steps.fold(0, u64::saturating_add)
            }
        }
    }

    /// Steps to make bytes of the text that an object has.
    pub(super) fn steps_to_decode(&mut self, expr: &Expr) -> u64 {
        match self.ty(expr.id) {
            Type::Bytes => capped(self.size_or_unknown(expr).max) / BYTES_OF_A_STEP,
            _ => 0,
        }
    }

    /// Steps to compare two values; those without parts are compared in what the cost says.
    fn steps_of_equality(&mut self, args: &[&Argument<'_>]) -> u64 {
        let short = |own: &&Argument<'_>| !has_parts(self.ty(own.expr.id)) || most(own) == 0;
        if args.iter().any(short) {
            return 0;
        }
        args.iter()
            .map(|own| self.steps_of_argument(own, true))
            .fold(0, u64::saturating_add)
    }

    fn steps_of_argument(&self, own: &Argument<'_>, compared: bool) -> u64 {
        match self.ty(own.expr.id) {
            Type::String | Type::Bytes => most(own) / BYTES_OF_A_STEP,
            Type::Object(name) if &**name == "kubernetes.URL" && compared => most(own),
            Type::Object(name) if name.starts_with("kubernetes.") => match &**name {
                "kubernetes.URL" | "kubernetes.Semver" => most(own) / BYTES_OF_A_STEP,
                _ => 0,
            },
            ty if compared && has_parts(ty) => self.steps_within(own),
            _ => 0,
        }
    }

    /// Steps to look through all of a value.
    fn steps_within(&self, own: &Argument<'_>) -> u64 {
        if let Some(known) = self.steps_at(own.path.as_ref()) {
            return known;
        }
        let size = own.size.map_or(u64::MAX, |own| own.max);
        let scalars = self
            .ty(own.expr.id)
            .params()
            .iter()
            .all(|own| super::estimate::is_scalar(own));
        match self.entry(own.expr) {
            Some(entry) if !entry.is_map() => {
                let item = capped(entry.greatest_value()) / BYTES_OF_A_STEP + 1;
                size.saturating_mul(item)
            }
            _ if scalars && size < u64::MAX => size,
            _ => MAX_REQUEST.cast_unsigned(),
        }
    }
}

/// Reports whether values of a type may be made of others, or be what is written out to be compared.
fn has_parts(ty: &Type) -> bool {
    match ty {
        Type::List(_) | Type::Map(_) | Type::Object(_) | Type::Dyn | Type::Param(_) => true,
        Type::Opaque(_, of) => !of.is_empty(),
        _ => false,
    }
}

fn capped(size: u64) -> u64 {
    size.min(MAX_REQUEST.cast_unsigned())
}

fn most(own: &Argument<'_>) -> u64 {
    capped(own.size.map_or(u64::MAX, |own| own.max))
}
