//! Match conditions of a webhook: expressions that must all be true of a request (upstream's `matchconditions`).
//!
//! Expressions are compiled once, with their configuration. An authorizer answers at once where expressions ask it, and ours does
//! not: questions are collected, answered, and the conditions evaluated again.

use super::review;
use super::selection::{Objects, Selection};
use crate::host::Equivalent;
use machinery_cel::{
    AdmissionVariables, Authorizer, Check, Data, Decision, Env, Limits, MATCH_CONDITIONS_BUDGET, Opaque,
    PER_CALL_LIMIT, Program, Subject, Type, Value, Variables, admission_env,
};
use machinery_schema::Tree;
use parking_lot::Mutex;
use serde_json::Value as Json;
use std::sync::{Arc, LazyLock};

/// Questions to the authorizer of one request.
const MAX_QUESTIONS: usize = 64;

static ENV: LazyLock<Env> = LazyLock::new(|| {
    admission_env(AdmissionVariables {
        params: false,
        authorizer: true,
    })
});

/// A condition.
#[derive(Debug)]
pub(super) struct Condition {
    text: String,
    program: Result<Program, String>,
}

/// The conditions' word about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Matched {
    Yes,
    No,
    /// None is false, and these have no value.
    Failed(String),
}

impl Condition {
    pub(super) fn compile(text: &str) -> Self {
        let compiled = ENV.compile(text.trim());
        let program = match compiled {
            Err(issues) => Err(format!("compilation failed: {issues}")),
            Ok(own) if *own.ty() != Type::Bool => Err(format!("must evaluate to bool but got {}", own.ty())),
            Ok(own) => own.program(),
        };
        Self {
            text: text.to_owned(),
            program,
        }
    }
}

/// A question, and the right that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    service_account: Option<(String, String)>,
    check: Check,
    verb: String,
}

/// Answers of the authorizer, and the first question that has none yet.
#[derive(Debug, Default)]
struct Answers {
    known: Vec<(Question, Decision)>,
    open: Mutex<Option<Question>>,
}

impl Authorizer for Answers {
    fn authorize(&self, service_account: Option<(&str, &str)>, check: &Check, verb: &str) -> Decision {
        let question = Question {
            service_account: service_account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            check: check.clone(),
            verb: verb.to_owned(),
        };
        if let Some((_, decision)) = self.known.iter().find(|(own, _)| *own == question) {
            return decision.clone();
        }
        self.open.lock().get_or_insert(question);
        Decision::default()
    }
}

/// Evaluates conditions on a request in a webhook's version.
pub(super) async fn matched(
    conditions: &[Condition],
    selection: &Selection<'_>,
    to: &Equivalent,
    objects: Objects<'_>,
) -> Matched {
    let request = review::request(selection, to);
    let mut answers = Answers::default();
    loop {
        let found = evaluated(conditions, &request, objects, &answers, selection);
        let open = answers.open.lock().take();
        let Some(question) = open.filter(|_| answers.known.len() < MAX_QUESTIONS) else {
            return found;
        };
        let account = question.service_account.as_ref();
        let account = account.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let decision = selection
            .host
            .authorize(account, &question.check, &question.verb)
            .await;
        answers.known.push((question, decision));
    }
}

fn value(object: Option<&Tree>) -> Value<'_> {
    object.map_or(Value::Null, |own| Data::from(own.root()).value())
}

fn evaluated(
    conditions: &[Condition],
    request: &Json,
    objects: Objects<'_>,
    answers: &Answers,
    selection: &Selection<'_>,
) -> Matched {
    let subject = Subject {
        authorizer: answers,
        service_account: None,
    };
    let own = selection.request;
    let resource = Check {
        group: own.group.to_owned(),
        resource: own.resource.to_owned(),
        subresource: own.subresource.to_owned(),
        namespace: selection.namespace().to_owned(),
        name: own.name.to_owned(),
        ..Check::default()
    };
    let variables = Variables::new()
        .with("object", value(objects.new))
        .with("oldObject", value(objects.old))
        .with("namespaceObject", Value::Null)
        .with("request", Data::from(request).value())
        .with(
            "authorizer",
            Value::Opaque(Arc::new(Opaque::Authorizer(subject.clone()))),
        )
        .with(
            "authorizer.requestResource",
            Value::Opaque(Arc::new(Opaque::ResourceCheck(subject, resource))),
        );
    let mut left = MATCH_CONDITIONS_BUDGET;
    let mut failed = Vec::new();
    for condition in conditions {
        let program = match &condition.program {
            Ok(program) => program,
            Err(why) => {
                failed.push(why.clone());
                continue;
            }
        };
        let limits = Limits {
            cost: left.min(PER_CALL_LIMIT),
            interrupt: None,
        };
        let evaluation = program.evaluate(&variables, &limits);
        left = left.saturating_sub(evaluation.cost);
        match evaluation.value {
            Ok(value) if value.as_bool() == Some(false) => return Matched::No,
            Ok(_) => {}
            Err(error) => {
                let text = &condition.text;
                failed.push(format!("expression '{text}' resulted in error: {error}"));
            }
        }
    }
    match failed.as_slice() {
        [] => Matched::Yes,
        [one] => Matched::Failed(one.clone()),
        several => Matched::Failed(format!("[{}]", several.join(", "))),
    }
}
