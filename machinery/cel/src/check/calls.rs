//! Calls: which overloads agree with their arguments.

use super::Checker;
use crate::ast::{CallExpr, Expr, ExprKind, Id, Literal};
use crate::declarations::{ALL, Overload};
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Call(call) = &mut expr.kind else {
            return;
        };
        if call.function == "_?._" {
            return self.optional_select(id, call);
        }
        for arg in &mut call.args {
            self.check(arg);
        }
        let Some(target) = &mut call.target else {
            return match self.function(&call.function) {
                Some(overloads) => {
                    call.function = call.function.trim_start_matches('.').to_owned();
                    self.overload(id, call, overloads);
                }
                None => self.undeclared(id, &call.function),
            };
        };
        if let Some(prefix) = target.qualified_name() {
            let name = format!("{prefix}.{}", call.function);
            if let Some(overloads) = self.function(&name) {
                call.function = name.trim_start_matches('.').to_owned();
                call.target = None;
                return self.overload(id, call, overloads);
            }
        }
        self.check(target);
        match self.function(&call.function) {
            Some(overloads) => self.overload(id, call, overloads),
            None => self.undeclared(id, &call.function),
        }
    }

    fn function(&self, name: &str) -> Option<&'static [Overload]> {
        let name = name.trim_start_matches('.');
        let is_known = match name {
            "jsonpatch.escapeKey" => self.env.features.mutation,
            "includes" => self.env.features.newest,
            _ => true,
        };
        if !is_known {
            return None;
        }
        ALL.get(name).map(Vec::as_slice)
    }

    fn optional_select(&mut self, id: Id, call: &mut CallExpr) {
        let [operand, field] = &mut call.args[..] else {
            return;
        };
        let Some(Literal::String(field)) = field.as_literal() else {
            return;
        };
        let field = field.clone();
        let ty = self.field(id, operand, &field, true);
        let ty = self.mapping.substitute(&ty, false);
        self.set(id, ty);
        self.overloads.insert(id, vec!["select_optional_field"]);
    }

    fn overload(&mut self, id: Id, call: &CallExpr, overloads: &'static [Overload]) {
        let member = call.target.is_some();
        let args: Vec<Type> = call.operands().map(|own| self.get(own.id)).collect();
        if matches!(call.function.as_str(), "_&&_" | "_||_") && args.len() == 2 {
            return self.logic(id, call, &args, overloads[0].id);
        }
        let (mut found, mut result) = (Vec::new(), None);
        for overload in overloads.iter().filter(|own| own.member == member) {
            if overload.args.len() != args.len() {
                continue;
            }
            let mut vars: Vec<(Type, Type)> = Vec::new();
            let wanted: Vec<Type> = overload
                .args
                .iter()
                .map(|own| self.instance(own, &mut vars))
                .collect();
            let own = self.instance(&overload.result, &mut vars);
            let (from, to): (Vec<_>, Vec<_>) = (args.iter().collect(), wanted.iter().collect());
            if !self.mapping.assignable(&from, &to) {
                continue;
            }
            found.push(overload.id);
            let own = self.mapping.substitute(&own, false);
            result = Some(match result {
                None => own,
                Some(Type::Dyn) => Type::Dyn,
                Some(before) if before == own => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            return self.no_overload(id, call, &args);
        };
        self.set(id, result);
        self.overloads.insert(id, found);
    }

    fn logic(&mut self, id: Id, call: &CallExpr, args: &[Type], overload: &'static str) {
        let mut agree = true;
        for (arg, ty) in call.args.iter().zip(args) {
            if !self.mapping.assignable(&[ty], &[&Type::Bool]) {
                self.mismatch(arg.id, &Type::Bool, ty);
                agree = false;
            }
        }
        self.set(id, if agree { Type::Bool } else { Type::Error });
        if agree {
            self.overloads.insert(id, vec![overload]);
        }
    }

    /// The type with variables in the place of the declaration's parameters.
    fn instance(&mut self, ty: &Type, vars: &mut Vec<(Type, Type)>) -> Type {
        if let Type::Param(_) = ty {
            if let Some((_, var)) = vars.iter().find(|own| own.0 == *ty) {
                return var.clone();
            }
            let var = self.mapping.new_var();
            vars.push((ty.clone(), var.clone()));
            return var;
        }
        ty.with_params(&mut |part| self.instance(part, vars))
    }

    fn no_overload(&mut self, id: Id, call: &CallExpr, args: &[Type]) {
        let shown: Vec<_> = args
            .iter()
            .map(|own| self.mapping.substitute(own, true).to_string())
            .collect();
        let signature = match (&call.target, shown.split_first()) {
            (Some(_), Some((target, args))) => format!("{target}.({})", args.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        let function = &call.function;
        let message = format!("found no matching overload for '{function}' applied to '{signature}'");
        self.report(id, message);
        self.types[id] = Some(Type::Error);
    }
}
