//! Expressions that were checked, and programs made of them.

use crate::check::{Checked, check};
use crate::cost::{CostEstimate, Sizes, estimate};
use crate::env::Env;
use crate::eval::plan::Node;
use crate::eval::{Activation, Limits, Machine, plan};
use crate::parser::{Syntax, parse};
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
}

/// The value of an expression, and what it did cost.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub value: Evaluated<'a>,
    pub cost: u64,
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

impl Compiled {
    /// The type of its value.
    pub fn ty(&self) -> &Type {
        &self.checked.ty
    }

    /// The range of what an evaluation may cost.
    pub fn estimate(&self, sizes: &dyn Sizes) -> CostEstimate {
        estimate(&self.checked, sizes)
    }

    /// Makes the program; constants that cannot be converted and patterns that cannot be compiled are errors.
    pub fn program(&self) -> Result<Program, String> {
        let planned = plan(&self.checked)?;
        Ok(Program {
            node: planned.node,
            variables: planned.variables,
        })
    }
}

impl Program {
    /// Names of the variables that the expression uses.
    pub fn variables(&self) -> &[String] {
        &self.variables
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
        }
    }
}
