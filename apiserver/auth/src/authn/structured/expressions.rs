//! Expressions about claims and about the user that is made of them (upstream's `authentication/cel`).

use machinery_cel::{
    Compiled, Data, Env, ExpressionProblem, Limits, ObjectTypes, Program, Type, Value, Variables,
};
use serde_json::Value as Json;
use std::sync::{Arc, LazyLock};

const CLAIMS: &str = "claims";
const USER: &str = "user";
const USER_TYPE: &str = "kubernetes.UserInfo";

static CLAIMS_ENV: LazyLock<Env> = LazyLock::new(|| {
    let env = Env::new().variable(CLAIMS, Type::map(Type::String, Type::Any));
    env.for_stored()
});

static USER_ENV: LazyLock<Env> = LazyLock::new(|| {
    let texts = Type::list(Type::String);
    let fields = [
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", texts.clone()),
        ("extra", Type::map(Type::String, texts)),
    ];
    let types = Arc::new(ObjectTypes::new().with(USER_TYPE, &fields));
    let env = Env::new().types(types).variable(USER, Type::object(USER_TYPE));
    env.for_stored()
});

/// An expression of one variable.
#[derive(Debug)]
pub(crate) struct Expression {
    text: String,
    variable: &'static str,
    program: Program,
}

impl Expression {
    /// An expression about claims, whose value may be of any type.
    pub(super) fn of_claims(text: &str) -> Result<(Self, Compiled), ExpressionProblem> {
        compile(&CLAIMS_ENV, CLAIMS, text, None)
    }

    /// A condition on claims.
    pub(super) fn on_claims(text: &str) -> Result<(Self, Compiled), ExpressionProblem> {
        compile(&CLAIMS_ENV, CLAIMS, text, Some(&Type::Bool))
    }

    /// A condition on the user.
    pub(super) fn on_user(text: &str) -> Result<Self, ExpressionProblem> {
        compile(&USER_ENV, USER, text, Some(&Type::Bool)).map(|(own, _)| own)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The value for claims or for a user, handed to `read`: it borrows from both.
    ///
    /// # Errors
    /// Upstream's text of an evaluation that fails.
    pub(crate) fn evaluate<T>(
        &self,
        of: &Json,
        read: impl FnOnce(&Value<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let variables = Variables::new().with(self.variable, Data::Untyped(of).value());
        let value = self.program.evaluate(&variables, &Limits::default()).value;
        let value =
            value.map_err(|error| format!("expression '{}' resulted in error: {error}", self.text))?;
        read(&value)
    }

    /// The value of a condition.
    pub(crate) fn holds(&self, of: &Json) -> Result<bool, String> {
        self.evaluate(of, |value| {
            let value = value.as_bool();
            value.ok_or_else(|| "validation expression must return a boolean".to_owned())
        })
    }
}

fn compile(
    env: &Env,
    variable: &'static str,
    text: &str,
    wanted: Option<&Type>,
) -> Result<(Expression, Compiled), ExpressionProblem> {
    let compiled = env
        .compile(text)
        .map_err(|issues| ExpressionProblem::Invalid(format!("compilation failed: {issues}")))?;
    if let Some(wanted) = wanted.filter(|wanted| *wanted != compiled.ty()) {
        return Err(ExpressionProblem::Invalid(format!("must evaluate to {wanted}")));
    }
    let program = compiled.program();
    let program =
        program.map_err(|why| ExpressionProblem::Internal(format!("program instantiation failed: {why}")))?;
    let own = Expression {
        text: text.to_owned(),
        variable,
        program,
    };
    Ok((own, compiled))
}

/// A text or a list of texts; empty ones are left out, and null is an empty list.
///
/// # Errors
/// It is neither.
pub(crate) fn string_list(value: &Value<'_>) -> Result<Vec<String>, String> {
    let other = || "expression must return a string or a list of strings".to_owned();
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(own) => Ok(not_empty(own.as_str()).into_iter().collect()),
        Value::List(own) => {
            let mut texts = Vec::new();
            for item in own.iter() {
                let item = item.map_err(|_| other())?;
                texts.extend(not_empty(item.as_str().ok_or_else(other)?));
            }
            Ok(texts)
        }
        _ => Err(other()),
    }
}

fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
