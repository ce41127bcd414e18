//! Expressions that were checked, and programs made of them.

use crate::check::{Checked, check};
use crate::cost::{CostEstimate, Sizes, estimate, greatest_work};
use crate::env::Env;
use crate::eval::plan::Node;
use crate::eval::{Activation, Limits, Machine, plan};
use crate::parser::{Syntax, depth, parse};
use crate::source::Issues;
use crate::types::Type;
use crate::value::Evaluated;

/// An expression that was checked.
#[derive(Debug)]
pub struct Compiled {
    checked: Checked,
}

/// An expression that is ready to be evaluated, as often as there are values for its variables.
#[derive(Debug)]
pub struct Program {
    node: Node,
    variables: Vec<String>,
    depth: usize,
}

/// The value of an expression, and what it did cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub value: Evaluated<'a>,
    pub cost: u64,
    /// Steps that the cost does not count.
    pub work: u64,
}

impl Env {
    /// Reads and checks an expression.
    pub fn compile(&self, text: &str) -> Result<Compiled, Issues> {
        let syntax = Syntax {
            bind: self.features.bind,
        };
        let checked = check(parse(text, syntax)?, self)?;
        Ok(Compiled { checked })
    }
}

/// The reason for which an expression cannot be used, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpressionProblem {
    /// It does not compile, or its value has another type than is wanted.
    Invalid(String),
    /// It compiles, and no program can be made of it.
    Internal(String),
}

impl std::fmt::Display for ExpressionProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Invalid(own) | Self::Internal(own)) = self;
        f.write_str(own)
    }
}

impl Env {
    /// Compiles an expression whose value has one of these types; any will do where there are none.
    ///
    /// # Errors
    /// See [`ExpressionProblem`].
    pub fn compile_as(&self, text: &str, types: &[Type]) -> Result<(Program, Type), ExpressionProblem> {
        use ExpressionProblem::{Internal, Invalid};
        let compiled = self
            .compile(text)
            .map_err(|issues| Invalid(format!("compilation failed: {issues}")))?;
        let ty = compiled.ty();
        if !types.is_empty() && !types.contains(ty) {
            let found = ty.value_text();
            let wanted: Vec<_> = types.iter().map(Type::value_text).collect();
            return Err(Invalid(match wanted.as_slice() {
                [one] => format!("must evaluate to {one} but got {found}"),
                several => format!("must evaluate to one of [{}] but got {found}", several.join(" ")),
            }));
        }
        match compiled.program() {
            Ok(program) => Ok((program, ty.clone())),
            Err(why) => Err(Internal(format!("program instantiation failed: {why}"))),
        }
    }
}

impl Compiled {
    /// The type of its value.
    pub fn ty(&self) -> &Type {
        &self.checked.ty
    }

    /// Reports whether the expression selects a field of a variable: `claims.email`, `claims.?email`.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        self.checked.parsed.expr.selects(variable, field)
    }

    /// The range of what an evaluation may cost.
    pub fn estimate(&self, sizes: &dyn Sizes) -> CostEstimate {
        estimate(&self.checked, sizes)
    }

    /// Greatest cost of an evaluation with the work that costs do not count, which is never shown.
    pub(crate) fn greatest_work(&self, sizes: &dyn Sizes) -> u64 {
        greatest_work(&self.checked, sizes)
    }

    /// Makes the program; constants that cannot be converted and patterns that cannot be compiled are errors.
    pub fn program(&self) -> Result<Program, String> {
        let planned = plan(&self.checked)?;
        Ok(Program {
            node: planned.node,
            variables: planned.variables,
            depth: depth(&self.checked.parsed.expr),
        })
    }
}

impl Program {
    /// Names of the variables that the expression uses.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// Nodes on the longest path of the expression; evaluation takes stack in proportion to them.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Reports whether the expression uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.variables.iter().any(|own| own == variable)
    }

    /// Evaluates the expression.
    pub fn evaluate<'a>(&'a self, activation: &'a dyn Activation, limits: &Limits) -> Evaluation<'a> {
        let mut machine = Machine::new(activation, &self.variables, limits.clone());
        let value = machine.eval(&self.node);
        Evaluation {
            value,
            cost: machine.meter.cost,
            work: machine.meter.work_done(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expression_knows_the_fields_that_it_selects() {
        let env = Env::new().variable("claims", Type::map(Type::String, Type::Any));
        for (text, expected) in [
            ("claims.email", true),
            ("claims.?email.orValue('') + 'x'", true),
            ("has(claims.email) ? 'a' : 'b'", true),
            ("claims.groups.exists(own, own == claims.email)", true),
            ("[{'a': claims.email}][0].a", true),
            ("claims.sub", false),
            ("claims.email_verified", false),
            ("claims.other.email", false),
            ("'claims.email'", false),
        ] {
            let compiled = env.compile(text).unwrap();
            assert_eq!(compiled.selects("claims", "email"), expected, "{text}");
        }
    }
}
